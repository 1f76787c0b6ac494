"""A process of the fork server is what a new interpreter would be, but for its imports."""

import os
import resource
import signal
import subprocess
import sys

import fork_server
import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is forked")


def both(*words, **more):
    """What a forked process and a new interpreter print, and how they end."""
    command = [sys.executable, *map(str, words)]
    more = {"capture_output": True, "text": True, **more}
    forked = fork_server.run(command, check=False, **more)
    fresh = subprocess.run(command, check=False, **more)
    assert (forked.returncode, forked.stderr) == (fresh.returncode, fresh.stderr)
    return forked.stdout, fresh.stdout


SHOW = """
import os, resource, sys
print(sys.argv, sys.path[0], os.getcwd(), os.environ["WORD"], __name__)
print(resource.getrlimit(resource.RLIMIT_NOFILE), *(os.fstat(n).st_mode for n in range(3)))
print([(f.encoding, f.errors, f.line_buffering) for f in (sys.stdin, sys.stdout, sys.stderr)])
"""


@pytest.fixture
def few_files():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (500, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.usefixtures("few_files")
@pytest.mark.parametrize("how", ["code", "file", "module"])
def test_arguments_path_folder_environment_limits_and_files_are_those_of_a_new_interpreter(
    tmp_path, monkeypatch, how
):
    (tmp_path / "shown.py").write_text(SHOW)
    monkeypatch.chdir(tmp_path)
    words = {"code": ["-c", SHOW], "file": [tmp_path / "shown.py"], "module": ["-m", "shown"]}[how]
    forked, fresh = both(*words, "a", "--b", env={**os.environ, "WORD": "told"})
    assert forked == fresh
    assert "(500, " in forked


@pytest.mark.parametrize(
    "end", ["sys.exit(3)", "sys.exit('why')", "pass", "os.kill(os.getpid(), 9)"]
)
def test_it_ends_as_a_new_interpreter_does(end):
    both("-c", f"import os, sys; {end}")


def test_an_error_has_a_traceback_and_code_1():
    done = fork_server.run(
        [sys.executable, "-c", "1 / 0"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")
    with pytest.raises(subprocess.CalledProcessError):
        fork_server.run([sys.executable, "-c", "1 / 0"], capture_output=True, check=True)


def test_a_signal_to_one_whose_end_is_not_known_here_yet_is_lost(monkeypatch):
    process = fork_server.Popen([sys.executable, "-c", "pass"])
    process.wait(60)
    with monkeypatch.context() as patch:
        patch.setattr(process, "poll", lambda: None)
        process.kill()
    assert process.returncode == 0


def test_it_reads_answers_and_dies_of_signals():
    program = "for line in iter(input, ''): print('heard', line, flush=True)"
    pipe = subprocess.PIPE
    process = fork_server.Popen(
        [sys.executable, "-c", program], stdin=pipe, stdout=pipe, stderr=pipe, text=True
    )
    with process:
        process.stdin.write("a word\n")
        process.stdin.flush()
        assert process.stdout.readline() == "heard a word\n"
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60.0) == -signal.SIGTERM
        process.kill()  # has no effect


RANDOM = """
import os, random, secrets, uuid
import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
key = ec.generate_private_key(ec.SECP256R1()).private_numbers().private_value
print(random.random(), os.urandom(8).hex(), secrets.token_hex(), sep="|", end="|")
print(uuid.uuid4(), key, np.random.default_rng().random(), sep="|")
"""


def test_no_two_draw_the_same_numbers():
    command = [sys.executable, "-c", RANDOM]
    draws = [
        fork_server.run(command, capture_output=True, text=True, check=True).stdout.split("|")
        for _ in range(2)
    ]
    assert len(draws[0]) == 6
    assert not set(draws[0]) & set(draws[1])


def test_the_imports_are_done_and_what_counts_during_an_import_needs_a_new_interpreter():
    program = "import sys; print('vfbandits.serving.build' in sys.modules)"
    forked, fresh = both("-c", program)
    assert (forked, fresh) == ("True\n", "False\n")
    other = {**os.environ, "VFBANDITS_COMPILED": "0"}
    done = fork_server.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=other
    )
    assert done.stdout == fresh


def test_without_a_fork_server_processes_are_new_ones(monkeypatch):
    class Unusable:
        is_ready = False

    monkeypatch.setattr(fork_server, "server", Unusable)
    with fork_server.Popen([sys.executable, "-c", "print(1)"], stdout=subprocess.PIPE) as process:
        assert isinstance(process, subprocess.Popen)
        assert process.communicate()[0] == b"1\n"
