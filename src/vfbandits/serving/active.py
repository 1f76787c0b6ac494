"""The process of the active participant: one port, for passive participants and applications.

The role (``protocol/active.py``) decides which message goes to which peer.  This service carries
out its instructions, gathers the contexts of decisions, and applies rewards to the models.
"""

import asyncio
import json
import time
from collections import Counter, defaultdict
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import asdict
from functools import partial

import numpy as np

from vfbandits.campaign.answer import read_answer
from vfbandits.campaign.events import MASKS, MEMBERS, Administered
from vfbandits.campaign.machine import LEARNT
from vfbandits.campaign.query import Query
from vfbandits.campaign.settings import DEFAULT
from vfbandits.core.noise import describe_noise
from vfbandits.core.policy.registry import describe as describe_policy
from vfbandits.core.shares.participant import SharingParticipant
from vfbandits.errors import (
    IdentityError,
    LinkError,
    SettingError,
    VFBanditsError,
    WireError,
)
from vfbandits.features.open import Features
from vfbandits.protocol.active import ActiveParticipant
from vfbandits.protocol.application import (
    ChangeReply,
    ChangeRequest,
    DecideReply,
    DecideRequest,
    GatherOutcome,
    GatherReplies,
    GatherRequest,
    RewardReply,
    RewardRequest,
    StatusReply,
    StatusRequest,
)
from vfbandits.protocol.handshake import refuse_unless_allowed
from vfbandits.protocol.identity import GENERATOR
from vfbandits.protocol.instructions import (
    ActiveInstruction,
    Changed,
    ChangeFailed,
    Close,
    Gathered,
    LogLine,
    Send,
)
from vfbandits.protocol.messages import Answer, Ask, Hello, Help, Helped, Message, Refused
from vfbandits.protocol.roster import ACTIVE, APPLICATION, OPERATOR, STREAM_ROLES
from vfbandits.serving.campaigns import catch_up
from vfbandits.serving.durable import DurableBandit
from vfbandits.serving.helper_link import HelperLink
from vfbandits.serving.leader import Leader
from vfbandits.serving.masks import Changes
from vfbandits.serving.peer_tally import PeerTally
from vfbandits.serving.presence import Presence
from vfbandits.serving.rounds import Rounds
from vfbandits.serving.served import Answered
from vfbandits.serving.shares import Epochs, ServerA, SharedRounds
from vfbandits.serving.trials import Trials
from vfbandits.settings.model import ModelSettings
from vfbandits.telemetry.log import Logger, log_line
from vfbandits.telemetry.readings import SharesGauges
from vfbandits.telemetry.supervised import Supervised, Supervisor
from vfbandits.transport.channel import Link, Listener, Peer

HELLO_S = 5.0
HELP_S = 2.0
GRACE_S = 5.0
TIMER_SLACK_S = 0.001
ROUNDS_AHEAD = 1 << 16
MAY_DECIDE = (APPLICATION, ACTIVE)
MAY_CHANGE = (OPERATOR,)
MAY_GATHER = (ACTIVE,)
MAY_LOOK = (APPLICATION, OPERATOR, ACTIVE, *STREAM_ROLES)
# Fields of the status that passive participants, helpers and the mask generator get.
OF_ALL = ("federation", "roster", "epoch", "terms", "at", "seconds_up")
OF_EACH = ("width", "connected", "circuit", "protocol", "since")


