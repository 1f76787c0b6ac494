"""Benchmarks that ``make bench`` runs refuse what they do not know, before they measure."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = re.findall(r"-m (benchmarks\.\w+)", (ROOT / "Makefile").read_text("utf-8"))


@pytest.mark.parametrize("module", MODULES)
def test_an_unknown_option_is_refused(module):
    done = subprocess.run(
        [sys.executable, "-m", module, "--agianst", "elsewhere"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "unrecognized arguments: --agianst" in done.stderr
