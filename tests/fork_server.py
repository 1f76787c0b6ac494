"""Processes of our own programs without the price of their imports: a fork server.

An interpreter that runs ``vfb serve`` spends one to two seconds of processor time on imports, and
the tests start hundreds of them.  ``Popen`` has a server do the imports once; each process is then
a fork of that server: real, with its own pid, memory, sockets and signals.  What a new interpreter
would do differently is left to ``subprocess``: other variables that count during an import, and
the tests whose subject is the start itself.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import io
import json
import os
import resource
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from vfbandits.core.bandit import Bandit
from vfbandits.core.policy.linucb import LinUCB
from vfbandits.core.warm_up import warm_up

PRELOADED = (
    "rich.console",
    "typer._completion_classes",
    "vfbandits.cli.failure",
    "vfbandits.cli.who",
    "vfbandits.core.kernels.bandit",
    "vfbandits.features.sql",
    "vfbandits.features.table_file",
    "vfbandits.http.passive",
    "vfbandits.http.serve",
    "vfbandits.journal.postgres.journal",
    "vfbandits.participant.dealing",
    "vfbandits.participant.run",
    "vfbandits.participant.share_helper",
    "vfbandits.serving.build",
    "vfbandits.serving.share_server",
    "uvloop",
)
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # as ``LocalFederation`` has it
# Libraries read these while they are imported, which the server has done.
READ_AT_IMPORT = (
    *("GRPC", "LANG", "LC_", "LD_", "MKL", "NUMBA", "OMP", "OPENBLAS", "POLARS", "PYTHON", "TZ"),
    "VFBANDITS",
)
# A fork has only the thread that asked for it.  This one waits for files that polars spilt to disk.
SPARE_THREADS = {"polars-ooc-clea"}
LIMITS = tuple(getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_"))
START_S = 120.0
READY = b"ready"
MAX_REQUEST_BYTES = 2**17


class Popen:
    """What the tests use of ``subprocess.Popen``, for ``[sys.executable, ...]``."""

    def __new__(cls, command, *, env=None, **files):
        if _is_forkable(command, env):
            return super().__new__(cls)
        return subprocess.Popen(command, env=env, **files)

    def __init__(self, command, *, stdin=None, stdout=None, stderr=None, env=None, text=False):
        self.args = command
        self.returncode = None
        request = {
            "words": [str(word) for word in command[1:]],
            "env": dict(os.environ if env is None else env),
            "cwd": str(Path.cwd()),
            "limits": {number: resource.getrlimit(number) for number in LIMITS},
        }
        with contextlib.ExitStack() as theirs:
            given = (stdin, stdout, stderr)
            ends = [_ends(number, file, theirs) for number, file in enumerate(given)]
            self._ended, ended = os.pipe()
            theirs.callback(os.close, ended)
            self.pid = server().fork(request, [*(end for _, end in ends), ended])
        kind = "" if text else "b"
        self.stdin, self.stdout, self.stderr = (
            None if end is None else open(end, how + kind)  # noqa: PTH123, SIM115
            for (end, _), how in zip(ends, "wrr", strict=True)
        )

    def poll(self):
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout=None):
        if self.returncode is None:
            ended = select.poll()  # some tests have too many files open for select.select
            ended.register(self._ended, select.POLLIN)
            if not ended.poll(None if timeout is None else 1_000.0 * timeout):
                raise subprocess.TimeoutExpired(self.args, timeout)
            self.returncode = int(os.read(self._ended, 16))
            os.close(self._ended)
        return self.returncode

    def communicate(self, timeout=None):
        if self.stdin is not None:
            self.stdin.close()
        with ThreadPoolExecutor(2) as pool:
            pipes = (self.stdout, self.stderr)
            said = [None if pipe is None else pool.submit(_read_all, pipe) for pipe in pipes]
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()  # which ends the reading too
                raise
            return tuple(None if part is None else part.result() for part in said)

    def send_signal(self, number):
        # The server may have taken note of its end, and not have told us yet.
        with contextlib.suppress(ProcessLookupError):
            if self.poll() is None:
                os.kill(self.pid, number)

    def terminate(self):
        self.send_signal(signal.SIGTERM)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None:
                pipe.close()
        self.wait()


def _read_all(pipe):
    with pipe:
        return pipe.read()


def run(command, *, check, capture_output=False, text=False, timeout=None, env=None):
    """``subprocess.run``."""
    pipe = subprocess.PIPE if capture_output else None
    with Popen(command, stdout=pipe, stderr=pipe, env=env, text=text) as process:
        said = process.communicate(timeout)
    if check and process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, *said)
    return subprocess.CompletedProcess(command, process.returncode, *said)


def _is_forkable(command, env):
    if sys.platform != "linux" or not server().is_ready:
        return False
    env = os.environ if env is None else env
    names = {name for name in {*env, *server().env} if name.startswith(READ_AT_IMPORT)}
    return str(command[0]) == sys.executable and all(
        env.get(name, ONE_THREAD.get(name)) == server().env.get(name) for name in names
    )


def _ends(number, file, theirs):
    """Our end of a pipe, or None; and the descriptor for the process."""
    if file is None:
        return None, number
    if file == subprocess.DEVNULL:
        end = os.open(os.devnull, os.O_RDWR)
        theirs.callback(os.close, end)
        return None, end
    if file != subprocess.PIPE:
        return None, file.fileno()
    reads, writes = os.pipe()
    ours, end = (writes, reads) if number == 0 else (reads, writes)
    theirs.callback(os.close, end)
    return ours, end


class Server:
    """Our side of the server, which is a process of its own."""

    def __init__(self):
        self.env = {**os.environ, **ONE_THREAD}
        without_threads = {"_RJEM_MALLOC_CONF": "background_thread:false"}  # of polars' allocator
        self._lock = threading.Lock()
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env={**self.env, **without_threads},
                process_group=0,  # a Ctrl-C is for the tests, which end it
            )
        self._line.settimeout(START_S)
        atexit.register(self._end)

    @functools.cached_property
    def is_ready(self):
        """Whether it can fork; otherwise, with other versions of libraries, new processes do."""
        with self._lock:
            return self._line.recv(16) == READY

    def fork(self, request, files):
        """Have a process run; returns its pid."""
        with self._lock:
            socket.send_fds(self._line, [json.dumps(request).encode()], files)
            return int(self._line.recv(16))

    def _end(self):
        self._line.close()
        self._process.wait()


@functools.cache
def server():
    """The server of these tests."""
    return Server()


# --- the server's own process ---------------------------------------------------------------------


def serve(line):
    """Fork a process for each request; returns only in such a process: the words it runs."""
    running = {}  # what to write the exit code to, by pid
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes)
    while True:
        ready, _, _ = select.select([line, woken], [], [])
        if woken in ready:
            os.read(woken, 4_096)
            _report(running)
        if line not in ready:
            continue
        message, files, _, _ = socket.recv_fds(line, MAX_REQUEST_BYTES, 4)
        if not message:
            sys.exit()
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for one in (line.detach(), woken, wakes, *running.values()):
                os.close(one)
            return _become(json.loads(message), files)
        *standard, running[pid] = files
        for one in standard:
            os.close(one)
        line.send(str(pid).encode())


def _report(running):
    """Tell how the processes ended that have ended."""
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        ended = running.pop(pid)
        with contextlib.suppress(BrokenPipeError):  # nobody asks any more
            os.write(ended, str(os.waitstatus_to_exitcode(status)).encode())
        os.close(ended)


def _become(request, files):
    *standard, ended = files
    os.close(ended)
    for number, one in enumerate(standard):
        os.dup2(one, number)
        os.close(one)
    _open_standard_files()
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    for limit, values in request["limits"].items():
        resource.setrlimit(int(limit), values)
    return request["words"]


def _open_standard_files():
    """Those of the server remember what kind of file they were."""
    is_unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    for number, (name, mode) in enumerate({"stdin": "rb", "stdout": "wb", "stderr": "wb"}.items()):
        is_raw = is_unbuffered and number > 0
        file = open(number, mode, buffering=0 if is_raw else -1, closefd=False)  # noqa: SIM115
        text = io.TextIOWrapper(
            file,
            encoding=getattr(sys, name).encoding,
            errors=getattr(sys, name).errors,
            line_buffering=not is_raw and (number == 2 or file.isatty()),
            write_through=is_raw,
        )
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)


def interpret(words):
    """What the interpreter does with these words: ``-m module``, ``-c code``, or a file."""
    first, *rest = words
    if first == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path[0] = ""
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102
    elif first == "-m":
        sys.argv = ["-m", *rest[1:]]
        sys.path[0] = str(Path.cwd())
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        sys.path[0] = str(Path(first).parent)
        runpy.run_path(first, run_name="__main__")


def _other_threads():
    tasks = Path("/proc/self/task")
    return {(task / "comm").read_text().strip() for task in tasks.iterdir()} - {
        Path("/proc/self/comm").read_text().strip()
    }


def main():
    with socket.socket(fileno=int(sys.argv[1])) as line:
        for name in PRELOADED:
            importlib.import_module(name)
        warm_up(Bandit(LinUCB(), dim=1))  # loads the compiled loops
        others = _other_threads() - SPARE_THREADS
        if others:
            print(f"no fork server: a fork would lose these threads: {others}", file=sys.stderr)
            return
        line.send(READY)
        gc.freeze()  # what is here stays, and its pages stay shared
        words = serve(line)
    interpret(words)


if __name__ == "__main__":
    main()