class ActiveService:
    """A role, a model and a listener; ``choose`` and ``learn`` are for callers in this process."""

    def __init__(
        self,
        role: ActiveParticipant,
        model_settings: ModelSettings,
        changes: Changes,
        *,
        features: Features | None,
        log: Logger,
    ) -> None:
        self.role = role
        self.supervisor = Supervisor(log)
        self._ticking: Supervised | None = None
        self._learning: Supervised | None = None
        self.counts: Counter[str] = Counter()
        self._tallies: defaultdict[str, PeerTally] = defaultdict(PeerTally)
        self.rounds = Rounds(role, features, self._carry_out)
        self.shared: SharedRounds | None = None
        self.helper = HelperLink(self._post_help, timeout_s=max(HELP_S, role.patience.deadline_s))
        self.leaders: dict[str, Leader] = {}
        self._trials = Trials(model_settings, self.rounds, role)
        self._model_settings = model_settings
        self._changes = changes
        self._log = log
        self._links: dict[str, Link] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopping = False
        self._change: asyncio.Future[Changed] | None = None
        self._one_change = asyncio.Lock()
        self._tasks: set[asyncio.Task[object]] = set()
        self._listener: Listener | None = None
        self._started = time.monotonic()
        self.presence = Presence(role.roster.stream_members)
        self._rounds_kept = role.next_round

    def share_contexts(self, server: ServerA, own: SharingParticipant, epochs: Epochs) -> None:
        """Decide on secret shares, as server A."""
        self.shared = SharedRounds(
            self.role, self.rounds, server, own, self._carry_out, epochs=epochs, log=self._log
        )

    # --- life ---------------------------------------------------------------------------------

    async def start(self, listener: Listener) -> int:
        """Listen; returns the port."""
        self._listener = listener
        port = await listener.start(self.serve_link)
        self._ticking = self.supervisor.start("federation", self._tick_for_ever)
        if self.shared is not None:
            self._learning = self.supervisor.start("shares", self.shared.learn_for_ever)
        roster = self.role.roster
        self._log.info(
            "grpc_listening",
            port=port,
            federation=roster.federation,
            roster=roster.number,
            epoch=self.role.epoch,
            mask=roster.terms.mask,
            protection=roster.terms.protection,
            layout=roster.terms.layout,
        )
        return port

    async def stop(self) -> None:
        """Refuse new decisions, finish open ones, then close everything."""
        self._is_stopping = True
        try:
            await asyncio.wait_for(self._quiet(), GRACE_S)
        except TimeoutError:
            self._log.warning("shutdown_timed_out", seconds=GRACE_S)
        if self._listener is not None:
            await self._listener.stop(grace_s=0.5)
        for task in (self._ticking, self._learning):
            if task is not None:
                await task.stop()
        for one in list(self._tasks):
            one.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.shared is not None:
            await self.shared.close()
        decisions = sum(leader.durable.n_decisions for leader in self.leaders.values())
        self._log.info("process_stopped", decisions=decisions)

    async def _quiet(self) -> None:
        """Wait until no decision is open."""
        await self.rounds.batches.quiet()
        if self.shared is not None:
            await self.shared.quiet()

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tick_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self.role.patience.ping_every_s / 2.0)
            self._tick()

    def _tick(self) -> None:
        self._carry_out(self.role.tick(time.monotonic()))

    # --- passive participants -----------------------------------------------------------------

    async def serve_link(self, link: Link) -> None:
        """Serve one stream, from its hello to its end."""
        peer = link.peer
        try:
            self._allow(peer, STREAM_ROLES)
            hello = await asyncio.wait_for(link.receive(), HELLO_S)
            if not isinstance(hello, Hello):
                raise WireError(f"wanted a hello, got {type(hello).__name__}")
        except TimeoutError:
            reason = f"wanted a hello within {HELLO_S:g} s, got none"
            log_line(self._log, "handshake_refused", {"peer": peer.name, "reason": reason})
            await link.close()
            return
        except (IdentityError, WireError, LinkError) as error:
            await _refuse(link, error)
            log_line(self._log, "identity_refused", {"peer": peer.name, "reason": str(error)})
            return
        await self._serve_peer(link, hello)

    async def _serve_peer(self, link: Link, hello: Hello) -> None:
        name = link.peer.name
        older = self._links.get(name)
        self._links[name] = link
        if older is not None:
            self._carry_out(self.role.leave(name, time.monotonic()))
            await older.close()
        if self._links.get(name) is not link:  # a newer stream came meanwhile
            await link.close()
            return
        try:
            self._carry_out(self.role.join(name, hello, time.monotonic()))
            await link.listen(partial(self._hear, name, self._tallies[name]))
        except WireError as error:
            log_line(self._log, "message_refused", {"peer": name, "reason": str(error)})
        except LinkError as error:
            self._log.info("link_ended", peer=name, reason=str(error))
        finally:
            if self._links.get(name) is link:
                del self._links[name]
                self._carry_out(self.role.leave(name, time.monotonic()))
            await link.close()

    def _hear(self, name: str, tally: PeerTally, message: Message) -> None:
        now = time.monotonic()
        if isinstance(message, Answer):
            tally.answered(message.round, size=len(message.values), now=now)
        todo = self.role.hear(name, message, now)  # type: ignore[arg-type]  # it refuses others
        if todo:
            self._carry_out(todo)

    def _allow(self, peer: Peer, wanted: tuple[str, ...]) -> None:
        refuse_unless_allowed(
            self.role.roster,
            name=peer.name,
            role=peer.role,
            certificate=peer.certificate,
            wanted=wanted,
        )

    # --- instructions -------------------------------------------------------------------------

    def _carry_out(self, instructions: Sequence[ActiveInstruction]) -> None:
        for todo in instructions:
            if isinstance(todo, Send):
                self._send(todo)
            elif isinstance(todo, Gathered):
                (self.shared or self.rounds).deliver(todo)
            elif isinstance(todo, Helped):
                self.helper.deliver(todo)
            elif isinstance(todo, LogLine):
                self._write_line(todo)
            elif isinstance(todo, Close):
                link = self._links.get(todo.to)
                if link is not None:
                    self._spawn(link.close())
            elif self._change is not None and not self._change.done():
                if isinstance(todo, ChangeFailed):
                    aborted = f"the change was aborted, the old masks stay: {todo.reason}"
                    self._change.set_exception(LinkError(aborted))
                else:
                    self._change.set_result(todo)
        self._set_timer()

    def _keep_round(self) -> None:
        """Store a number above the next round, once for ``ROUNDS_AHEAD`` rounds.

        A failed write is logged and tried again later: the reservations of passive participants
        keep a number from being used twice, and they report how far these go.
        """
        self._rounds_kept = self.role.next_round + ROUNDS_AHEAD
        if self.shared is not None:
            return  # rounds are slots, and server A records the used ones
        try:
            self._changes.store_round(self._rounds_kept)
        except OSError as error:
            log_line(
                self._log, "round_save_failed", {"reason": error.strerror or "the disk failed"}
            )

    def _send(self, todo: Send) -> None:
        link = self._links.get(todo.to)
        if link is None:
            return
        if isinstance(todo.message, Ask):
            if todo.message.round >= self._rounds_kept:
                self._keep_round()
            self._tallies[todo.to].asked(todo.message.round, now=time.monotonic())
        if not link.post(todo.message):
            # Its send queue is full: it has stopped reading, and must not delay the others.
            self._spawn(link.close())

    def _post_help(self, message: Help) -> bool:
        rules = self.role.roster.terms.shares
        link = None if rules is None else self._links.get(rules.helper)
        return link is not None and link.post(message)

    def _write_line(self, todo: LogLine) -> None:
        self.counts[todo.event] += 1
        peer = todo.facts.get("participant")
        if isinstance(peer, str):
            self._tallies[peer].events[todo.event] += 1
            self.presence.noted(peer, todo.event)
            self._note_helper(peer, todo.event)
        if todo.event == "share_in_use":
            self._changes.store_seats(self.role)
        log_line(self._log, todo.event, todo.facts)

    def _note_helper(self, peer: str, event: str) -> None:
        rules = self.role.roster.terms.shares
        if rules is None or peer != rules.helper:
            return
        if event == "participant_left":
            self.helper.lose()
        elif event == "participant_joined" and self.shared is not None:
            self.shared.helper_joined()

    def _set_timer(self) -> None:
        """Set one timer, for the first deadline; rounds that start later have later ones."""
        if self._timer is not None:
            return
        deadline = self.role.next_deadline
        if deadline is not None:
            wait_s = max(0.0, deadline - time.monotonic()) + TIMER_SLACK_S
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._end_of_wait)

    def _end_of_wait(self) -> None:
        self._timer = None
        self._tick()
        self._set_timer()

    # --- applications and operators -------------------------------------------------------------

    async def decide(self, peer: Peer, request: DecideRequest) -> DecideReply:
        """Choose an arm for a user (applications)."""
        self._allow(peer, MAY_DECIDE)
        if self._is_stopping:
            raise LinkError("the active participant is stopping; retry the request")
        return await self.choose(request)

    async def choose(self, request: DecideRequest) -> DecideReply:
        """As ``decide``, for a caller in this process."""
        if request.campaign not in ("", DEFAULT):
            raise WireError(
                f"campaign: decisions over gRPC are of {DEFAULT!r}, got {request.campaign!r}"
            )
        started = time.perf_counter()
        query = query_of(request)
        if request.trial and self.shared is not None:
            raise SettingError(
                "protection 'shares' has no parity runs on a live federation: nobody knows the "
                "noise of a decision"
            )
        leader = self._leader_of(request.trial)
        if request.trial and request.event_id:  # a run is made once: see ``admin.parity``
            leader.model.bandit.pending.new_name(request.event_id)
        result = await leader.decide(query)
        self.counts["trial_decisions"] += bool(request.trial)
        return _reply(result, query, seconds=time.perf_counter() - started)

    def _leader_of(self, trial: int) -> Leader:
        return self._trials[trial] if trial else self.leaders[DEFAULT]

    async def gather(self, peer: Peer, request: GatherRequest) -> GatherReplies:
        """The masked contexts of decisions that a ranker of this active participant makes."""
        self._allow(peer, MAY_GATHER)
        if self.shared is not None:
            raise SettingError(
                "protection 'shares' has no rankers: slots are a sequence that one process owns"
            )
        if self._is_stopping:
            raise LinkError("the active participant is stopping; retry the request")
        outcomes = [_gatherable(one) for one in request.requests]
        good = [one for one in outcomes if isinstance(one, DecideRequest)]
        self.counts["gathered"] += len(good)
        gathered = iter(await self._gather_all(good))
        return GatherReplies(
            tuple([next(gathered) if isinstance(o, DecideRequest) else o for o in outcomes])
        )

    async def _gather_all(self, requests: Sequence[DecideRequest]) -> list[GatherOutcome]:
        """Outcomes in the order of the requests; all campaigns share the same rounds."""
        places: defaultdict[str, list[int]] = defaultdict(list)
        for place, one in enumerate(requests):
            places[one.campaign or DEFAULT].append(place)
        parts = await asyncio.gather(
            *(
                self.rounds.gather([query_of(requests[place]) for place in some], campaign=name)
                for name, some in places.items()
            )
        )
        outcomes: dict[int, GatherOutcome] = {}
        for some, part in zip(places.values(), parts, strict=True):
            outcomes.update(zip(some, part, strict=True))
        return [outcomes[place] for place in range(len(requests))]

    async def reward(self, peer: Peer, request: RewardRequest) -> RewardReply:
        """Learn a reward (applications)."""
        self._allow(peer, MAY_DECIDE)
        return await self.learn(request)

    async def learn(self, request: RewardRequest) -> RewardReply:
        """As ``reward``, for a caller in this process."""
        status = await self._leader_of(request.trial).reward(request.event_id, request.value)
        reply = RewardReply(status == LEARNT)
        self.counts["trial_rewards"] += bool(request.trial) and reply.learnt
        return reply

    async def status(self, peer: Peer, request: StatusRequest) -> StatusReply:
        """Ids, counts and durations; stream peers and the mask generator get a part of them."""
        del request
        document = self.describe()
        # A roster pins the generator's signing key only, so the check by TLS must suffice.
        if peer.role == GENERATOR and peer.certificate and self.role.roster.generator_key:
            document = _in_part(document, "", self.participants())
        else:
            self._allow(peer, MAY_LOOK)
            if peer.role in STREAM_ROLES:
                document = _in_part(document, peer.name, self.participants())
        return StatusReply(json.dumps(document, indent=1))

    def describe(self) -> dict[str, object]:
        """The federation as the active participant sees it."""
        roster = self.role.roster
        return {
            "federation": roster.federation,
            "roster": {"number": roster.number, "digest": roster.digest},
            "epoch": self.role.epoch,
            "terms": {
                "mask": roster.terms.mask,
                "aggregation": roster.terms.aggregation,
                "protection": roster.terms.protection,
                "layout": roster.terms.layout,
                "dim": roster.split.dim,
            },
            "model": {
                "policy": describe_policy(self._model_settings.policy),
                "ridge": self._model_settings.ridge,
                "discount": self._model_settings.discount,
                "floor": self._model_settings.floor,
            },
            "at": time.time(),
            "seconds_up": round(time.monotonic() - self._started, 3),
            **self._describe_models(),
            "participants": self.participants(),
            "link_changes": self.presence.changes(),
            **({} if self.shared is None else {"shares": asdict(self.shared.describe())}),
        }

    def describe_shares(self) -> SharesGauges | None:
        """The helper and the dealt words; None at other protection levels."""
        return None if self.shared is None else self.shared.describe()

    def _describe_models(self) -> dict[str, object]:
        """Counts of all campaigns, over gRPC and HTTP together."""
        campaigns = {
            name: {
                "decisions": leader.durable.n_decisions,
                "rewards": leader.durable.n_rewards,
                "waiting_for_reward": leader.n_waiting,
            }
            for name, leader in self.leaders.items()
        }
        total = {key: sum(one[key] for one in campaigns.values()) for key in campaigns[DEFAULT]}
        pending = total.pop("waiting_for_reward")
        return {
            "counts": {**self.counts, **total},
            "waiting_for_reward": pending,
            "campaigns": campaigns,
        }

    def participants(self) -> dict[str, dict[str, object]]:
        """Each participant: the state of its link, asks and answers, and latency.

        A helper without features is among them, with width 0.
        """
        roster, seats = self.role.roster, self.role.seats
        widths = dict(roster.split.items())
        return {
            name: {
                "width": widths.get(name, 0),
                "connected": name in seats or name == roster.active.name,
                "circuit": "open" if name in seats and seats[name].circuit.is_open else "closed",
                "protocol": seats[name].protocol if name in seats else None,
                "noise": self._noise_of(name),
                **self.presence.describe(name),
                **self.rounds.drift.describe(name),
                **(self._tallies[name].describe() if name in self._tallies else {}),
            }
            for name in (roster.active.name, *roster.stream_members)
        }

    def _noise_of(self, name: str) -> dict[str, object] | None:
        """The noise that a connected participant declares to add to its vectors."""
        seat = self.role.seats.get(name)
        return None if seat is None or seat.noise is None else describe_noise(seat.noise)

    async def change(self, peer: Peer, request: ChangeRequest) -> ChangeReply:
        """Move to another mask epoch, and perhaps another roster (operators)."""
        self._allow(peer, MAY_CHANGE)
        # The change must be completed even if the operator disconnects.
        changing = asyncio.get_running_loop().create_task(self._change_masks(request, peer.name))
        self._tasks.add(changing)
        changing.add_done_callback(self._tasks.discard)
        return await asyncio.shield(changing)

    async def _change_masks(self, request: ChangeRequest, by: str) -> ChangeReply:
        async with self._one_change:
            if self.shared is not None:
                self.shared.refuse_while_moving()
            change, signed = self._changes.plan(self.role, request)
            if self.shared is not None:
                await self.shared.prepare(change)
            self._change = asyncio.get_running_loop().create_future()
            self._carry_out(self.role.begin_change(change, time.monotonic()))
            changed = await self._change
            what = MEMBERS if request.roster else MASKS
            detail = f"mask epoch {changed.epoch}, roster {change.after.number}"
            asked = Administered(what, detail, by, time.time())
            await self._put_into_force(changed, signed, asked)
        return ChangeReply(self.role.epoch, self.role.roster.digest)

    async def _put_into_force(self, changed: Changed, signed: bytes, asked: Administered) -> None:
        """Between two rounds, apply the change to all models and then tell the participants."""
        if self.shared is not None:
            await self._start_hand_over(self.shared, changed, signed, asked)
            return
        batches = self.rounds.batches
        await batches.pause()
        try:
            # The change is in force once the default campaign has it; the others read it there.
            first = self.leaders[DEFAULT].durable
            await first.change_masks(
                changed.remask.R, epoch=changed.epoch, signed_roster=signed, asked=asked
            )
            await self._change_others(first, asked)
            self._trials.clear()
            self._carry_out(self.role.finish_change())
            self._changes.finish(self.role)
        finally:
            batches.resume(row_bytes=self.rounds.row_bytes(self.role))

    async def _change_others(self, first: DurableBandit, asked: Administered) -> None:
        """Apply the change to the other campaigns; one whose journal fails decides no more."""
        for name, leader in self.leaders.items():
            try:
                await catch_up(leader.durable, first, asked=asked)
            except VFBanditsError as error:
                self._log.error("campaign_failed", campaign=name, reason=str(error))

    async def _start_hand_over(
        self, shared: SharedRounds, changed: Changed, signed: bytes, asked: Administered
    ) -> None:
        """On secret shares, write the change to the journal, then hand over, now or later.

        The journal says which epoch is in force.  A process that is killed here reads it at the
        next start and completes the hand-over.
        """
        async with shared.between_decisions():
            for leader in self.leaders.values():
                await leader.durable.change_masks(
                    changed.remask.R, epoch=changed.epoch, signed_roster=signed, asked=asked
                )
            self._carry_out(self.role.finish_change())
            self._changes.put_in_force(self.role)
            shared.move_on()
        await shared.finish_hand_over()


