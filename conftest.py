"""The Python in README and docs runs as tests."""

import os

import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

# Before NumPy is imported: workers share the processors, and where a second thread of BLAS has to
# wait for one, it spins.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()], patterns=["README.md", "docs/*.md"]
).pytest()

# Tracing makes Python code slower by a half: it is on where the bound on coverage is earned.
COVERED = (
    *("tests/campaign/", "tests/contracts/", "tests/core/", "tests/journal/", "tests/privacy/"),
    *("tests/protocol/", "tests/serving/", "src/vfbandits/core/", "src/vfbandits/protocol/"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Documents first, and coverage paused where it is not needed.

    An example needs those before it.  At the end of a parallel run an idle worker takes tests over
    from another, and would tear a document apart.
    """
    items.sort(key=lambda item: ".md::" not in item.nodeid)
    for item in items:
        if not item.nodeid.startswith(COVERED):
            item.add_marker("no_cover")
