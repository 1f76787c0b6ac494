"""A whole federation on this machine: real processes, certificates and sockets.

For ``vfb demo``, for benchmarks, and for tests that kill and freeze what they start.
"""

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from vfbandits.admin.federation_files import make_roster, write_roster
from vfbandits.admin.kit import ROSTER
from vfbandits.demo.processes import Processes
from vfbandits.errors import ConfigError
from vfbandits.participant.dealing import deal_windows
from vfbandits.pki import Identity, approve, create_authority, create_request
from vfbandits.pki.authority import Authority
from vfbandits.pki.documents import Approved
from vfbandits.protocol.identity import GENERATOR
from vfbandits.protocol.mask_generator import MaskGenerator
from vfbandits.protocol.roster import (
    ACTIVE,
    APPLICATION,
    HELPER,
    OPERATOR,
    PASSIVE,
    Roster,
    Terms,
)
from vfbandits.protocol.signed_roster import sign_roster
from vfbandits.serving.masks import envelope_name


@dataclass(frozen=True, slots=True)
class Plan:
    """The parts of a local federation; the first of ``widths`` is the active participant.

    A helper of secret shares that is not in ``widths`` is a member without features.  ``tables``
    are added to the active participant's file, such as [http]; ``windows`` are dealt for secret
    shares.
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
    windows: int = 16

    @property
    def helpers(self) -> tuple[str, ...]:
        """The helper of secret shares, if it is no participant."""
        rules = self.terms.shares
        return () if rules is None or rules.helper in self.widths else (rules.helper,)


class LocalFederation(Processes):
    """A federation in one folder, with all its files.

    ``plan.features`` holds, for each participant, the text of its [features] table; ``on_window``
    is called with the number of windows that were dealt so far, and ``popen`` starts a process.
    """

    def __init__(
        self,
        folder: Path,
        plan: Plan,
        *,
        port: int,
        on_window: Callable[[int], None] = lambda _: None,
        popen: "Callable[..., subprocess.Popen[bytes]]" = subprocess.Popen,
    ) -> None:
        super().__init__(folder, [*plan.widths, *plan.helpers], popen=popen)
        self.plan = plan
        self.address = f"127.0.0.1:{port}"
        self._organiser = folder / "organiser"
        create_authority(self._organiser, plan.federation)
        self.authority = Authority.load(self._organiser)
        active, *passive = plan.widths
        roles = {
            active: ACTIVE,
            **dict.fromkeys(passive, PASSIVE),
            **dict.fromkeys(plan.helpers, HELPER),
            "app": APPLICATION,
            "operator": OPERATOR,
        }
        names = [*roles]
        self.approved = [self._admit(name, role) for name, role in roles.items()]
        if plan.terms.mask == "dense" or plan.terms.shares is not None:
            self.approved.append(self._admit("generator", GENERATOR))
            names.append("generator")
        self.roster = make_roster(self.approved, plan.terms, federation=plan.federation)
        for name in names:
            write_roster(self.roster, self.authority, folder / name / ROSTER)
        self.write_configs(names)
        if plan.terms.mask == "dense":
            self.store_envelopes(self.deal(self.roster, 1), 1)
        if plan.terms.shares is not None:
            self.deal_shares(plan.windows, on_window=on_window)

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
        """Another participant: identity and configuration; it is not in the roster yet."""
        home = self.folder / name / "identity"
        request = create_request(
            home, federation=self.plan.federation, name=name, role=PASSIVE, width=width
        )
        approved = approve(request, self._organiser).approved
        text = self._common(name, PASSIVE) + f"\n[features]\n{features}\n"
        (self.folder / name / f"{name}.toml").write_text(text, encoding="utf-8")
        return approved

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

    def deal_shares(
        self,
        windows: int,
        *,
        epoch: int = 1,
        before: Roster | None = None,
        on_window: Callable[[int], None] = lambda _: None,
    ) -> dict[str, bytes]:
        """Deal ``windows`` windows of secret shares, and the first time the secrets; returns these.

        Files are copied to where their owners look for them, as an operator would.
        """
        out = self.folder / "generator" / "dealt"
        key_dir = self.folder / "generator" / "identity"
        dealt = deal_windows(
            self.roster,
            key_dir=key_dir,
            epoch=epoch,
            out=out,
            windows=windows,
            before=before,
            on_step=on_window,
        )
        envelopes = {path.name.rsplit(".epoch-")[0]: path.read_bytes() for path in dealt.secrets}
        for name in {*self.participants, *self.roster.split.names}:
            home = self.folder / name / "dealt"
            home.mkdir(exist_ok=True, mode=0o700)
            for path in out.glob(f"{name}.epoch-*"):
                path.replace(home / path.name)
        return envelopes

    def store_envelopes(self, envelopes: Mapping[str, bytes], epoch: int) -> None:
        """Put sealed shares where the active participant looks for them."""
        home = self.folder / self.roster.active.name / "envelopes"
        home.mkdir(exist_ok=True)
        for name, envelope in envelopes.items():
            (home / envelope_name(name, epoch)).write_bytes(envelope)

    def sign(self, roster: Roster) -> bytes:
        """A roster with the organiser's signature."""
        return sign_roster(roster, self.authority.private_key)
