"""A whole federation on this machine: real processes, certificates and sockets.

For ``vfb demo``, for benchmarks, and for tests that kill and freeze what they start.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from vfbandits.admin.federation_files import ROSTER, make_roster, write_roster
from vfbandits.errors import ConfigError, LinkError
from vfbandits.pki import Identity, approve, create_authority, create_request
from vfbandits.pki.authority import Authority
from vfbandits.pki.documents import Approved
from vfbandits.protocol.identity import GENERATOR
from vfbandits.protocol.mask_generator import MaskGenerator
from vfbandits.protocol.roster import ACTIVE, APPLICATION, OPERATOR, PASSIVE, Roster, Terms
from vfbandits.protocol.signed_roster import sign_roster
from vfbandits.serving.masks import envelope_name

READY_S = 120.0  # of a busy machine; alone it takes a second or two
STOP_S = 10.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What a local federation is made of; the first of ``widths`` is the active participant.

    ``tables`` are added to its file, such as [http].
    """

    widths: Mapping[str, int]
    terms: Terms
    features: Mapping[str, str]
    model: str = 'policy = "linucb"\nbeta = 0.5\nseed = 0\n'
    patience: str = ""
    federation: str = "local"
    journal: bool = True
    insecure: bool = False
    tables: str = ""


class LocalFederation:
    """A federation in one folder; ``with`` starts its processes and ends them.

    ``plan.features`` holds, for each participant, the text of its [features] table; ``program`` is
    the module that a process runs.
    """

    program = "vfbandits.cli.serve"

    def __init__(self, folder: Path, plan: Plan, *, port: int) -> None:
        self.folder = folder
        self.plan = plan
        self.address = f"127.0.0.1:{port}"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._organiser = folder / "organiser"
        create_authority(self._organiser, plan.federation)
        self.authority = Authority.load(self._organiser)
        names = [*plan.widths, "app", "operator"]
        roles = [ACTIVE, *[PASSIVE] * (len(plan.widths) - 1), APPLICATION, OPERATOR]
        self.approved = [self._admit(n, r) for n, r in zip(names, roles, strict=True)]
        if plan.terms.mask == "dense":
            self.approved.append(self._admit("generator", GENERATOR))
            names.append("generator")
        self.roster = make_roster(self.approved, plan.terms, federation=plan.federation)
        for name in names:
            write_roster(self.roster, self.authority, folder / name / ROSTER)
        self.write_configs(names)
        if plan.terms.mask == "dense":
            self.store_envelopes(self.deal(self.roster, 1), 1)

    def __enter__(self) -> "LocalFederation":
        """Start every participant and wait until all are connected."""
        try:
            self.start(*self.plan.widths)
        except BaseException:
            self.stop_all()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End every process that is still there."""
        self.stop_all()

    def _admit(self, name: str, role: str) -> Approved:
        home = self.folder / name / "identity"
        request = create_request(
            home,
            federation=self.plan.federation,
            name=name,
            role=role,
            width=self.plan.widths.get(name, 0),
        )
        return approve(request, self._organiser).approved

    def admit_passive(self, name: str, width: int, features: str) -> Approved:
        """One participant more: identity and configuration; it is not in the roster yet."""
        home = self.folder / name / "identity"
        request = create_request(
            home, federation=self.plan.federation, name=name, role=PASSIVE, width=width
        )
        approved = approve(request, self._organiser).approved
        text = self._common(name, PASSIVE) + f"\n[features]\n{features}\n"
        (self.folder / name / f"{name}.toml").write_text(text, encoding="utf-8")
        return approved

    def config(self, name: str) -> Path:
        """The configuration file of a member."""
        return self.folder / name / f"{name}.toml"

    def identity(self, name: str) -> Identity:
        """The identity of a member."""
        return Identity.load(self.folder / name / "identity", name)

    def write_configs(self, names: list[str]) -> None:
        """A configuration file for each of ``names``."""
        for name in names:
            member = self.roster.find(name)
            role = member.role if member else GENERATOR
            text = self._common(name, role)
            if role == ACTIVE:
                text += f"journal = {str(self.plan.journal).lower()}\n"
                if self.plan.terms.mask == "dense":
                    text += 'envelopes = "envelopes"\n'
                text += f"\n[model]\n{self.plan.model}\n[patience]\n{self.plan.patience}\n"
            if name in self.plan.features:
                text += f"\n[features]\n{self.plan.features[name]}\n"
            if role == ACTIVE:
                text += f"\n{self.plan.tables}"
            self.config(name).write_text(text, encoding="utf-8")

    def _common(self, name: str, role: str) -> str:
        return (
            f'name = "{name}"\nrole = "{role}"\naddress = "{self.address}"\n'
            f"insecure = {str(self.plan.insecure).lower()}\n"
        )

    def deal(self, roster: Roster, epoch: int) -> dict[str, bytes]:
        """Sealed shares of a dense mask, from the federation's generator."""
        signing_key = self.identity("generator").signing_key
        if signing_key is None:
            raise ConfigError("the generator has no signing key")
        return MaskGenerator(signing_key).deal(roster, epoch)

    def store_envelopes(self, envelopes: Mapping[str, bytes], epoch: int) -> None:
        """Put sealed shares where the active participant looks for them."""
        home = self.folder / self.roster.active.name / "envelopes"
        home.mkdir(exist_ok=True)
        for name, envelope in envelopes.items():
            (home / envelope_name(name, epoch)).write_bytes(envelope)

    def sign(self, roster: Roster) -> bytes:
        """A roster with the organiser's signature."""
        return sign_roster(roster, self.authority.private_key)

    def start(self, *names: str, flags: Sequence[str] = ()) -> None:
        """Start processes, all at once, and wait until each says that it is ready."""
        for name in names:
            self.processes[name] = self._launch(name, flags)
        for name in names:
            _wait_for_line(self.processes[name], b"ready", self.log_path(name))

    def _launch(self, name: str, flags: Sequence[str]) -> "subprocess.Popen[bytes]":
        role = "active" if name == self.roster.active.name else "passive"
        with self.log_path(name).open("ab") as log:
            return subprocess.Popen(  # noqa: S603  (our own command)
                [sys.executable, "-m", self.program, role, "--config",
                 str(self.config(name)), *flags],
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            )  # fmt: skip

    def log_path(self, name: str) -> Path:
        """Where a participant's log goes."""
        return self.folder / name / f"{name}.log"

    def events(self, name: str) -> list[dict[str, object]]:
        """A participant's log so far, line by line."""
        lines = self.log_path(name).read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a participant's process."""
        self.processes[name].send_signal(number)

    def kill(self, name: str) -> None:
        """End a process without warning."""
        process = self.processes.pop(name)
        process.kill()
        _wait(process)

    def stop(self, name: str) -> int:
        """Ask a process to end, and wait; returns its exit code."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGCONT)
        process.terminate()
        return _wait(process, timeout_s=STOP_S)

    def stop_all(self) -> None:
        """Passive participants first, so that none is seen to be lost."""
        for name in reversed(list(self.processes)):
            self.stop(name)


def _wait(process: "subprocess.Popen[bytes]", *, timeout_s: float | None = None) -> int:
    """Wait for the end of a process, and force it after ``timeout_s``; returns its exit code."""
    with process:  # closes its pipe
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def _wait_for_line(process: "subprocess.Popen[bytes]", start: bytes, log: Path) -> None:
    """Wait until the process prints a line that starts so."""
    if process.stdout is None:
        raise LinkError("the process has no standard output")
    limit = time.monotonic() + READY_S
    os.set_blocking(process.stdout.fileno(), False)
    seen = b""
    while time.monotonic() < limit:
        chunk = process.stdout.read() or b""
        seen += chunk
        if any(line.startswith(start) for line in seen.splitlines()):
            return
        if process.poll() is not None:
            tail = log.read_text(encoding="utf-8", errors="replace")[-2_000:]
            raise LinkError(f"a process ended with code {process.returncode}:\n{tail}")
        time.sleep(0.01)
    process.kill()
    raise LinkError(f"a process was not ready after {READY_S:g} s; its log is {log}")
