"""With secure sums a round is all or nothing, and what was sent is sent again as it was."""

from collections import deque

import numpy as np
import pytest
from fingerprint import fingerprint
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from pure_federation import PureFederation
from worlds import MORE

from vfbandits.core.pads import Stamp
from vfbandits.protocol.messages import Answer, Ask, Declined, Welcome
from vfbandits.protocol.rounds import MAX_ATTEMPTS
from vfbandits.protocol.rows import REAL, ask_digest

FOUR = {"shop": 3, "bank": 2, "news": 1, "post": 2}
PASSIVE = ("bank", "news", "post")


def secure(widths=FOUR, **settings):
    return PureFederation(widths, mask="dense", aggregation="secure", **settings)


def asks(federation):
    """The asks that are on their way."""
    streams = set(federation.streams.items())
    return [(n, m) for n, s, m in federation.down if isinstance(m, Ask) and (n, s) in streams]


def test_all_passive_participants_are_asked_and_named_before_anyone_sends():
    federation = secure()
    federation.runs_by_itself = False
    federation.ask()
    assert [name for name, _ in asks(federation)] == list(PASSIVE)
    assert all(ask.senders == PASSIVE for _, ask in asks(federation))


@given(away=st.sets(st.sampled_from(PASSIVE)), slow=st.sets(st.sampled_from(PASSIVE)))
@settings(max_examples=20 * MORE)
def test_a_round_has_all_passive_participants_or_the_own_block_alone(away, slow):
    federation = secure()
    for name in away:
        federation.hang_up(name)
    federation.slow = slow
    number = federation.ask()
    federation.wait(0.25)
    federation.check(number, ("shop",) if away or slow else ("shop", *PASSIVE))
    assert len(federation.noted("secure_sum_incomplete")) == (not away and bool(slow))


@pytest.mark.parametrize("away", PASSIVE)
def test_while_one_is_away_nobody_is_asked_and_decisions_go_on(away):
    """A sum without it would differ from the sums before by its masked rows."""
    federation = secure()
    federation.hang_up(away)
    assert federation.active.askable() == ()
    federation.runs_by_itself = False
    for _ in range(5):
        number = federation.ask()
        assert asks(federation) == []
        federation.check(number, ("shop",))  # without a wait
    federation.runs_by_itself = True
    federation.dial(away)
    federation.check(federation.ask(), ("shop", *PASSIVE))


def test_one_that_stays_away_for_good_is_removed_and_the_others_are_summed_again():
    federation = secure()
    federation.hang_up("post")
    federation.check(federation.ask(), ("shop",))
    federation.change({name: width for name, width in FOUR.items() if name != "post"})
    federation.check(federation.ask(), ("shop", "bank", "news"))


def test_an_incomplete_round_is_never_asked_again_with_fewer():
    federation = secure()
    federation.slow = {"post"}
    number = federation.ask()
    federation.wait(0.25)
    federation.check(number, ("shop",))
    assert federation.noted("secure_sum_incomplete") == [{"round": number, "missing": "post"}]
    federation.runs_by_itself = False
    federation.hang_up("post")
    federation.wait(1.0)
    federation.dial("post")
    federation.deliver_up(*federation.up.popleft())
    assert asks(federation) == []
    federation.ask()
    assert {ask.round for _, ask in asks(federation)} == {number + 1}


def test_one_that_does_not_answer_is_waited_for_three_times_and_then_pinged():
    federation = secure()
    federation.slow = {"post"}
    for _ in range(3):
        number = federation.ask()
        federation.wait(0.25)
        federation.check(number, ("shop",))
    federation.check(federation.ask(), ("shop",))  # without a wait
    federation.slow = set()
    federation.wait(0.5)
    federation.check(federation.ask(), ("shop", *PASSIVE))


def test_one_that_was_cut_off_is_asked_again_and_sends_the_very_same_bytes():
    federation = secure()
    federation.runs_by_itself = False
    number = federation.ask()
    federation.run_down()
    first = federation.sent_by("news", Answer)
    federation.hang_up("news")  # its answer is lost on the way
    federation.run()
    assert number not in federation.gathered
    federation.dial("news")
    federation.deliver_up(*federation.up.popleft())
    welcome, (_, again) = (m for name, _, m in federation.down), asks(federation)[0]
    assert isinstance(next(welcome), Welcome)
    assert (again.round, again.attempt, again.senders) == (number, 0, PASSIVE)
    federation.run_down()
    second = federation.sent_by("news", Answer)
    assert bytes(first.values) == bytes(second.values)
    federation.run()
    federation.check(number, ("shop", *PASSIVE))


