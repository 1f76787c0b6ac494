"""Both ends of an alignment: the passive participant asks, the active one answers."""

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from vfbandits.admin.align.psi import Cores, Receiver, Sender
from vfbandits.errors import HandshakeError, WireError
from vfbandits.protocol.alignment import (
    MAX_ELEMENTS,
    AlignBegin,
    AlignBegun,
    AlignCommon,
    AlignElements,
    AlignReply,
    AlignTold,
)
from vfbandits.protocol.handshake import refuse_unless_allowed
from vfbandits.protocol.pseudonyms import Pseudonyms
from vfbandits.protocol.roster import PASSIVE, Roster
from vfbandits.transport.channel import Peer

CHUNK: Final = 2_000  # users in one exchange
CALL_S: Final = 300.0  # for one exchange, on a busy machine


class Asks(Protocol):
    """How a passive participant asks the active one."""

    async def begin(self, request: AlignBegin, *, timeout_s: float) -> AlignBegun:
        """Begin."""
        ...

    async def exchange(self, request: AlignElements, *, timeout_s: float) -> AlignReply:
        """Exchange the next elements."""
        ...

    async def tell(self, request: AlignCommon, *, timeout_s: float) -> AlignTold:
        """Report common users."""
        ...


Step = Callable[[int, int], None]
"""Called with how many elements of both ends are done, and how many there are."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """The result for one participant: the common users, sorted, and a digest of them.

    Both ends have the same digest; it is of pseudonyms, and reveals nothing to others.
    """

    peer: str
    n_own: int
    n_theirs: int
    common: tuple[str, ...] = field(repr=False)
    digest: str


async def align(
    asks: Asks,
    users: tuple[str, ...],
    *,
    roster: Roster,
    names: Pseudonyms,
    cores: Cores,
    on_step: Step = lambda done, total: None,
) -> Alignment:
    """Find the users in common with the active participant; for a passive one."""
    begun = await asks.begin(AlignBegin(roster.digest, len(users)), timeout_s=CALL_S)
    receiver = Receiver(cores)
    total = len(users) + begun.n_users
    covered: list[bytes] = []
    theirs: list[bytes] = []
    blinded = await asyncio.to_thread(receiver.blind, users[:CHUNK])
    while len(covered) < len(users) or len(theirs) < begun.n_users:
        start = len(covered)
        after = users[start + len(blinded) : start + len(blinded) + CHUNK]
        request = AlignElements(start, tuple(blinded))
        # The next batch is blinded while this one is exchanged.
        reply, following = await asyncio.gather(
            asks.exchange(request, timeout_s=CALL_S), asyncio.to_thread(receiver.blind, after)
        )
        _check_reply(reply, len(blinded), begun.n_users - len(theirs))
        covered += reply.elements
        theirs += reply.own
        blinded = following
        on_step(len(covered) + len(theirs), total)
    places = await asyncio.to_thread(receiver.common, covered, theirs)
    common = sorted(users[place] for place in places)
    digest = await _tell(asks, common, names)
    return Alignment(roster.active.name, len(users), begun.n_users, tuple(common), digest.hex())


def _check_reply(reply: AlignReply, sent: int, left: int) -> None:
    """Refuse a reply with which the exchange would be wrong or never end."""
    if len(reply.elements) != sent:
        raise WireError(f"elements: wanted {sent}, as were sent, got {len(reply.elements)}")
    if len(reply.own) > left or not (reply.own or sent):
        raise WireError(f"own elements: wanted 1 to {left} more, got {len(reply.own)}")


async def _tell(asks: Asks, common: list[str], names: Pseudonyms) -> bytes:
    """Report the common users to the other end; returns the digest that both have."""
    pseudonyms = sorted(map(names.digest, common))
    digest = digest_of(pseudonyms)
    starts = range(0, len(pseudonyms), MAX_ELEMENTS)
    parts = [pseudonyms[start : start + MAX_ELEMENTS] for start in starts]
    for part in parts[:-1]:
        await asks.tell(AlignCommon(tuple(part)), timeout_s=CALL_S)
    last = tuple(parts[-1]) if parts else ()
    answer = await asks.tell(AlignCommon(last, digest), timeout_s=CALL_S)
    if (answer.digest, answer.n_common) != (digest, len(common)):
        raise WireError(
            f"both ends must have the same {len(common)} common users, of digest "
            f"{digest.hex()[:12]}…, got {answer.n_common} of digest {answer.digest.hex()[:12]}…"
        )
    return digest


def digest_of(pseudonyms: Iterable[bytes]) -> bytes:
    """A digest of pseudonyms, independent of their order.

    >>> digest_of([b"a", b"b"]) == digest_of([b"b", b"a"])
    True
    """
    return hashlib.sha256(b"".join(sorted(pseudonyms))).digest()


@dataclass(slots=True, eq=False)
class _Run:
    """The state of an alignment with one passive participant."""

    n_theirs: int
    names: Pseudonyms
    own: list[str] = field(repr=False)
    sender: Sender = field(repr=False)
    by_pseudonym: dict[bytes, str] = field(repr=False)
    n_came: int = 0
    n_sent: int = 0
    common: dict[bytes, str] = field(default_factory=dict, repr=False)

    @property
    def is_exchanged(self) -> bool:
        return self.n_came == self.n_theirs and self.n_sent == len(self.own)


class AlignmentService:
    """The active participant's end, for all passive ones of ``names``; each may begin again.

    ``names`` has the pseudonyms by which common users are named to each participant.
    """

    def __init__(
        self,
        roster: Roster,
        users: tuple[str, ...],
        *,
        names: Mapping[str, Pseudonyms],
        cores: Cores,
        on_step: Callable[[str, int, int], None] = lambda peer, done, total: None,
    ) -> None:
        self._roster = roster
        self._users = users
        self._names = names
        self._cores = cores
        self._on_step = on_step
        self._runs: dict[str, _Run] = {}
        self.results: dict[str, Alignment] = {}
        self._changed = asyncio.Event()

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """Participants whose alignment has not finished."""
        return tuple(name for name in self._names if name not in self.results)

    async def wait(self) -> None:
        """Wait until all alignments have finished."""
        while self.waiting_for:
            await self._changed.wait()
            self._changed.clear()

    async def begin(self, peer: Peer, request: AlignBegin) -> AlignBegun:
        """Begin, or begin again."""
        name = self._allowed(peer)
        if request.roster != self._roster.digest:
            raise HandshakeError(
                f"roster: the active participant has {self._roster.digest!r}, {name!r} has "
                f"{request.roster[:64]!r}"
            )
        own = [*self._users]
        secrets.SystemRandom().shuffle(
            own
        )  # otherwise the exchange would reveal the order of storage
        names = self._names[name]
        index = await asyncio.to_thread(lambda: {names.digest(user): user for user in own})
        self.results.pop(name, None)
        self._runs[name] = _Run(request.n_users, names, own, Sender(self._cores), index)
        return AlignBegun(len(own))

    async def exchange(self, peer: Peer, request: AlignElements) -> AlignReply:
        """Encrypt elements with the own key too, and send the next own ones."""
        name = self._allowed(peer)
        run = self._run_of(name)
        count = len(request.elements)
        if request.start != run.n_came or run.n_came + count > run.n_theirs:
            raise WireError(
                f"elements: wanted those from {run.n_came} of {run.n_theirs}, got {count} from "
                f"{request.start}"
            )
        own = run.own[run.n_sent : run.n_sent + CHUNK]
        run.n_came, run.n_sent = run.n_came + count, run.n_sent + len(own)
        covered = await asyncio.to_thread(run.sender.cover, request.elements)
        sent = await asyncio.to_thread(run.sender.own, own)
        self._on_step(name, run.n_came + run.n_sent, run.n_theirs + len(run.own))
        return AlignReply(tuple(covered), tuple(sent))

    async def tell(self, peer: Peer, request: AlignCommon) -> AlignTold:
        """Receive common users; the last part ends the alignment."""
        name = self._allowed(peer)
        run = self._run_of(name)
        if not run.is_exchanged:
            raise WireError("common users: wanted all elements before, got some of them")
        found = {one: run.by_pseudonym.get(one) for one in request.pseudonyms}
        strange = sum(user is None for user in found.values())
        if strange:
            raise WireError(f"common users: wanted users of both, got {strange} others")
        run.common.update({one: user for one, user in found.items() if user is not None})
        if not request.digest:
            return AlignTold(len(run.common))
        digest = digest_of(run.common)
        if digest == request.digest:
            common = tuple(sorted(run.common.values()))
            self.results[name] = Alignment(name, len(run.own), run.n_theirs, common, digest.hex())
            self._changed.set()
        del self._runs[name]
        return AlignTold(len(run.common), digest)

    def _allowed(self, peer: Peer) -> str:
        member = refuse_unless_allowed(
            self._roster,
            name=peer.name,
            role=peer.role,
            certificate=peer.certificate,
            wanted=(PASSIVE,),
        )
        if member.name not in self._names:
            raise HandshakeError(
                f"wanted one of {', '.join(self._names)} for this alignment, got {member.name!r}"
            )
        return member.name

    def _run_of(self, name: str) -> _Run:
        run = self._runs.get(name)
        if run is None:
            raise WireError(f"wanted an alignment that {name!r} has begun, got none")
        return run


def common_to_all(results: Collection[Alignment]) -> tuple[str, ...]:
    """The users that are in every alignment, sorted."""
    first, *others = (set(result.common) for result in results)
    return tuple(sorted(first.intersection(*others)))
