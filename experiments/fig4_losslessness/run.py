"""One cell: a policy and a seed.  All contestants play the same world; each is held to central."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vfbandits.core.arrays import Matrix, Vector
from vfbandits.core.bandit import Bandit
from vfbandits.core.policy.registry import make_policy
from vfbandits.errors import SettingError
from vfbandits.reproduce.config import number, whole, whole_numbers, word, words
from vfbandits.reproduce.curves import kept_rounds
from vfbandits.reproduce.rows import Row, Settings
from vfbandits.simulate.contestant import Contestant
from vfbandits.simulate.regret import CentralPlayer, FederatedPlayer, Player
from vfbandits.simulate.steps import counted
from vfbandits.simulate.study import Study
from vfbandits.simulate.world import WorldSettings, even_widths

PARAMETERS = {"linucb": "beta", "lints": "posterior_scale"}
COMMON = ("dim", "participants", "arms", "horizon", "noise", "ridge", "partial", "masks", "kept")


def cells(config: Settings) -> list[Settings]:
    """Policies × seeds."""
    common = {key: config[key] for key in COMMON}
    return [
        {**common, "policy": policy, "parameter": config[parameter], "seed": seed}
        for seed in whole_numbers(config, "seeds")
        for policy, parameter in PARAMETERS.items()
    ]


def weight(settings: Settings) -> float:
    """Rough seconds."""
    return 1e-3 * whole(settings, "horizon")


def run_cell(settings: Settings) -> list[Row]:
    """Curves of every contestant, and a line each that compares all its rounds with central's."""
    study, seed, policy = _study(settings), whole(settings, "seed"), word(settings, "policy")
    kept = kept_rounds(study.horizon, whole(settings, "kept"))
    central, *others = study.contestants
    base = _play(study, central, seed, kept)
    rows = _curve(base, base, {"policy": policy, "contestant": central.name, "seed": seed}, kept)
    for contestant in others:
        path = _play(study, contestant, seed, kept)
        about: Row = {"policy": policy, "contestant": contestant.name, "seed": seed}
        rows += _curve(path, base, about, kept)
        rows.append(
            {
                "kind": "comparison",
                **about,
                "equal": int((path.arms == base.arms).sum()),
                "total": study.horizon,
                "largest_score_difference": float(np.abs(path.scores - base.scores).max()),
            }
        )
    return rows


@dataclass(frozen=True, slots=True, eq=False)
class Path:
    """All rounds of one contestant: arms (T,), scores (T, n_arms), regret (T,); norms as kept."""

    arms: NDArray[np.intp]
    scores: Matrix
    regret: Vector
    norms: Vector


def _study(settings: Settings) -> Study:
    kind = word(settings, "policy")
    policy = make_policy(kind, {PARAMETERS[kind]: number(settings, "parameter")})
    masks = words(settings, "masks")
    return Study(
        contestants=(
            Contestant("central", policy),
            *(Contestant(mask, policy, federated=True, mask=mask) for mask in masks),
            Contestant("partial", policy, features=number(settings, "partial")),
        ),
        world=WorldSettings(
            even_widths(whole(settings, "dim"), whole(settings, "participants")),
            n_arms=whole(settings, "arms"),
            noise=number(settings, "noise"),
        ),
        horizon=whole(settings, "horizon"),
        ridge=number(settings, "ridge"),
    )


def _play(study: Study, contestant: Contestant, seed: int, kept: NDArray[np.intp]) -> Path:
    player = study.player(contestant, seed)
    arms, scores, losses, norms = [], [], [], []
    wanted = set(kept.tolist())
    for turn, given in enumerate(counted(study.world_of(seed).rounds(study.horizon)), start=1):
        decision = player.decide(given)
        player.reward(decision, float(given.rewards[decision.index]))
        arms.append(decision.index)
        scores.append(decision.scores.copy())
        losses.append(float(given.expected.max() - given.expected[decision.index]))
        if turn in wanted:
            norms.append(_bandit(player).estimate_norm())
    return Path(np.array(arms), np.array(scores), np.cumsum(losses), np.array(norms))


def _curve(path: Path, base: Path, about: Row, kept: NDArray[np.intp]) -> list[Row]:
    regret, gap = path.regret[kept - 1], path.norms - base.norms
    return [
        {"kind": "curve", **about, "round": turn, "regret": lost, "norm_gap": norm_gap}
        for turn, lost, norm_gap in zip(kept.tolist(), regret.tolist(), gap.tolist(), strict=True)
    ]


def _bandit(player: Player) -> Bandit:
    if isinstance(player, FederatedPlayer):
        return player.federation.bandit
    if isinstance(player, CentralPlayer):
        return player.bandit
    raise SettingError(f"players must be central or federated, got {type(player).__name__}")
