"""Runs one end of an alignment from a configuration file."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from vfbandits.admin.align.psi import Cores
from vfbandits.admin.align.sessions import Alignment, AlignmentService, align, common_to_all
from vfbandits.admin.align.users import UserList, read_users, write_users
from vfbandits.errors import ConfigError, LinkError
from vfbandits.features.open import open_features
from vfbandits.pki import Identity, load_roster
from vfbandits.pki.member import own_member, sealing_key_of, server_name, tls_of
from vfbandits.protocol.pseudonyms import pseudonyms_between
from vfbandits.protocol.roster import ACTIVE, PASSIVE, Roster
from vfbandits.settings.services import ParticipantConfig, load_active, load_passive, load_place
from vfbandits.transport.rpc.alignment import AlignmentClient
from vfbandits.transport.rpc.dialling import Route
from vfbandits.transport.rpc.server import RpcListener

GRACE_S = 5.0
RETRY_S = 0.5
ALL = "all-participants"


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A participant with its users, before an alignment."""

    config: ParticipantConfig
    roster: Roster
    users: UserList
    sealing_key: X25519PrivateKey = field(repr=False)

    @classmethod
    def load(cls, path: Path, *, users: Path | None) -> "Place":
        """From a configuration file; users from its [features], or from the file ``users``."""
        config = load_place(path)
        if config.role not in (ACTIVE, PASSIVE):
            raise ConfigError(f"{path.name}: wanted the file of a participant, got {config.role!r}")
        identity = Identity.load(config.identity, config.name)
        roster = load_roster(config.roster, identity.authority_path)
        own_member(config, roster)
        found = _users_of(path, config.role) if users is None else read_users(users)
        return cls(config, roster, found, sealing_key_of(identity))

    @property
    def is_active(self) -> bool:
        """Whether this is the active participant, which the others call."""
        return self.config.role == ACTIVE


def _users_of(path: Path, role: str) -> UserList:
    settings = load_active(path) if role == ACTIVE else load_passive(path)
    if settings.features is None:
        raise ConfigError(f"{path.name} has no [features]: name a file of users with --users")
    with open_features(settings.features) as features:
        # With an arm in the key a user has a row for each arm, which is no repetition.
        return UserList.of(dict.fromkeys(features.users()))


async def align_as_active(
    place: Place,
    *,
    wait_s: float,
    on_ready: Callable[[int], None],
    on_step: Callable[[str, int, int], None],
) -> list[Alignment]:
    """Wait for every passive participant; LinkError if one has not finished in time."""
    roster, own = place.roster, place.config.name
    names = {
        member.name: pseudonyms_between(roster, own, member.name, place.sealing_key)
        for member in roster.passive
    }
    cores = Cores()
    users = place.users.users
    service = AlignmentService(roster, users, names=names, cores=cores, on_step=on_step)
    listener = RpcListener(place.config.address, tls=tls_of(place.config), alignment=service)
    on_ready(await listener.start(None))
    try:
        async with asyncio.timeout(wait_s):
            await service.wait()
    except TimeoutError:
        away = ", ".join(service.waiting_for)
        raise LinkError(
            f"wanted all alignments to finish within {wait_s:g} s, got no result with {away}"
        ) from None
    finally:
        await listener.stop(grace_s=GRACE_S)
        cores.close()
    return [service.results[name] for name in names]


async def align_as_passive(
    place: Place,
    *,
    wait_s: float,
    on_step: Callable[[int, int], None],
    on_wait: Callable[[str], None],
) -> Alignment:
    """Ask the active participant, and wait until it listens; ``on_wait`` gets the reason."""
    config, roster = place.config, place.roster
    names = pseudonyms_between(roster, config.name, roster.active.name, place.sealing_key)
    route = Route(config.address, tls_of(config), config.name, config.role, server_name(roster))
    asks, cores = AlignmentClient(route), Cores()
    loop = asyncio.get_running_loop()
    end = loop.time() + wait_s
    try:
        while True:
            try:
                return await align(
                    asks,
                    place.users.users,
                    roster=roster,
                    names=names,
                    cores=cores,
                    on_step=on_step,
                )
            except LinkError as error:
                if loop.time() > end:
                    raise
                on_wait(str(error))
                await asyncio.sleep(RETRY_S)  # the next attempt starts over, with new keys
    finally:
        await asks.close()
        cores.close()


def write_results(folder: Path, results: list[Alignment]) -> list[Path]:
    """A file of common users for each peer, and for several peers one of users common to all."""
    lists = {result.peer: result.common for result in results}
    if len(results) > 1:
        lists[ALL] = common_to_all(results)
    paths = []
    for name, users in lists.items():
        path = folder / f"common-with-{name}.txt"
        write_users(path, users)
        paths.append(path)
    return paths