def test_after_a_restart_the_outbox_gives_the_very_same_bytes():
    federation = secure()
    federation.runs_by_itself = False
    number = federation.ask()
    federation.run_down()
    federation.hang_up("news")
    federation.run()
    federation.start("news")
    federation.run()
    federation.check(number, ("shop", *PASSIVE))
    assert all(len(sent) == 1 for sent in federation.under_pads.values())


def test_one_that_was_killed_before_it_wrote_anything_down_sends_nothing_twice():
    federation = secure()
    federation.crash_in["news"] = 1  # the rows are looked up, and that was it
    number = federation.ask()
    federation.start("news")
    federation.check(number, ("shop", *PASSIVE))


def test_lost_bytes_move_everybody_to_the_next_attempt_with_the_same_senders():
    federation = secure()
    federation.runs_by_itself = False
    number = federation.ask()
    federation.run_down()
    federation.hang_up("news")
    federation.run()
    federation.disks["news"].outbox.clear()
    federation.dial("news")
    federation.run()
    federation.check(number, ("shop", *PASSIVE))
    assert federation.noted("round_retried") == [{"round": number, "attempt": 1}]
    for name in PASSIVE:
        first, second = (federation.under_pads[name, number, attempt] for attempt in (0, 1))
        assert len(first) == len(second) == 1
        assert first != second


def test_answers_to_the_attempt_before_do_not_count():
    federation = secure()
    federation.runs_by_itself = False
    number = federation.ask()
    federation.run_down()
    early = {name: m for name, _, m in federation.up if isinstance(m, Answer)}
    federation.up.clear()
    lost = Declined(number, 0, "lost_bytes", "")
    federation.hear("news", lost)
    for name in PASSIVE:
        federation.hear(name, early[name])
    assert number not in federation.gathered
    assert len(federation.noted("answer_refused")) == 3
    federation.run()
    federation.check(number, ("shop", *PASSIVE))


def test_attempts_come_to_an_end():
    """One that has lost its bytes and its memory loses every attempt; nobody asks for ever."""
    federation = secure()
    federation.runs_by_itself = False
    number = federation.ask()
    federation.run_down()
    federation.hang_up("news")
    federation.disks["news"].outbox.clear()
    federation.start("news")  # from its disk: it must not send this round again
    federation.run()
    federation.check(number, ("shop",))
    assert len(federation.noted("round_retried")) == MAX_ATTEMPTS - 1
    number = federation.ask()
    federation.run()
    federation.check(number, ("shop", *PASSIVE))


def test_after_the_deadline_there_is_no_other_attempt():
    federation = secure()
    federation.runs_by_itself = False
    number = federation.ask()
    lost = Declined(number, 0, "lost_bytes", "")
    federation.carry_out(federation.active.hear("news", lost, 0.25))
    assert not federation.noted("round_retried")
    federation.run()
    federation.check(number, ("shop",))


def test_a_plain_round_has_one_attempt():
    federation = PureFederation(FOUR)
    federation.runs_by_itself = False
    number = federation.ask()
    lost = Declined(number, 0, "lost_bytes", "")
    federation.hear("news", lost)
    federation.run()
    federation.check(number, ("shop", "bank", "post"))


