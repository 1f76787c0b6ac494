"""What figures were made on; without it, times mean nothing."""

import os
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("vfbandits", "numpy", "scipy", "numba", "matplotlib")


@cache
def machine_line() -> str:
    """Processor, cores, memory and system, in one line."""
    return f"{_processor()}, {os.cpu_count()} cores{_memory()}, {platform.system()}"


def versions_line() -> str:
    """Python and the packages that count, in one line."""
    found = [f"Python {platform.python_version()}"]
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"{package} absent")
    return ", ".join(found)


def _processor() -> str:
    """From /proc/cpuinfo on Linux, elsewhere from ``platform``."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory() -> str:
    """Empty where the system does not report it."""
    if "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", {}):
        return ""
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f", {size / 2**30:.0f} GiB"
