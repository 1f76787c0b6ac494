"""Engines: where independent tasks of a grid are run.

A task is a picklable value, and a module-level function computes its result from it alone.  So
results do not depend on the engine, on how many processes it has, or on their order.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeAlias, TypeVar

from vfbandits.simulate.steps import counting_into
from vfbandits.simulate.threads import one_thread

Task = TypeVar("Task")
Result = TypeVar("Result")
OnStep: TypeAlias = Callable[[int], None]


class Engine(Protocol):
    """Runs tasks, in parallel where it can."""

    def run(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        *,
        on_step: OnStep | None = None,
    ) -> Iterator[tuple[int, Result]]:
        """Positions of tasks with their results, as tasks finish.

        ``on_step`` is called from time to time with the number of rounds that all tasks have
        ``counted``, if the engine knows it.
        """
        ...


class HereEngine:
    """One task after the other, in this process.

    >>> dict(HereEngine().run(abs, [-1, 2]))
    {0: 1, 1: 2}
    """

    def run(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        *,
        on_step: OnStep | None = None,
    ) -> Iterator[tuple[int, Result]]:
        """In order."""
        total = 0

        def count(number: int) -> None:
            nonlocal total
            total += number
            if on_step is not None:
                on_step(total)

        for position, task in enumerate(tasks):
            with counting_into(count):
                result = in_one_thread(function, task)
            yield position, result


def in_one_thread(function: Callable[[Task], Result], task: Task) -> Result:
    """Run a task as every engine does: sums of several BLAS threads may differ in the last bits."""
    with one_thread():
        return function(task)
