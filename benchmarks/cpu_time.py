"""CPU time of other processes, over all of their threads, as the kernel counts it."""

from pathlib import Path

NANO = 1e-9


def cpu_s(pid: int) -> float | None:
    """Seconds that its threads have run; None where the kernel does not tell.

    >>> import os
    >>> before = cpu_s(os.getpid())
    >>> before is None or before > 0.0
    True
    """
    total = 0
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            total += int((thread / "schedstat").read_text().split()[0])
    except OSError:
        return None
    return NANO * total


def family_cpu_s(pid: int) -> float | None:
    """The same of a process and of those that it started, which still run."""
    seconds = [cpu_s(each) for each in (pid, *_children(pid))]
    known = [one for one in seconds if one is not None]
    return sum(known) if len(known) == len(seconds) else None


def _children(pid: int) -> list[int]:
    """Processes that any of its threads started; none where the kernel does not tell."""
    try:
        threads = [*Path(f"/proc/{pid}/task").iterdir()]
        return [
            int(child) for thread in threads for child in (thread / "children").read_text().split()
        ]
    except OSError:
        return []
