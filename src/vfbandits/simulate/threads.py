"""One BLAS thread while a run lasts.

NumPy and SciPy each bring a pool of threads, and two pools that take turns cost more than they
give at the sizes of a simulation.  With one thread, sums are also made in the same order each time.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit every BLAS that is loaded to one thread, within a block."""
    with threadpool_limits(limits=1):
        yield
