"""Tables of measured values: growth exponents, bytes, times, and where the grid stops."""

from vfbandits.reproduce.claim import ValueTable
from vfbandits.reproduce.config import whole, whole_numbers
from vfbandits.reproduce.curves import value
from vfbandits.reproduce.rows import Row, Settings

from .evidence import MASKS, NAMES, SENT, byte_growth, growth_of, on_grid, sent, timed, whole_value

SIZES = {"d": "dim", "K": "arms"}
COUNT = "participants"


def tables(rows: list[Row], config: Settings) -> list[ValueTable]:
    """Ratios, times, exponents and bytes."""
    return [
        _exponents(rows, config),
        _byte_table(rows, config),
        _byte_exponents(rows),
        *(_times(rows, config, policy) for policy in NAMES),
        *_where_it_stops(rows),
    ]


def _exponents(rows: list[Row], config: Settings) -> ValueTable:
    """LinTS has two laws: with K > d it draws a parameter, otherwise the K scores jointly."""
    least = whole(config, "fit_from_dim")
    dim, n_arms = config["participants_dim"], config["participants_arms"]
    lines = []
    for policy, (plain, masked) in NAMES.items():
        for variant in ("central", *MASKS):
            name = plain if variant == "central" else f"{masked}, {variant}"
            mine = [r for r in timed(rows) if r["policy"] == policy and r["variant"] == variant]
            grid = [r for r in mine if on_grid(rows, r)]
            large = [r for r in grid if value(r, "dim") >= least]
            in_m = _spelt([r for r in mine if (r["dim"], r["arms"]) == (dim, n_arms)], M=COUNT)
            if policy == "linucb":
                lines.append((f"{name}, d ≥ {least}", *_spelt(large, **SIZES), *in_m))
                continue
            few = [r for r in large if value(r, "arms") <= value(r, "dim")]
            many = [r for r in grid if value(r, "arms") > value(r, "dim")]
            lines += [
                (f"{name}, d ≥ {least}, K ≤ d", *_spelt(few, **SIZES), *in_m),
                (f"{name}, K > d", *_spelt(many, **SIZES), "–"),
            ]
    return ValueTable(
        f"Growth exponents of CPU time per round, ± one standard error (in M: d = {dim}, "
        f"K = {n_arms})",
        ("", "in d", "in K", "in M"),
        tuple(lines),
    )


def _spelt(rows: list[Row], **sizes: str) -> list[str]:
    """Exponents of CPU time, or dashes where the sizes do not vary enough to tell."""
    for column in sizes.values():
        if len({row[column] for row in rows}) < 2 or len(rows) <= len(sizes):
            return ["–"] * len(sizes)
    return [str(exponent) for exponent in growth_of(rows, "cpu_s", **sizes).values()]


def _byte_table(rows: list[Row], config: Settings) -> ValueTable:
    n_arms = max(whole_numbers(config, "arms"))
    dim = max(whole_numbers(config, "sent_dims"))
    lines = []
    for mask, layout in SENT:
        here = [r for r in sent(rows, mask, layout) if r["arms"] == n_arms and r["dim"] == dim]
        lines.append(
            (
                f"{mask}, {layout}",
                *(f"{value(row, 'bytes') / 1e3:,.1f} KB" for row in here),
            )
        )
    participants = whole_numbers(config, "sent_participants")
    return ValueTable(
        f"Sent by all passive participants for one decision, {dim} features, K = {n_arms} "
        "(encoded messages)",
        ("", *(f"M = {m}" for m in participants)),
        tuple(lines),
    )


def _byte_exponents(rows: list[Row]) -> ValueTable:
    lines = []
    for mask, layout in SENT:
        growth = byte_growth(rows, mask, layout)
        lines.append((f"{mask}, {layout}", *(str(growth[size]) for size in "dKM")))
    return ValueTable(
        "Growth exponents of bytes per decision, the active participant's own block included",
        ("", "in d", "in K", "in M"),
        tuple(lines),
    )


def _times(rows: list[Row], config: Settings, policy: str) -> ValueTable:
    plain, masked = NAMES[policy]
    arms = whole_numbers(config, "arms")
    grid = [r for r in timed(rows) if r["policy"] == policy and on_grid(rows, r)]
    dims = sorted({whole_value(row, "dim") for row in grid if row["arms"] in arms})
    lines = []
    for variant in ("central", *MASKS):
        for n_arms in arms:
            times = {
                whole_value(row, "dim"): value(row, "cpu_s")
                for row in grid
                if row["variant"] == variant and row["arms"] == n_arms
            }
            name = plain if variant == "central" else f"{masked}, {variant}"
            lines.append(
                (
                    f"{name}, K = {n_arms}",
                    *(f"{1e3 * times[d]:.3g}" if d in times else "–" for d in dims),
                )
            )
    header = ("ms of CPU time", *(f"d = {dim}" for dim in dims))
    return ValueTable(f"{plain}, decide and reward, one round", header, tuple(lines))


def _where_it_stops(rows: list[Row]) -> list[ValueTable]:
    lines = tuple(
        (f"d = {row['dim']}, K = {row['arms']}", str(row["reason"]))
        for row in rows
        if row["kind"] == "left_out"
    )
    if not lines:
        return []
    return [ValueTable("Sizes of the grid that were not timed", ("size", "needs"), lines)]
