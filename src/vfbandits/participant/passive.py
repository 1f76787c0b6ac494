"""The process of a passive participant: dials out, and answers from its own features."""

import asyncio
import time
from collections.abc import Sequence
from itertools import chain, compress, repeat
from operator import and_
from pathlib import Path

import numpy as np

from vfbandits.core.arrays import PlainBlock
from vfbandits.errors import (
    AccessRecordError,
    ConfigError,
    FeatureError,
)
from vfbandits.features.base import Key, Lookup
from vfbandits.features.open import Features
from vfbandits.journal.mask_shares import ShareFiles
from vfbandits.participant.access.discrete import DiscreteCheck
from vfbandits.participant.access.gate import AccessGate, Admission
from vfbandits.participant.access.record import SYNC_S
from vfbandits.participant.epoch_files import EpochFiles
from vfbandits.participant.link import ActiveLink
from vfbandits.participant.outbox import Outbox
from vfbandits.participant.share_helper import HelpingServer
from vfbandits.participant.state_lock import StateLock
from vfbandits.participant.user_index import LOOK_S, Resolved, UserIndex
from vfbandits.protocol.instructions import (
    DropShares,
    Facts,
    Fetch,
    Keep,
    LogLine,
    PassiveInstruction,
    Reply,
    Resend,
    StoreSecrets,
    StoreShare,
)
from vfbandits.protocol.messages import Answer, Ask, Declined, Help, Message
from vfbandits.protocol.passive import PassiveParticipant
from vfbandits.settings.services import Backoff
from vfbandits.telemetry.log import Logger, log_line
from vfbandits.transport.channel import Dialer
from vfbandits.transport.rpc.codec import decode_to_active, encode

SLOW_LOOKUP = ("sql", "redis")
# Texts for any reader; the reasons are in the log, since they may name hosts and files.
NO_SHARE = "the mask share of the epoch in force is not in the state folder"
NO_FEATURES = "the feature store failed: features_failed in the log has the reason"
NO_INDEX = "users are not indexed by their pseudonyms yet"


