"""Cells of four kinds: the model, sizes left out, CPU time of one size, bytes of one kind of mask.

CPU time is of everything that happens in a round: all participants mask, the active one adds,
decides, and learns the reward.  Central and masked bandits take turns, round by round, so that a
busy machine slows them alike and their ratio stands.  Times are medians over rounds, so what
happens rarely (the learner works its inverse out anew every 10,000 rewards) is not in them.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from vfbandits.core.arrays import MaskedBlock, Matrix, PlainBlock
from vfbandits.core.bandit import Bandit
from vfbandits.core.mask import deal_blockwise, deal_dense
from vfbandits.core.policy import Policy
from vfbandits.core.policy.registry import make_policy
from vfbandits.core.round import Federation
from vfbandits.extras import require
from vfbandits.protocol.messages import DIGEST_SIZE, Answer
from vfbandits.reproduce.config import number, whole, whole_numbers, word
from vfbandits.reproduce.rows import Row, Settings
from vfbandits.simulate.world import even_widths, unit_rows

from . import model

PARAMETERS = {"linucb": "beta", "lints": "posterior_scale"}
VARIANTS = ("central", "dense", "blockwise")
LAYOUTS = ("per_arm", "outer")
DISTINCT_ROUNDS = 3


@dataclass(frozen=True, slots=True, order=True)
class Size:
    """Dimension, arms and participants of a timed cell."""

    dim: int
    n_arms: int
    n_participants: int


def cells(config: Settings) -> list[Settings]:
    """The model, bytes, and times as far as the limits go."""
    reasons = {size: _beyond(size, config) for size in _timed_sizes(config)}
    left_out = [[size.dim, size.n_arms, why] for size, why in reasons.items() if why]
    common = {key: config[key] for key in ("seconds", "fewest_rounds", "most_rounds")}
    model_keys = ("participants", "horizon", "model_arms", "model_dims")
    sent_keys = ("arms", "sent_dims", "sent_participants")
    return [
        {"kind": "model", **{key: config[key] for key in model_keys}},
        {"kind": "left_out", "sizes": left_out},
        *(
            {"kind": "bytes", "mask": mask, "layout": layout, **{k: config[k] for k in sent_keys}}
            for mask, layout in product(("dense", "blockwise"), LAYOUTS)
        ),
        *(
            {
                "kind": "time",
                **common,
                "policy": policy,
                "parameter": config[parameter],
                "dim": size.dim,
                "arms": size.n_arms,
                "participants": size.n_participants,
            }
            for size, why_not in reasons.items()
            if not why_not
            for policy, parameter in PARAMETERS.items()
        ),
    ]


def weight(settings: Settings) -> float:
    """Rough seconds."""
    if settings["kind"] != "time":
        return 1.0
    size = Size(whole(settings, "dim"), whole(settings, "arms"), whole(settings, "participants"))
    return number(settings, "seconds") + 3.0 * _work(size, whole(settings, "fewest_rounds")) / 1e10


def run_cell(settings: Settings) -> list[Row]:
    """Rows of the cell's kind."""
    kinds: dict[str, Callable[[Settings], list[Row]]] = {
        "model": _model,
        "left_out": _left_out,
        "bytes": _bytes,
        "time": _time,
    }
    kind = word(settings, "kind")
    return [{"kind": kind, **row} for row in kinds[kind](settings)]


def _timed_sizes(config: Settings) -> list[Size]:
    """The paper's grid, and a few sizes with more or fewer participants."""
    grid = {
        Size(dim, n_arms, whole(config, "participants"))
        for dim in whole_numbers(config, "timed_dims")
        for n_arms in whole_numbers(config, "arms")
    }
    dim, n_arms = whole(config, "participants_dim"), whole(config, "participants_arms")
    return sorted(grid | {Size(dim, n_arms, m) for m in whole_numbers(config, "more_participants")})


def _work(size: Size, n_rounds: int) -> float:
    """Operations: QR for a dense mask, then masking and scoring in each round."""
    return 4.0 * size.dim**3 + n_rounds * 4.0 * size.n_arms * size.dim**2


def _beyond(size: Size, config: Settings) -> str:
    """Why this size is left out; empty if it is not."""
    work = _work(size, whole(config, "fewest_rounds") + DISTINCT_ROUNDS)
    if work > number(config, "most_work"):
        return f"{work:.0e} operations a cell, of which {4.0 * size.dim**3:.0e} to draw a mask"
    memory = 8.0 * (20 * size.dim**2 + 6 * DISTINCT_ROUNDS * size.n_arms * size.dim) / 1e9
    if memory > number(config, "most_memory_gb"):
        return f"{memory:.1f} GB of memory"
    return ""


def _left_out(settings: Settings) -> list[Row]:
    sizes = settings["sizes"]
    listed = sizes if isinstance(sizes, list) else []
    return [{"dim": dim, "arms": n_arms, "reason": reason} for dim, n_arms, reason in listed]