def _in_part(
    document: Mapping[str, object], name: str, participants: Mapping[str, Mapping[str, object]]
) -> dict[str, object]:
    """A status without decisions and models; only ``name`` gets its own counts."""
    parts = {
        other: {key: facts[key] for key in facts if other == name or key in OF_EACH}
        for other, facts in participants.items()
    }
    return {**{key: document[key] for key in OF_ALL}, "participants": parts}


def query_of(request: DecideRequest) -> Query:
    """The query in a request over gRPC."""
    return Query(
        request.user,
        request.arms,
        request.event_id or None,
        request.own,
        request.arm_features,
        trial=request.trial,
    )


def _reply(result: Answered, query: Query, *, seconds: float) -> DecideReply:
    answer = result.decided or read_answer(result.answer, query.arms)
    shown = answer.shown
    return DecideReply(
        event_id=answer.event_id,
        arm=answer.arms[shown],
        index=shown,
        probability=answer.probabilities[shown],
        scores=np.array(answer.scores).tobytes(),
        means=np.array(answer.means).tobytes(),
        contributors=answer.contributors,
        epoch=answer.epoch,
        bytes_received=result.bytes_received,
        seconds=seconds,
    )


def _gatherable(request: DecideRequest | VFBanditsError) -> DecideRequest | VFBanditsError:
    if isinstance(request, DecideRequest) and request.trial:
        return WireError(f"a ranker's decision must have trial 0, got {request.trial}")
    return request


async def _refuse(link: Link, error: VFBanditsError) -> None:
    """Send a peer the reason why it is refused, and close."""
    try:
        await link.send(Refused("identity", str(error)))
    except LinkError:
        return
    finally:
        await link.close()
