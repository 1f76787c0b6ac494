"""Rows of each kind, and what is worked out of them, for claims, tables and plots alike."""

from vfbandits.reproduce.curves import value
from vfbandits.reproduce.growth import Exponent, fit_growth
from vfbandits.reproduce.rows import Row

NAMES = {"linucb": ("LinUCB", "VFUCB"), "lints": ("LinTS", "VFTS")}
MASKS = ("dense", "blockwise")
SENT = [(mask, layout) for layout in ("per_arm", "outer") for mask in MASKS]


def model_ratios(rows: list[Row], policy: str) -> dict[tuple[int, int], float]:
    """The model's relative cost, by (d, K)."""
    return {
        (whole_value(row, "dim"), whole_value(row, "arms")): value(row, "ratio")
        for row in rows
        if row["kind"] == "model" and row["policy"] == policy
    }


def sent(rows: list[Row], mask: str, layout: str) -> list[Row]:
    """Bytes of one kind of mask and layout."""
    return [
        row
        for row in rows
        if row["kind"] == "bytes" and row["mask"] == mask and row["layout"] == layout
    ]


def timed(rows: list[Row]) -> list[Row]:
    """CPU times."""
    return [row for row in rows if row["kind"] == "time"]


def time_ratios(rows: list[Row], policy: str, mask: str) -> dict[tuple[int, int], float]:
    """CPU time of a round behind ``mask`` over the central one's, by (d, K), on the M = 5 grid."""
    times = {
        (whole_value(row, "dim"), whole_value(row, "arms"), str(row["variant"])): value(
            row, "cpu_s"
        )
        for row in timed(rows)
        if row["policy"] == policy and on_grid(rows, row)
    }
    return {
        (dim, n_arms): seconds / times[dim, n_arms, "central"]
        for (dim, n_arms, variant), seconds in sorted(times.items())
        if variant == mask
    }


def on_grid(rows: list[Row], row: Row) -> bool:
    """Whether a timed row has the participants that most have."""
    counts = [whole_value(other, "participants") for other in timed(rows)]
    return whole_value(row, "participants") == max(set(counts), key=counts.count)


def byte_growth(rows: list[Row], mask: str, layout: str) -> dict[str, Exponent]:
    """Exponents of all blocks of a step, the active participant's included."""
    return growth_of(
        sent(rows, mask, layout), "bytes_with_active", d="dim", K="arms", M="participants"
    )


def growth_of(rows: list[Row], key: str, **sizes: str) -> dict[str, Exponent]:
    """Exponents of ``key`` in the columns that ``sizes`` name."""
    columns = {name: [value(row, column) for row in rows] for name, column in sizes.items()}
    return fit_growth(columns, [value(row, key) for row in rows])


def whole_value(row: Row, key: str) -> int:
    """A whole number of a row."""
    return int(value(row, key))
