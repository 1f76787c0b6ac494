"""Replicas, trainers and a passive participant as processes, on a database of their own."""

import os
import secrets
import signal
import sys
import time

import fork_server
import httpx2
import psycopg
from http_world import HttpWorld
from journals import postgres_url, query
from ports import free_port

from vfbandits.campaign.model import Model, fold
from vfbandits.journal.crypto import read_key
from vfbandits.journal.postgres.reader import PostgresReader

READY_S = 60.0
VARIABLE = "VFB_SCALE_LOG"


class ScaleWorld(HttpWorld):
    """``start("t1", "trainer")`` starts a process with a configuration of its own."""

    def __init__(self, folder, *, key=False, tables="", top=""):
        self.database = f"scale_{secrets.token_hex(4)}"
        query(f"CREATE DATABASE {self.database}")
        self.target = postgres_url().rsplit("/", 1)[0] + f"/{self.database}"
        top = f'journal_target = "env:{VARIABLE}"\n{top}'
        self.key = None
        if key:
            path = folder / "journal.key"
            path.write_text(secrets.token_hex(32))
            path.chmod(0o600)
            self.key, top = read_key(path), f'journal_key = "{path}"\n{top}'
        super().__init__(folder, tables=tables, top=top)
        self.processes, self.ports = {}, {}

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for name in list(self.processes):
            self.kill(name)
        self.local.stop_all()

    def config_of(self, name, **changes):
        path = self.local.config("shop").with_name(f"{name}.toml")
        port = self.ports.setdefault(name, free_port())
        text = self.local.config("shop").read_text()
        text = text.replace(f"127.0.0.1:{self.http_port}", f"127.0.0.1:{port}")
        for key, value in changes.items():
            text = f'{key} = "{value}"\n{text}'
        path.write_text(text)
        return path

    def start(self, *names_and_roles, **changes):
        """Start processes, without waiting until they are ready."""
        for name, role in names_and_roles:
            log = self.log_path(name).open("ab")
            self.processes[name] = fork_server.Popen(
                [sys.executable, "-m", "vfbandits.cli.serve", "active", "--role", role,
                 "--config", str(self.config_of(name, **changes))],
                stdout=log,
                stderr=log,
                env={**os.environ, VARIABLE: self.target, **fork_server.ONE_THREAD},
            )  # fmt: skip
            log.close()

    def log_path(self, name):
        return self.local.folder / f"{name}.log"

    def kill(self, name, how=signal.SIGKILL):
        process = self.processes.pop(name)
        process.send_signal(how)
        return process.wait(timeout=30.0)

    def client_of(self, name):
        return httpx2.Client(base_url=f"http://127.0.0.1:{self.ports[name]}", timeout=15.0)

    def readiness(self, name):
        """Status and reasons of /readyz; None while nobody listens."""
        try:
            with self.client_of(name) as client:
                answer = client.get("/readyz")
        except httpx2.TransportError:
            return None
        return answer.status_code, answer.json().get("reasons", [])

    def is_ready(self, name):
        return (self.readiness(name) or [0])[0] == 200

    def leads_and_stands_by(self, *names):
        """The trainer that leads now, and the other one."""
        self.wait(lambda: sum(map(self.is_ready, names)) == 1, "one leader")
        leader = next(name for name in names if self.is_ready(name))
        return leader, next(name for name in names if name != leader)

    def wait(self, is_so, what):
        limit = time.monotonic() + READY_S
        while not is_so():
            if time.monotonic() > limit:
                logs = {name: self.log_path(name).read_text()[-1_500:] for name in self.ports}
                raise TimeoutError(f"{what}: {logs}")
            time.sleep(0.02)

    def wait_ready(self, *names):
        for name in names:
            self.wait(lambda name=name: self.is_ready(name), f"{name} ready")

    def wait_connected(self, name, *participants):
        with self.client_of(name) as client:

            def is_so():
                seen = client.get("/v1/model").json().get("participants", [])
                return {one["name"] for one in seen if one["connected"]} == {"shop", *participants}

            self.wait(is_so, "participants connected")

    def reader(self):
        return PostgresReader(self.target, key=self.key)

    def events(self):
        reader = self.reader()
        events = list(reader.read())
        reader.close()
        return events

    def folded(self):
        """The model from scratch: the first snapshot and all events."""
        reader = self.reader()
        model = Model.restore(0, reader.load_snapshot(0))
        folded = fold(reader.read(), model)
        reader.close()
        return folded

    def waiting(self):
        with_rows = "SELECT count(*) FROM vfb_inbox WHERE taken IS NULL"
        return self.query(with_rows)[0][0]

    def query(self, sql, *values):
        with psycopg.connect(self.target, autocommit=True) as connection:
            return connection.execute(sql, values).fetchall()
