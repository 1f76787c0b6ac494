"""The durable helper of secret shares: a slot is marked as used before its answer is sent.

A helper that was killed resumes from its state at the last fold and the messages since: their
answers are the same bytes again.  An answer that was not durable was not sent, so losing it does no
harm.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, TypeAlias

from vfbandits.core.shares.covariance.form import HeldCovariance
from vfbandits.core.shares.dealer import ServerSecrets
from vfbandits.core.shares.handover.epoch import HandOver
from vfbandits.core.shares.handover.passage import HelperPassage, NextEpoch
from vfbandits.core.shares.helper import MAX_OPEN, Helper
from vfbandits.core.shares.kept import Kept
from vfbandits.core.shares.messages import Message, Place, read_message
from vfbandits.core.shares.root import Held
from vfbandits.core.shares.terms import ShareTerms
from vfbandits.errors import JournalError, SharesError, VFBanditsError, WireError
from vfbandits.journal.commit import GroupCommit
from vfbandits.journal.crypto import JournalKey
from vfbandits.journal.shares.helper_log import (
    Answered,
    Event,
    HelperLog,
    Started,
    StateHandedOver,
    WindowFolded,
)
from vfbandits.journal.shares.store import Dealt
from vfbandits.protocol.dealt import first_window
from vfbandits.protocol.messages import Help, Helped
from vfbandits.protocol.receipts import (
    DIGEST_BYTES,
    Greeting,
    Receipt,
    Standing,
    refuse_other_deal,
)
from vfbandits.telemetry.log import Logger, log_line

FILE = "helper.db"
IN_LOG = "help_refused in the log of server B has the reason"
Successor: TypeAlias = Callable[[int, ShareTerms], tuple[NextEpoch, Dealt]]
"""What server B needs for a hand-over to an epoch from a state under these terms; SharesError if it
is not there."""
BROKEN = "the helper's journal cannot be written: help_refused in the log has the reason; restart"


class HelpingServer(Protocol):
    """Server B of secret shares, as bytes in and out."""

    @property
    def window(self) -> int:
        """The number of the window that is open."""
        ...

    @property
    def epoch(self) -> int:
        """The epoch that its state is of."""
        ...

    @property
    def problem(self) -> str:
        """Why it refuses all messages; empty if it does not."""
        ...

    async def answer(self, data: bytes) -> bytes:
        """The answer to a message of server A, once the answer is durable."""
        ...

    async def close(self) -> None:
        """Release its files."""
        ...


async def helped(server: HelpingServer, message: Help, *, log: Logger) -> Helped:
    """The answer of server B, or why there is none."""
    try:
        return Helped(message.number, await server.answer(message.data))
    except (SharesError, WireError, JournalError) as error:
        cause = f": {error.__cause__}" if isinstance(error.__cause__, VFBanditsError) else ""
        log_line(log, "help_refused", {"reason": f"{error}{cause}"})
        # Errors of the journal name files, which server A must not see.
        if isinstance(error, JournalError):
            return Helped(message.number, problem=f"server B cannot use its journal: {IN_LOG}")
        return Helped(message.number, problem=str(error))


@dataclass(slots=True)
class _Passage:
    """An unfinished hand-over: digests of its messages, and their answers.

    ``start`` is the receipt of the last message before it.
    """

    passage: HelperPassage
    dealt: Dealt
    start: Receipt
    answered: list[tuple[bytes, bytes]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Before:
    """The epoch and deal from which the state was handed over, until the next fold."""

    epoch: int
    deal: str
    start: Receipt

    def to_record(self) -> list[object]:
        """As in the header of the stored state."""
        return [self.epoch, self.deal, self.start.position, self.start.digest.hex()]

    @classmethod
    def from_record(cls, record: object) -> "_Before | None":
        """The inverse of ``to_record``; None for anything else."""
        match record:
            case [int(epoch), str(deal), int(position), str(digest)]:
                return cls(epoch, deal, Receipt(position, bytes.fromhex(digest)))
        return None


class DurableHelper:
    """Answers the messages of server A, one at a time or concurrently.

    ``max_open`` must be larger than server A's: a context that A waits for must not be dropped
    here.  One process holds the file.

    >>> import asyncio, tempfile
    >>> from vfbandits.core.shares.dealer import Dealer
    >>> terms = ShareTerms(widths=(1, 1), max_arms=2, ridge=1.0, posterior_scale=0.0)
    >>> secrets, dealt = Dealer(terms).helper_secrets(), Dealt(0, "00" * 16, "terms")
    >>> async def greet(folder):
    ...     helper = DurableHelper(Path(folder) / FILE, terms, secrets, dealt=dealt)
    ...     answer = await helper.answer(Greeting(0, dealt.deal, Receipt()).to_bytes())
    ...     await helper.close()
    ...     return Standing.from_bytes(answer)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     standing = asyncio.run(greet(folder))
    >>> standing.window, standing.n_rows, standing.has_seen
    (0, 0, True)
    """

    def __init__(
        self,
        path: Path,
        terms: ShareTerms,
        secrets: ServerSecrets,
        *,
        dealt: Dealt,
        key: JournalKey | None = None,
        max_open: int = 2 * MAX_OPEN,
        successor: Successor | None = None,
    ) -> None:
        self._dealt = dealt
        self._successor = successor
        self._max_open = max_open
        self._log = HelperLog(path, dealt=dealt, key=key)
        try:
            if self._log.state is None:
                fresh = Helper(
                    terms, secrets, epoch=dealt.epoch, first_window=first_window(dealt.epoch)
                )
                self._log.state = fresh.snapshot().to_bytes()
                self._log.append([Started(self._log.state)])
            contexts = self._log.contexts()
            kept = Kept.from_bytes(self._log.state)
            self._helper = Helper.restore(
                replace(terms, idle=kept.idle), secrets, kept, contexts=contexts, max_open=max_open
            )
            self._before = _Before.from_record(kept.header.get("before"))
            self._passage: _Passage | None = None
            self._stored = {event for event, _ in contexts}
            self._digests = self._log.receipts()
            self._receipts: dict[bytes, Receipt] = {}
            self._finished: dict[bytes, bytes] = {}  # replies of the last fold or hand-over
            self._head = self._replay()
        except BaseException:
            self._log.close()
            raise
        self._commit = GroupCommit(self._log)

    def __repr__(self) -> str:
        """Counts; no share."""
        return f"DurableHelper({self._helper!r}, position={self._head.position})"

    @property
    def window(self) -> int:
        """The number of the window that is open."""
        return self._helper.window

    @property
    def problem(self) -> str:
        """Why it refuses all messages; empty if it does not."""
        return "" if self._commit.broken_by is None else BROKEN

    @property
    def epoch(self) -> int:
        """The epoch of the dealer that its state is of."""
        return self._dealt.epoch

    def held(self) -> Held | HeldCovariance:
        """B's side of the state: for tests, which put both sides together."""
        return self._helper.held()

    async def answer(self, data: bytes) -> bytes:
        """The answer to one message or greeting, once the answer is durable.

        SharesError if the message is refused; nothing has changed then.  JournalError if the disk
        failed: then nothing is answered until the file is opened again.
        """
        self._commit.check_healthy()
        if Greeting.is_in(data):
            answer = self._standing(Greeting.from_bytes(data)).to_bytes()
        else:
            receipt, reply = self._answered(data)
            answer = receipt.stamp(reply)
        # A repeated answer may not be durable yet either.
        await self._commit.flush()
        return answer

    async def close(self) -> None:
        """Wait for open writes, and release the file."""
        await self._commit.close()
        self._log.close()

    def _answered(self, data: bytes) -> tuple[Receipt, bytes]:
        message = read_message(data)
        request = message.to_bytes()  # the canonical encoding, without padding
        name = hashlib.sha256(request).digest()
        if name in self._finished:
            return self._receipts[name], self._finished[name]
        window = self._helper.window
        reply = self._reply(message).to_bytes()
        before = self._receipts.get(name)
        if before is not None:
            return before, reply
        self._head = self._head.then(request, reply)
        digest = self._head.digest
        passage = self._passage
        if passage is not None:
            passage.answered.append((name, reply))
        if passage is not None and passage.passage.done is not None:
            self._commit.add(self._handed_over(passage, passage.passage.done, digest))
        elif self._helper.window == window:
            self._commit.add(Answered(request, digest))
        else:
            self._commit.add(self._folded(request, reply, digest))
            self._receipts.clear()
            self._finished, self._before = {name: reply}, None
        self._receipts[name] = self._head
        self._digests[self._head.position] = digest
        return self._head, reply

    def _reply(self, message: Message) -> Message:
        """The answer of this epoch's helper, or of a hand-over to the next."""
        if self._passage is None and isinstance(message, HandOver):
            self._passage = self._begin_passage(message.place)
        passage = self._passage
        if passage is None:
            return self._helper.answer(message)
        try:
            return passage.passage.answer(message)
        except SharesError:
            if not passage.answered:  # it has not begun
                self._passage = None
            raise

    def _begin_passage(self, place: Place) -> "_Passage":
        wanted = self._dealt.epoch + 1
        if self._successor is None or place.epoch != wanted:
            raise SharesError(f"wanted a hand-over to epoch {wanted}, got one to {place.epoch}")
        after, dealt = self._successor(wanted, self._helper.terms)
        contexts = [*self._helper.open_contexts().items()]
        passage = HelperPassage(
            self._helper.snapshot(), contexts, after, place, max_open=self._max_open
        )
        return _Passage(passage, dealt, self._head)

    def _handed_over(self, passage: "_Passage", helper: Helper, digest: bytes) -> StateHandedOver:
        """Enter the next epoch; the answers of the hand-over are kept until the next fold."""
        kept = helper.snapshot()
        before = _Before(self._dealt.epoch, self._dealt.deal, passage.start)
        state = Kept({**kept.header, "before": before.to_record()}, kept.words).to_bytes()
        contexts = [*helper.open_contexts().items()]
        self._helper, self._dealt, self._before = helper, passage.dealt, before
        self._stored = {event for event, _ in contexts}
        self._finished = dict(passage.answered)
        self._passage = None
        return StateHandedOver(self._dealt, passage.answered, digest, state, contexts)

    def _folded(self, request: bytes, reply: bytes, digest: bytes) -> WindowFolded:
        """The state after a fold, and how its open contexts differ from those on the disk."""
        waiting = self._helper.open_contexts()
        dropped: list[Event] = [event for event in self._stored if event not in waiting]
        opened = [(event, waiting[event]) for event in waiting if event not in self._stored]
        self._stored.difference_update(dropped)
        self._stored.update(event for event, _ in opened)
        oldest = min((r.position for r in self._receipts.values()), default=self._head.position)
        self._digests = {at: kept for at, kept in self._digests.items() if at >= oldest}
        state = self._helper.snapshot().to_bytes()
        return WindowFolded(
            request=request,
            reply=reply,
            digest=digest,
            state=state,
            opened=opened,
            dropped=dropped,
        )

    def _standing(self, greeting: Greeting) -> Standing:
        seen, before = greeting.seen, self._before
        is_first = seen == Receipt()
        if before is not None and (greeting.epoch, greeting.deal) == (before.epoch, before.deal):
            # Server A has not finished the hand-over.  An older copy of it would start from another
            # state under the same words.
            is_first = seen.digest == before.start.digest
            if not is_first and seen.position <= before.start.position:
                seen = Receipt(-1)
        else:
            refuse_other_deal(greeting, epoch=self._dealt.epoch, deal=self._dealt.deal)
        return Standing(
            window=self._helper.window,
            n_rows=self._helper.n_rows,
            next_slot=self._helper.next_slot,
            head=self._head,
            has_seen=is_first or self._digests.get(seen.position) == seen.digest,
        )

    def _replay(self) -> Receipt:
        """Answer all messages since the last fold again; the answers must be the same."""
        head: Receipt | None = None
        for position, request, kept in self._log.messages():
            is_digest = len(request) == DIGEST_BYTES
            name = request if is_digest else hashlib.sha256(request).digest()
            if kept is not None:
                head = Receipt(position, self._digests[position])
                self._finished[name] = kept
            else:
                self._head = head or Receipt(position - 1)
                try:
                    reply = self._reply(read_message(request)).to_bytes()
                except (SharesError, WireError) as error:
                    raise self._other(position) from error
                head = self._head.then(request, reply)
                if head != Receipt(position, self._digests.get(position, b"")):
                    raise self._other(position)
                if self._passage is not None:
                    self._passage.answered.append((name, reply))
            self._receipts[name] = head
        return head or Receipt(self._log.last_position)

    def _other(self, position: int) -> JournalError:
        return JournalError(
            f"{self._log.path}: message {position} gets an answer that differs from the recorded "
            "one.  The file is damaged, or belongs to other secrets, terms or another version: "
            "restore them"
        )
