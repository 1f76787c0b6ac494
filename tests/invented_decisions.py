"""Invented decisions and rewards of a campaign, to look at."""

import math
import random
from collections.abc import Iterator

from vfbandits.campaign.observer import Ranked, RewardSeen

PARTICIPANTS = ("shop", "bank", "news", "telco")
ARMS = ("loan", "savings", "card", "insurance", "mortgage", "travel", "pension", "shares")
LINKS = {
    "shop": {"width": 40, "missing_ratio": 0.0, "norm_ratio": 1.02, "mean_shift": 0.81,
             "variance_shift": 0.2},
    "bank": {
        "width": 30, "connected": True, "circuit": "closed",
        "asks": 51_204, "answers": 51_190, "bytes": 41_800_000, "latency_ms": 2.4,
        "missing_ratio": 0.004, "norm_ratio": 1.03,
    },
    "news": {
        "width": 18, "connected": True, "circuit": "half-open",
        "asks": 51_204, "answers": 48_870, "bytes": 22_300_000, "latency_ms": 8.13,
        "missing_ratio": 0.31, "norm_ratio": 1.84,
    },
    "telco": {
        "width": 12, "connected": False, "circuit": "open", "since": 1_794_850_000.0,
        "asks": 51_204, "answers": 33_001, "bytes": 9_210_000, "latency_ms": 31.0,
    },
}  # fmt: skip


def ranked(event_id: str = "a", **changes: object) -> Ranked:
    """One decision; what is not given is something plain."""
    facts: dict[str, object] = {
        "campaign": "ads", "event_id": event_id, "user": "ann", "at": 1000.0, "arm": "tea",
        "choice": "tea", "baseline": "milk", "group": "policy", "estimate": 0.5, "bonus": 0.1,
        "parts": None, "probability": 1.0, "contributors": ("shop", "bank"), "missing": (),
        "n_arms": 2, "model_version": 7, "seconds": 0.002, "bytes_received": 100,
    }  # fmt: skip
    return Ranked(**{**facts, **changes})


def heard(event_id: str = "a", value: float = 1.0, **changes: object) -> RewardSeen:
    """One reward."""
    facts: dict[str, object] = {
        "campaign": "ads", "event_id": event_id, "arm": "tea", "group": "policy",
        "status": "learnt", "value": value, "at": 1000.0, "waited_s": 2.0,
    }  # fmt: skip
    return RewardSeen(**{**facts, **changes})


def traffic(  # noqa: PLR0913  (each by keyword)
    campaign: str,
    *,
    until: float,
    seconds: int,
    every_s: float = 0.25,
    seed: int = 0,
    hides_parts: bool = False,
    group: str | None = None,
    liked_by_policy: float = 0.14,
) -> Iterator[Ranked | RewardSeen]:
    """A campaign that slowly learns which arms are liked, with a telco that comes and goes."""
    rng = random.Random(seed)  # noqa: S311  # invented traffic, no secrets
    n = int(seconds / every_s)
    for i in range(n):
        progress = i / n
        at = until - seconds + i * every_s
        weights = [math.exp(progress * 2.2 * math.cos(k)) for k in range(len(ARMS))]
        choice = rng.choices(ARMS, weights)[0]
        missing = ("telco",) if rng.random() < 0.04 + 0.25 * (0.5 < progress < 0.6) else ()
        contributors = tuple(name for name in PARTICIPANTS if name not in missing)
        parts = {name: rng.gauss(0.12, 0.09) / (k + 1) for k, name in enumerate(contributors)}
        which = group or ("holdback" if rng.random() < 0.15 else "policy")
        seen = Ranked(
            campaign=campaign,
            event_id=f"{rng.getrandbits(64):016x}",
            user=f"user-{rng.randrange(4000):04d}",
            at=at,
            arm=choice if which == "policy" else ARMS[0],
            choice=choice,
            baseline=ARMS[0],
            group=which,
            estimate=sum(parts.values()),
            bonus=abs(rng.gauss(0.06, 0.02)) * (1.2 - progress),
            parts=None if hides_parts else parts,
            probability=rng.choice((1.0, 0.9, 0.9125)),
            contributors=contributors,
            missing=missing,
            n_arms=len(ARMS),
            model_version=18_000 + i,
            seconds=rng.lognormvariate(-6.0, 0.4) * (8.0 if missing else 1.0),
            bytes_received=820,
        )
        yield seen
        if rng.random() < 0.9 and at + 3.0 < until:
            liked = 0.24 + liked_by_policy * progress * (which == "policy")
            status = "learnt" if rng.random() < 0.9 else "default"
            value = float(rng.random() < liked) if status == "learnt" else 0.0
            yield RewardSeen(
                campaign, seen.event_id, seen.arm, which, status, value, at + 3.0, waited_s=3.0
            )


def tell(sky, seen):
    """Tell an observatory of a decision or of a reward."""
    if isinstance(seen, Ranked):
        sky.on_ranked([seen])
    else:
        sky.on_reward(seen)