def test_a_sum_that_cannot_be_is_refused_and_falls_back_to_the_own_block():
    federation = secure()
    federation.runs_by_itself = False
    number = federation.ask()
    federation.run_down()
    answer = federation.sent_by("news", Answer)
    noise = np.random.default_rng(0).integers(0, 2**63, size=len(answer.values) // 8)
    wrong = answer._replace(values=noise.astype("<u8").tobytes())
    federation.hear("news", wrong)
    federation.run()
    federation.check(number, ("shop",))
    (facts,) = federation.noted("secure_sum_refused")
    assert "finite values of at most" in facts["reason"]


def test_a_refused_answer_of_one_makes_the_round_incomplete():
    federation = secure()
    federation.runs_by_itself = False
    number = federation.ask()
    federation.run_down()
    answer = federation.sent_by("news", Answer)
    wrong = answer._replace(digest=b"other")
    federation.hear("news", wrong)
    federation.run()
    federation.check(number, ("shop",))


def test_messages_for_senders_in_another_order_are_never_summed():
    federation = secure()
    number = federation.active.next_round
    federation.runs_by_itself = False
    federation.ask()
    name, stream, ask = federation.down.popleft()
    federation.down.append((name, stream, ask._replace(senders=PASSIVE[::-1])))
    federation.run()
    federation.check(number, ("shop",))
    assert (
        "digest of the rows in their order: wanted"
        in federation.noted("answer_refused")[0]["reason"]
    )


def test_pads_hide_what_is_sent():
    """All zeros, under pads: no two numbers of any message are the same."""
    federation = secure()
    federation.runs_by_itself = False
    federation.ask(tuple(f"user{i}" for i in range(50)), (("a",),) * 50)
    federation.run_down()
    for _, _, answer in federation.up:
        values = np.frombuffer(answer.values, dtype="<u8")
        assert len(np.unique(values)) == len(values)


def test_both_ends_count_all_passive_participants_when_they_code_numbers():
    """In a change one of them may not take part: otherwise the sum is off by a power of two."""
    federation = secure({**FOUR, "rail": 1, "farm": 1})
    federation.change(FOUR)
    federation.check(federation.ask(), ("shop", *PASSIVE))


def test_after_a_restart_of_the_active_participant_no_stamp_is_used_twice():
    federation = secure()
    for user in ("ann", "bob", "eve"):
        federation.ask((user,), (("a", "b"),))
    federation.restart_active(first_round=1)
    for name in PASSIVE:
        federation.dial(name)
    assert federation.active.next_round == 4
    federation.check(federation.ask(), ("shop", *PASSIVE))
    assert all(len(sent) == 1 for sent in federation.under_pads.values())


@given(data=st.data())
@settings(max_examples=25 * MORE)
def test_over_any_history_a_stamp_covers_one_message(data):
    """Streams break, participants restart, bytes are lost: never two messages under one pad."""
    federation = secure()
    federation.runs_by_itself = False
    deeds = st.sampled_from(["ask", "run", "step", "cut", "dial", "restart", "lose", "wait"])
    for deed in data.draw(st.lists(deeds, max_size=40)):
        name = data.draw(st.sampled_from(PASSIVE)) if deed in ("cut", "dial", "restart", "lose") \
            else ""  # fmt: skip
        if deed == "ask":
            user = data.draw(st.sampled_from(["ann", "bob"]))
            federation.ask((user,), (("a", "b"),))
        elif deed == "run":
            federation.run()
        elif deed == "step" and federation.down:
            federation.deliver_down(*federation.down.popleft())
        elif deed == "cut":
            federation.hang_up(name)
        elif deed == "dial" and name not in federation.streams:
            federation.dial(name)
        elif deed == "restart":
            federation.hang_up(name)
            federation.start(name)
        elif deed == "lose":
            federation.disks[name].outbox.clear()
        elif deed == "wait":
            federation.wait(0.1)
    federation.run()
    federation.wait(0.25)
    assert all(len(sent) == 1 for sent in federation.under_pads.values())
    for number, gathered in federation.gathered.items():
        federation.check(number, gathered.contributors)


def test_one_that_has_answered_cannot_end_an_attempt():
    federation = secure()
    federation.runs_by_itself = False
    number = federation.ask()
    federation.run_down()
    federation.hear("news", federation.sent_by("news", Answer))
    before = fingerprint(federation.active)
    federation.hear("news", Declined(number, 0, "lost_bytes", ""))
    assert fingerprint(federation.active) == before
    federation.up = deque(entry for entry in federation.up if entry[0] != "news")
    federation.run()
    federation.check(number, ("shop", *PASSIVE))


def test_the_outbox_has_each_message_under_its_stamp_senders_and_ask():
    federation = secure()
    number = federation.ask()
    for name in PASSIVE:
        ((stamp, (senders, asked, answer)),) = federation.disks[name].outbox.items()
        assert (stamp, senders) == (Stamp(1, number), PASSIVE)
        assert asked == ask_digest(REAL, ("ann", "bob"), (("a", "b"), ("b", "c", "d")))
        assert {bytes(answer.values)} == federation.under_pads[name, number, 0]


@pytest.mark.parametrize("values", [(1e-3, 5.0), (63.9, -63.9)])
def test_the_sum_is_exact_to_the_last_digits_that_matter(values):
    federation = secure()
    number = federation.ask(("ann",), (("a", "b"),), own=np.full((2, 3), values[0]))
    own = federation.active.share.mask(np.full((2, 3), values[0]))
    total = federation.gathered[number].contexts - own
    wanted = federation.expected(number, PASSIVE)
    assert_array_equal(np.abs(total - wanted) < 1e-12, np.ones_like(total, dtype=bool))
