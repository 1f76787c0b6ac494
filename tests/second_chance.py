"""Run pytest; tests that failed run once more, alone: ``second_chance.py -n 3 -- --cov tests``.

Words before ``--`` are for the first run only, which they make parallel.  A few tests that fail
among others and pass alone depended on the speed of the machine: the run passes, and names them.
Many failures, or an end that is not "tests failed", are a failure without a second run.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

MAX_AGAIN = 5
TESTS_FAILED = 1  # of pytest's exit codes
LAST_FAILED = ("--last-failed", "--last-failed-no-failures", "none")


def main(words: list[str]) -> int:
    """The exit code of both runs together."""
    at = words.index("--")
    parallel, always = words[:at], words[at + 1 :]
    with tempfile.TemporaryDirectory() as folder:  # where no earlier run has left its failures
        pytest = [sys.executable, "-m", "pytest", "-o", f"cache_dir={folder}"]
        code = subprocess.run([*pytest, *parallel, *always], check=False).returncode
        failed = _failed(Path(folder))
        is_few = 0 < len(failed) <= MAX_AGAIN and all("::" in name for name in failed)
        if code != TESTS_FAILED or not is_few:  # a name without :: is a file that has no tests
            return code
        _say(f"{_tests(failed)} failed and {_run(failed)} once more, alone")
        if any(word.startswith("--cov") for word in always):
            always.append("--cov-append")
        # An example in a document needs those before it.
        documents = sorted({name.split("::")[0] for name in failed if ".md::" in name})
        again = [*LAST_FAILED, *(f"--ignore={document}" for document in documents)]
        has_others = any(".md::" not in name for name in failed)
        runs = [*([documents] if documents else []), *([again] if has_others else [])]
        codes = [subprocess.run([*pytest, *always, *run], check=False).returncode for run in runs]
        code = next(filter(None, codes), 0)
        passed = [name for name in failed if name not in _failed(Path(folder))]
    if code == 0:
        _say(f"{_tests(passed)} passed only when run alone: {', '.join(passed)}")
    return code


def _failed(folder: Path) -> list[str]:
    found = folder / "v" / "cache" / "lastfailed"
    return sorted(json.loads(found.read_text())) if found.exists() else []


def _tests(names: list[str]) -> str:
    return f"{len(names)} {'test' if len(names) == 1 else 'tests'}"


def _run(names: list[str]) -> str:
    return "runs" if len(names) == 1 else "run"


def _say(what: str) -> None:
    print(f"\n{'!' * 100}\n{what}\n{'!' * 100}\n", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
