"""Connections to the active participant, by a configuration file."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from vfbandits.core.snapshot import Record
from vfbandits.errors import ConfigError, SnapshotError, WireError
from vfbandits.pki import Identity, load_roster
from vfbandits.protocol.application import StatusRequest
from vfbandits.protocol.roster import Roster
from vfbandits.settings.services import ParticipantConfig, load_client
from vfbandits.transport.rpc.application import ApplicationClient
from vfbandits.transport.rpc.tls import TlsFiles, host_name

ANSWER_S = 10.0


@dataclass(frozen=True, slots=True, eq=False)
class Session:
    """An open connection, with its owner's configuration and roster."""

    place: ParticipantConfig
    roster: Roster
    client: ApplicationClient = field(repr=False)

    async def status(self, *, timeout_s: float = ANSWER_S) -> dict[str, object]:
        """The status of the federation, as the active participant reports it."""
        reply = await self.client.status(StatusRequest(), timeout_s=timeout_s)
        try:
            document = json.loads(reply.document)
        except ValueError as error:
            raise WireError(f"wanted a status in JSON, got {reply.document[:60]!r}") from error
        if not isinstance(document, dict):
            raise WireError(f"wanted a status table, got {type(document).__name__}")
        return document

    async def in_force(self, *, timeout_s: float = ANSWER_S) -> "InForce":
        """The roster and the epoch that are in force at the active participant."""
        return InForce.of(await self.status(timeout_s=timeout_s))


@dataclass(frozen=True, slots=True)
class InForce:
    """Number and digest of the roster, and the mask epoch, that the active participant has."""

    number: int
    digest: str
    epoch: int

    @classmethod
    def of(cls, document: dict[str, object]) -> "InForce":
        """From a status document."""
        record = Record(document)
        try:
            roster = record.child("roster")
            return cls(roster.integer("number"), roster.text("digest"), record.integer("epoch"))
        except SnapshotError as error:
            raise WireError(f"the status must have a roster and an epoch: {error}") from error


@asynccontextmanager
async def connect(config: Path, *, roles: Sequence[str]) -> AsyncIterator[Session]:
    """A session for the member whose file this is, if it has one of these roles."""
    place = load_client(config)
    if place.role not in roles:
        raise ConfigError(
            f"{config.name}: wanted the file of role {' or '.join(roles)}, got {place.role!r}"
        )
    identity = Identity.load(place.identity, place.name)
    roster = load_roster(place.roster, identity.authority_path)
    files = TlsFiles(identity.certificate_path, identity.key_path, identity.authority_path)
    client = ApplicationClient(
        place.address,
        tls=None if place.insecure else files,
        name=place.name,
        role=place.role,
        server_name=host_name(roster.active.name, roster.federation),
    )
    try:
        yield Session(place, roster, client)
    finally:
        await client.close()