def _model(settings: Settings) -> list[Row]:
    rows: list[Row] = []
    n_participants, horizon = whole(settings, "participants"), whole(settings, "horizon")
    for dim, n_arms in product(
        whole_numbers(settings, "model_dims"), whole_numbers(settings, "model_arms")
    ):
        for policy, plain in (("linucb", model.linucb), ("lints", model.lints)):
            ratio = model.relative(
                plain(dim, n_arms),
                dim=dim,
                n_arms=n_arms,
                n_participants=n_participants,
                horizon=horizon,
            )
            rows.append({"policy": policy, "dim": dim, "arms": n_arms, "ratio": ratio})
    return rows


def _bytes(settings: Settings) -> list[Row]:
    """Masks are dealt, blocks masked, and the encoded messages counted."""
    deal = deal_dense if settings["mask"] == "dense" else deal_blockwise
    outer = settings["layout"] == "outer"
    rng = np.random.default_rng(0)
    rows: list[Row] = []
    for dim, n_participants in product(
        whole_numbers(settings, "sent_dims"), whole_numbers(settings, "sent_participants")
    ):
        widths = list(even_widths(dim, n_participants).values())
        shares = deal(widths, entropy=rng.bytes)
        for n_arms in whole_numbers(settings, "arms"):
            n_rows = 1 if outer else n_arms
            sizes = [
                len(encode(share.mask(PlainBlock(unit_rows(rng, (n_rows, width))))))
                for share, width in zip(shares, widths, strict=True)
            ]
            rows.append(
                {
                    "mask": str(settings["mask"]),
                    "layout": str(settings["layout"]),
                    "dim": dim,
                    "arms": n_arms,
                    "participants": n_participants,
                    "bytes": sum(sizes[1:]),
                    "bytes_with_active": sum(sizes),
                }
            )
    return rows


def encode(block: MaskedBlock) -> bytes:
    """The block as the answer that a participant sends: the wire format of the live federation."""
    require("google.protobuf", extra="rpc", to="counting the bytes of real messages")
    from vfbandits.transport.rpc.codec import encode as encode_message  # noqa: PLC0415  (an extra)

    n_rows, n_columns = block.shape
    values = np.ascontiguousarray(block, dtype="<f8").tobytes()
    digest = bytes(DIGEST_SIZE)
    return encode_message(Answer(1, 0, 1, digest, n_rows, n_columns, values))


def _time(settings: Settings) -> list[Row]:
    kind = word(settings, "policy")
    policy = make_policy(kind, {PARAMETERS[kind]: number(settings, "parameter")})
    dim, n_arms = whole(settings, "dim"), whole(settings, "arms")
    widths = even_widths(dim, whole(settings, "participants"))
    plays = {variant: _player(policy, variant, widths, n_arms) for variant in VARIANTS}
    for turn, play in product(range(DISTINCT_ROUNDS), plays.values()):
        play(turn)  # compiles, fills caches, grows buffers
    return [
        {
            "policy": kind,
            "variant": variant,
            "dim": dim,
            "arms": n_arms,
            "participants": len(widths),
            "rounds": len(times.cpu),
            "cpu_s": float(np.median(times.cpu)),
            "wall_s": float(np.median(times.wall)),
        }
        for variant, times in _clock(plays, settings).items()
    ]


def _player(
    policy: Policy, variant: str, widths: dict[str, int], n_arms: int
) -> Callable[[int], None]:
    """A function that plays a round: decide and reward, on contexts that were drawn before."""
    rng = np.random.default_rng(0)
    dim = sum(widths.values())
    contexts = [unit_rows(rng, (n_arms, dim)) for _ in range(DISTINCT_ROUNDS)]
    theta_star = unit_rows(rng, (dim,))
    rewards = [rows @ theta_star for rows in contexts]
    if variant == "central":
        bandit = Bandit(policy, dim=dim, seed=0)

        def play_plain(turn: int) -> None:
            place = turn % DISTINCT_ROUNDS
            decision = bandit.decide(contexts[place])
            bandit.reward(decision, float(rewards[place][decision.index]))

        return play_plain
    blocks = [_blocks(rows, widths) for rows in contexts]
    federation = Federation(policy, widths=widths, mask=variant, entropy=rng.bytes, seed=0)

    def play_masked(turn: int) -> None:
        place = turn % DISTINCT_ROUNDS
        decision = federation.decide(blocks[place])
        federation.reward(decision, float(rewards[place][decision.index]))

    return play_masked


def _blocks(contexts: Matrix, widths: dict[str, int]) -> dict[str, Matrix]:
    """Each participant's own array: nobody has the others' columns in between."""
    parts = np.split(contexts, np.cumsum(list(widths.values()))[:-1], axis=1)
    return {name: np.ascontiguousarray(part) for name, part in zip(widths, parts, strict=True)}


@dataclass(slots=True)
class Times:
    """CPU and wall seconds of each round."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)


def _clock(plays: dict[str, Callable[[int], None]], settings: Settings) -> dict[str, Times]:
    fewest, most = whole(settings, "fewest_rounds"), whole(settings, "most_rounds")
    times = {variant: Times() for variant in plays}
    begin = time.process_time()
    for turn in range(most):
        if turn >= fewest and time.process_time() - begin > number(settings, "seconds"):
            break
        for variant, play in plays.items():
            wall_start, cpu_start = time.perf_counter(), time.process_time()
            play(turn)
            times[variant].cpu.append(time.process_time() - cpu_start)
            times[variant].wall.append(time.perf_counter() - wall_start)
    return times
