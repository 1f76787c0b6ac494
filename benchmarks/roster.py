"""Who takes part: a name for the table, and where the contestant is built."""

from dataclasses import dataclass
from typing import Literal

PURE_NUMPY = {"VFBANDITS_COMPILED": "0"}
Kind = Literal["ours", "textbook", "peer"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the table.

    ``factory`` is ``module:function`` and is resolved in the worker only.  ``is_same_algorithm``
    is false for a peer that is shown for orientation and enters no bar.
    """

    name: str
    factory: str
    kind: Kind
    package: str | None = None
    algorithms: tuple[str, ...] = ("LinUCB", "LinTS")
    environment: tuple[tuple[str, str], ...] = ()
    is_same_algorithm: bool = True
    note: str = ""


TEXTBOOK = Entry("textbook", "benchmarks.textbook:build", "textbook")
OURS = Entry("vfbandits", "benchmarks.ours:build", "ours", package="vfbandits")
OURS_PURE = Entry(
    "vfbandits, pure NumPy",
    "benchmarks.ours:build",
    "ours",
    package="vfbandits",
    environment=tuple(PURE_NUMPY.items()),
)
PEERS = (
    Entry(
        "contextualbandits",
        "benchmarks.peers.contextualbandits_linreg:build",
        "peer",
        package="contextualbandits",
        note="`linreg`, Sherman-Morrison, float64; LinTS as shipped draws with v²Λ for v²Λ⁻¹",
    ),
    Entry(
        "contextualbandits, right law",
        "benchmarks.peers.contextualbandits_linreg:build_right_law",
        "peer",
        package="contextualbandits",
        algorithms=("LinTS",),
        note="its compiled update, and NumPy's Cholesky draw from v²Λ⁻¹",
    ),
    Entry(
        "coba",
        "benchmarks.peers.coba_learners:build",
        "peer",
        package="coba",
        note="its own shared-θ learners, contexts as lists",
    ),
    Entry(
        "MABWiser",
        "benchmarks.peers.mabwiser_one_arm:build",
        "peer",
        package="mabwiser",
        note="one arm asked for K rows; LinTS draws a new θ for every row",
    ),
    Entry(
        "river",
        "benchmarks.peers.river_regression:build",
        "peer",
        package="river",
        note="Bayesian regression asked row by row; LinTS samples each arm independently",
    ),
    Entry(
        "Vowpal Wabbit",
        "benchmarks.peers.vowpal_wabbit:build",
        "peer",
        package="vowpalwabbit",
        is_same_algorithm=False,
        note="different algorithm (first order: squarecb, bag), for orientation; text parsed",
    ),
)