class PassiveService:
    """A role, its files and its features, on a channel."""

    def __init__(  # noqa: PLR0913  (one argument for each thing that it owns)
        self,
        role: PassiveParticipant,
        dialer: Dialer,
        features: Features,
        *,
        shares: ShareFiles,
        outbox: Outbox | None,
        gate: AccessGate,
        log: Logger,
        backoff: Backoff,
        lock: StateLock | None = None,
        check: DiscreteCheck | None = None,
        helper: HelpingServer | None = None,
        dealt: Path | None = None,
    ) -> None:
        self._helper = helper
        self._lock = lock
        self._check = check
        self._role = role
        self._link = ActiveLink(role, dialer, self._answer, log=log, backoff=backoff)
        self._features = features
        self._shares = shares
        self._epochs = EpochFiles(role.name, shares, dealt=dealt, server=helper)
        self._outbox = outbox
        self._gate = gate
        self._log = log
        self._in_thread = features.describe().get("kind") in SLOW_LOOKUP
        self._answered = 0
        self._store_failed = False
        self._index = UserIndex(features.users, is_live=self._in_thread)

    @property
    def epoch(self) -> int:
        """The mask epoch in force; 0 before the first welcome."""
        return self._role.epoch

    @property
    def is_connected(self) -> bool:
        """Whether the active participant has welcomed it, on a link that is still open."""
        return not self._link.problem

    @property
    def gate(self) -> AccessGate:
        """Limits and the access record, with its counts."""
        return self._gate

    def problems(self) -> list[str]:
        """Why it cannot answer an ask now; the texts name no host, file or user."""
        found = [self._link.problem] if self._link.problem else []
        if self.is_connected and self.epoch not in self._shares.epochs():
            found.append(NO_SHARE)
        if self._helper is not None and self._helper.problem:
            found.append(self._helper.problem)
        if self.is_connected and not self._is_indexed:
            found.append(NO_INDEX)
        found += self._gate.record.problems()
        return [*found, NO_FEATURES] if self._store_failed else found

    async def run(self) -> None:
        """Serve until ``stop``."""
        await self._index_if_due()
        await self._link.run()
        if self._outbox is not None:
            self._outbox.close()
        if self._helper is not None:
            await self._helper.close()
        self._gate.close()
        if self._lock is not None:
            self._lock.release()
        self._log.info("process_stopped", answered=self._answered)

    async def sync_record(self) -> None:
        """Make the access record durable, periodically."""
        while True:
            await asyncio.sleep(SYNC_S)
            unsynced = self._gate.record.unsynced
            if unsynced is not None:
                await asyncio.to_thread(self._gate.record.sync, unsynced)

    async def index_users(self) -> None:
        """Build the index of users again whenever it is due."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self._index_if_due()

    async def _index_if_due(self) -> None:
        names = self._role.pseudonyms
        if names is None or not self._index.is_due(names):
            return
        started = time.perf_counter()
        try:
            n_users = await asyncio.to_thread(self._index.build, names)
        except FeatureError as error:
            log_line(self._log, "features_failed", {"reason": str(error)})
            return
        seconds = round(time.perf_counter() - started, 3)
        log_line(self._log, "users_indexed", {"users": n_users, "seconds": seconds})

    def stop(self) -> None:
        """Finish the ask that is being answered, then end."""
        self._link.stop()

    async def _answer(self, message: Message) -> list[Message]:
        replies: list[Message] = []
        for todo in self._role.hear(message):  # type: ignore[arg-type]  # it refuses others
            if isinstance(todo, Fetch):
                for then in await self._fetch(todo.ask):
                    self._carry_out(then, replies)
            elif isinstance(todo, Help):
                replies.append(await self._epochs.help(todo, log=self._log))
            else:
                self._carry_out(todo, replies)
        return replies

    def _carry_out(self, todo: PassiveInstruction, replies: list[Message]) -> None:
        """Carry out an instruction of the role; what it sends is added to ``replies``."""
        if isinstance(todo, Reply):
            replies.append(todo.message)
        elif isinstance(todo, Keep):
            kept = encode(todo.answer)
            self._needed_outbox().keep(todo.stamp, todo.senders, kept, asked=todo.asked)
        elif isinstance(todo, Resend):
            replies.append(self._again(todo))
        elif isinstance(todo, (StoreShare, StoreSecrets, DropShares)):
            self._epochs.carry_out(todo)
        elif isinstance(todo, LogLine):
            log_line(self._log, todo.event, todo.facts)

    async def _fetch(self, ask: Ask) -> list[PassiveInstruction]:
        try:
            return await self._fetch_or_fail(ask)
        except FeatureError as error:
            self._store_failed = self._is_indexed
            self._gate.note_failure()
            log_line(self._log, "features_failed", {"round": ask.round, "reason": str(error)})
            reason = "the feature store failed" if self._is_indexed else NO_INDEX
            return self._role.no_features(ask, reason)
        except AccessRecordError as error:
            self._gate.note_failure()
            log_line(self._log, "access_record_failed", {"round": ask.round, "reason": str(error)})
            return self._role.over_limits(ask, "the access record cannot be written")

    async def _fetch_or_fail(self, ask: Ask) -> list[PassiveInstruction]:
        if ask.trial:
            self._gate.note_trial(ask)
            return self._role.answer(ask, self._role.trial_rows(ask))
        started = time.perf_counter()
        users = self._resolved(ask)
        named = ask if users is None else ask._replace(users=users.users)
        keys, admission = named.keys(), self._gate.admit(named)
        lookup: Lookup | None = None
        n_declined, n_users = admission.n_declined, len(ask.users)
        if n_declined < n_users:  # some rows may be answered
            is_known = _known_rows(users, ask)
            if n_declined or is_known is not None:
                lookup = await self._look_up_some(keys, admission, is_known)
            else:
                lookup = await self._rows(keys)
            self._store_failed = False
            admission = self._gate.consented(admission, lookup)
            n_declined = admission.n_declined
        if n_declined:
            limit = admission.declined[0]
            facts: Facts = {"round": ask.round, "users": n_declined, "limit": limit}
            log_line(self._log, "access_declined", facts)
        if lookup is None or n_declined == n_users:
            self._gate.note(ask, admission.refused(), ())
            # Do not name the limit: a list of users may be a list of consents.
            return self._role.over_limits(ask, "over a limit of the participant's owner")
        if n_declined:
            lookup = _only(lookup, admission.is_answered)
        self._gate.note(ask, admission, lookup.absent)
        self._answered += 1
        if lookup.missing or lookup.clipped:
            self._log.info(
                "features_missing",
                round=ask.round,
                missing=lookup.missing,
                clipped=lookup.clipped,
                rows=len(keys),
                seconds=round(time.perf_counter() - started, 6),
            )
        ids = None if users is None else users.users
        return self._role.answer(ask, lookup.values, absent=lookup.absent, users=ids)

    @property
    def _is_indexed(self) -> bool:
        names = self._role.pseudonyms
        return names is None or self._index.is_of(names)

    def _resolved(self, ask: Ask) -> Resolved | None:
        """The users that an ask by pseudonyms means; None if it names them by their ids."""
        names = self._role.pseudonyms
        return None if names is None else self._index.resolve(names, ask.users)

    async def _look_up_some(
        self, keys: Sequence[Key], admission: Admission, is_known: Sequence[bool] | None
    ) -> Lookup:
        """Rows of the keys that are answered; the others are zeros, and absent if not known.

        ``is_known`` says of each key whether its user is known; None if that is not determined yet.
        """
        is_known = [True] * len(keys) if is_known is None else is_known
        is_wanted = [*map(and_, admission.is_answered, is_known)]
        places = np.flatnonzero(is_wanted)
        found = await self._rows([*compress(keys, is_wanted)])
        rows = np.zeros((len(keys), self._features.width))
        rows[places] = found.values
        absent, refused = (places[[*some]].tolist() for some in (found.absent, found.refused))
        unknown = np.flatnonzero(np.logical_not(is_known)).tolist()
        return Lookup(PlainBlock(rows), sorted({*absent, *unknown}), found.clipped, refused)

    async def _rows(self, keys: Sequence[Key]) -> Lookup:
        if self._in_thread:
            found = await asyncio.to_thread(self._block, keys)
        else:
            found = self._block(keys)
        return self._gate.steady(keys, found)

    def _block(self, keys: Sequence[Key]) -> Lookup:
        if self._check is not None:  # the store did not answer at the start
            problem = self._check.problem()
            if problem:
                raise FeatureError(problem)
            self._check = None
        return self._features.block(keys)

    def _again(self, todo: Resend) -> Answer | Declined:
        """The bytes that were sent under this stamp, or a refusal."""
        number, attempt = todo.ask.round, todo.ask.attempt
        found = self._needed_outbox().find(todo.stamp)
        if found is None:
            reason = "these bytes are no longer in the outbox"
            return Declined(number, attempt, "lost_bytes", reason)
        if (found.senders, found.asked) != (tuple(sorted(todo.ask.senders)), todo.asked):
            reason = "the bytes that were sent under this stamp are for another ask"
            return Declined(number, attempt, "pads", reason)
        message = decode_to_active(found.message)
        if not isinstance(message, (Answer, Declined)):
            came = type(message).__name__
            raise ConfigError(f"the outbox must hold answers and refusals, got {came}")
        return message

    def _needed_outbox(self) -> Outbox:
        if self._outbox is None:
            raise ConfigError("secure sums and secret shares need an outbox")
        return self._outbox


def _known_rows(users: Resolved | None, ask: Ask) -> list[bool] | None:
    """For each row whether a pseudonym led to its user; None if all did, or none was needed."""
    if users is None or all(users.is_known):
        return None
    return each_row(users.is_known, ask)


def each_row(of_user: Sequence[bool], ask: Ask) -> list[bool]:
    """A value per user, repeated for each of its rows.

    >>> each_row([True, False], Ask(1, 0, 1, ("ann", "bob"), (("tea",), ("tea", "mate"))))
    [True, False, False]
    """
    return [*chain.from_iterable(map(repeat, of_user, ask.rows_per_user))]


def _only(lookup: Lookup, is_answered: Sequence[bool]) -> Lookup:
    """The lookup with zeros in all other rows, which count as absent."""
    others = np.flatnonzero(np.logical_not(is_answered)).tolist()
    rows = lookup.values.copy()
    rows[others] = 0.0
    return lookup._replace(values=PlainBlock(rows), absent=sorted({*lookup.absent, *others}))
