"""``make test`` runs few failed tests once more, alone, and names those that pass then."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "second_chance.py"
TESTS_FAILED = 1

PASSES = "def test_passes():\n    pass\n"
FAILS = "def test_fails():\n    assert False\n"
FAILS_ONCE = """
from pathlib import Path

def test_fails_once():
    mark = Path(__file__).with_name("ran")
    is_first = not mark.exists()
    mark.touch()
    assert not is_first
"""


@pytest.fixture
def run(tmp_path):
    """Run the script over a file of tests; returns its exit code and what it printed."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    def run(*tests):
        (tmp_path / "test_few.py").write_text("\n".join(tests))
        done = subprocess.run(
            [sys.executable, SCRIPT, "-p", "xdist", "-n", "1", "--", "-q", "-rN"],
            cwd=tmp_path,
            env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    return run


def test_a_test_that_fails_once_passes_and_is_named_at_the_end(run):
    code, said = run(PASSES, FAILS_ONCE)
    assert code == 0
    assert "1 failed, 1 passed" in said
    assert "1 test failed and runs once more, alone" in said
    *_, last, _, _ = said.split("\n")[:-1]
    assert last == "1 test passed only when run alone: test_few.py::test_fails_once"


def test_a_document_runs_again_as_a_whole(run, tmp_path):
    conftest = Path(__file__).parents[2] / "conftest.py"
    (tmp_path / "conftest.py").write_text(conftest.read_text())
    block = "```python\n{}\n```\n"
    fails_once = FAILS_ONCE.replace("__file__", "'x'") + "\ntest_fails_once()\nassert one == 1"
    (tmp_path / "README.md").write_text(block.format("one = 1") + block.format(fails_once))
    code, said = run(PASSES)
    assert code == 0, said
    assert "1 test passed only when run alone: README.md::line:4,column:1" in said
    code, said = run(FAILS)
    assert code == TESTS_FAILED


def test_a_test_that_fails_twice_fails(run):
    code, said = run(PASSES, FAILS_ONCE, FAILS)
    assert code == TESTS_FAILED
    assert "2 failed, 1 passed" in said
    assert "1 failed, 1 passed" in said  # in the second run
    assert "passed only" not in said


def test_many_failures_get_no_second_run(run):
    code, said = run(*(FAILS.replace("fails", f"fails_{n}") for n in range(6)), FAILS_ONCE)
    assert code == TESTS_FAILED
    assert "7 failed" in said
    assert "once more" not in said


@pytest.mark.parametrize("broken", ["import a_module_that_is_not_there", "import os; os._exit(9)"])
def test_a_file_that_cannot_be_imported_gets_no_second_run(run, broken):
    code, said = run(PASSES, broken)
    assert code != 0
    assert "once more" not in said


def test_without_a_failure_nothing_is_said(run):
    code, said = run(PASSES)
    assert code == 0
    assert "!" not in said
