"""A federation to which anything happens, in any order.

Contexts are always those of the contributors behind the mask of their epoch; no round is gathered
twice; no pad covers two messages; what is refused changes nothing; only our own errors come out.
See watched_federation.py for how each of these is checked, after every step.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pure_federation import MODES
from tampering import foreign, tampered
from watched_federation import WatchedFederation
from worlds import MORE

from vfbandits.errors import HandshakeError, VFBanditsError

WIDTHS = {"shop": 2, "bank": 1, "news": 2, "post": 1, "rail": 1}
START = ("shop", "bank", "news", "post")
PASSIVE = st.sampled_from([name for name in WIDTHS if name != "shop"])
DIRECTIONS = st.sampled_from(["up", "down"])
PLACES = st.integers(0, 99)


class Faults(RuleBasedStateMachine):
    """Streams break, participants freeze, are killed and come back; masks and members change."""

    @initialize(mode=st.sampled_from(MODES))
    def begin(self, mode):
        mask, aggregation = mode
        widths = {name: WIDTHS[name] for name in START}
        self.federation = WatchedFederation(widths, mask=mask, aggregation=aggregation)
        self.federation.run()
        self.n_users = 0

    # --- time and rounds

    @rule(n_arms=st.integers(1, 2), trial=st.sampled_from([0, 0, 0, 7]))
    def ask(self, n_arms, trial):
        self.n_users += 1  # nobody comes twice, so every round has rows of its own
        self.federation.ask((f"user{self.n_users}",), (("a", "b")[:n_arms],), trial=trial)

    @rule(n_arms=st.integers(1, 2))
    def ask_and_run(self, n_arms):
        self.ask(n_arms=n_arms, trial=0)
        self.federation.run()

    @rule(name=PASSIVE, loses=st.booleans(), restarts=st.booleans())
    def ask_and_lose_an_answer(self, name, loses, restarts):
        federation = self.federation
        self.ask(n_arms=1, trial=0)
        federation.run_down()
        if name in federation.streams:
            federation.hang_up(name)
            if loses:
                federation.disks[name].outbox.clear()
            (federation.start if restarts else federation.dial)(name)
        federation.run()

    @rule(seconds=st.sampled_from([0.01, 0.1, 0.1, 0.25, 0.25, 0.6, 31.0]))
    def wait(self, seconds):
        self.federation.wait(seconds)

    @rule()
    def run_all(self):
        self.federation.run()

    @rule(direction=DIRECTIONS)
    def deliver_one(self, direction):
        queue = getattr(self.federation, direction)
        if queue and queue[0][0] not in self.federation.slow:
            getattr(self.federation, f"deliver_{direction}")(*queue.popleft())

    # --- participants

    @rule()
    def all_come(self):
        federation = self.federation
        federation.slow.clear()
        for name in self.names[1:]:
            if name not in federation.passive:
                federation.start(name)
            elif name not in federation.streams:
                federation.dial(name)
        federation.run()

    @rule(name=PASSIVE)
    def hang_up(self, name):
        self.federation.hang_up(name)

    @rule(name=PASSIVE)
    def dial(self, name):
        if name in self.federation.passive and name not in self.federation.streams:
            self.federation.dial(name)

    @rule(name=PASSIVE)
    def dial_again_before_the_old_stream_has_ended(self, name):
        if name in self.federation.passive:
            self.federation.dial(name)

    @rule(name=PASSIVE, slow=st.booleans())
    def freeze(self, name, slow):
        (self.federation.slow.add if slow else self.federation.slow.discard)(name)

    @rule(name=PASSIVE)
    def restart(self, name):
        federation = self.federation
        if name in federation.active.split.names or name in federation.passive:
            federation.hang_up(name)
            federation.start(name)

    @rule(name=PASSIVE, after=st.integers(0, 4))
    def kill_soon(self, name, after):
        self.federation.crash_in[name] = after

    @rule(name=PASSIVE)
    def lose_the_outbox(self, name):
        if name in self.federation.disks:
            self.federation.disks[name].outbox.clear()

    @rule(remembers=st.booleans())
    def restart_the_active_participant(self, remembers):
        number = self.federation.active.next_round if remembers else 1
        self.federation.restart_active(first_round=number)

    # --- masks and members

    def begin_change(self, names):
        widths = {name: WIDTHS[name] for name in WIDTHS if name in names}
        try:
            self.federation.begin_change(widths if set(names) != set(self.names) else None)
        except HandshakeError:
            return

    @property
    def names(self):
        return self.federation.active.split.names

    @rule()
    def rotate(self):
        self.begin_change(self.names)

    @rule(name=PASSIVE)
    def add_or_remove(self, name):
        if name not in self.names:
            if name in self.federation.disks:  # the way back in: without its old shares
                self.federation.hang_up(name)
                self.federation.passive.pop(name, None)
                self.federation.disks[name].held.clear()
            self.begin_change((*self.names, name))
        elif len(self.names) > 3:
            self.begin_change([other for other in self.names if other != name])

    @rule(name=st.one_of(st.none(), PASSIVE))
    def change_whole(self, name):
        self.all_come()
        self.federation.wait(0.25)
        if name is None:
            self.rotate()
        else:
            self.add_or_remove(name)
        self.federation.run()
        self.finish()

    @rule()
    def finish(self):
        active = self.federation.active
        if active.change is not None and active.change.is_ready and not active.n_open:
            self.federation.finish_change()

    # --- what must hold

    @invariant()
    def all_is_well(self):
        if hasattr(self, "federation"):
            self.federation.check_everything()

    def teardown(self):
        if hasattr(self, "federation"):
            self.mend()

    def mend(self):
        """When everybody is back, and nobody made messages up, everybody contributes again."""
        federation = self.federation
        federation.slow.clear()
        federation.crash_in.clear()
        federation.run()
        federation.wait(31.0)
        federation.run()
        self.finish()
        for name in federation.active.split.passive:
            federation.hang_up(name)
            federation.start(name)
        federation.run()
        self.ask(n_arms=2, trial=0)
        federation.run()
        self.all_is_well()
        last = federation.active.next_round - 1
        assert federation.gathered[last].contributors == federation.active.split.names


class Tampering(Faults):
    """Besides, messages are lost, doubled, swapped, replayed, changed and made up."""

    def entry(self, direction, place):
        queue = getattr(self.federation, direction)
        return (queue, place % len(queue)) if queue else (queue, None)

    @rule(direction=DIRECTIONS, place=PLACES)
    def lose(self, direction, place):
        queue, place = self.entry(direction, place)
        if place is not None:
            del queue[place]

    @rule(direction=DIRECTIONS, place=PLACES)
    def double(self, direction, place):
        queue, place = self.entry(direction, place)
        if place is not None:
            queue.insert(place, queue[place])

    @rule(direction=DIRECTIONS, place=PLACES)
    def swap(self, direction, place):
        queue, place = self.entry(direction, place)
        if place is not None:
            queue[place], queue[0] = queue[0], queue[place]

    @rule(direction=DIRECTIONS, place=st.integers(0, 999))
    def replay(self, direction, place):
        old = self.federation.history[direction]
        if old:
            name, message = old[-1 - place % len(old)]
            self.put(direction, name, message)

    @rule(direction=DIRECTIONS, place=PLACES, data=st.data())
    def change_a_field(self, direction, place, data):
        queue, place = self.entry(direction, place)
        if place is not None and queue[place][2] is not None:
            name, stream, message = queue[place]
            secure = self.federation.terms.aggregation == "secure"
            queue[place] = (name, stream, data.draw(tampered(message, secure=secure)))

    @rule(direction=DIRECTIONS, place=PLACES, data=st.data(), changes=st.booleans())
    def change_a_field_of_a_round_or_change(self, direction, place, data, changes):
        self.all_come()
        if changes:
            self.rotate()
        else:
            self.ask(n_arms=1, trial=0)
        if direction == "up":
            self.federation.run_down()
        self.change_a_field(direction, place, data)
        self.federation.run()

    @rule(direction=DIRECTIONS, name=PASSIVE, data=st.data())
    def say_what_the_other_role_says(self, direction, name, data):
        self.put(direction, name, data.draw(foreign(direction)))

    @rule(name=PASSIVE, data=st.data())
    @precondition(lambda self: self.federation.active.seats)
    def a_participant_makes_a_message_up(self, name, data):
        """Right for its role, and about nothing that was asked."""
        message = data.draw(foreign("down"))
        try:
            self.federation.carry_out(
                self.federation.happens(
                    self.federation.active,
                    self.federation.active.hear,
                    name,
                    message,
                    self.federation.now,
                )
            )
        except VFBanditsError:
            self.federation.hang_up(name)

    def put(self, direction, name, message):
        if name in self.federation.streams:
            queue = getattr(self.federation, direction)
            queue.append((name, self.federation.streams[name], message))

    def mend(self):
        """Who was told lies may be shut out; what is gathered is right all the same."""
        self.federation.slow.clear()
        self.federation.run()
        self.federation.wait(31.0)
        self.all_is_well()


STEPS = settings(max_examples=50 * MORE, stateful_step_count=40)
MANY = settings(max_examples=1_000, stateful_step_count=60, derandomize=False, print_blob=True)


class TestFaults(Faults.TestCase):
    settings = STEPS


class TestTampering(Tampering.TestCase):
    settings = STEPS


@pytest.mark.long
@pytest.mark.timeout(3600)
class TestManyFaults(Faults.TestCase):
    """With the next class, more than 100,000 messages heard."""

    settings = MANY


@pytest.mark.long
@pytest.mark.timeout(3600)
class TestMuchTampering(Tampering.TestCase):
    settings = MANY
