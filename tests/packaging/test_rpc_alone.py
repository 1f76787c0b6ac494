"""Services that have only the extra ``rpc``: nothing that they import is of another extra."""

import subprocess
import sys

import pytest

WITHOUT = """
import sys
from vfbandits.extras import MODULES
of_rpc = MODULES["rpc"]
for name in {name for names in MODULES.values() for name in names} - {*of_rpc}:
    sys.modules[name] = None  # so that its import fails
import %s
"""


@pytest.mark.parametrize(
    "module",
    [
        "vfbandits.serving.build",
        "vfbandits.participant.run",
        "vfbandits.admin.mask_change",
        "vfbandits.cli.serve",
    ],
)
def test_services_import_nothing_of_other_extras(module):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT % module],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
