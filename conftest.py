"""The Python in README and docs runs as tests."""

import os

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

# Before NumPy is imported: workers share the processors, and where a second thread of BLAS has to
# wait for one, it spins.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()], patterns=["README.md", "docs/*.md"]
).pytest()
