"""A round waits for nobody longer than its deadline; who did not answer counts as zeros."""

import numpy as np
import pytest
from fingerprint import fingerprint
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from pure_federation import LAYOUTS, MODES, PureFederation, features
from worlds import MORE

from vfbandits.core.arrays import PlainBlock
from vfbandits.errors import LinkError, WireError
from vfbandits.protocol.messages import MAX_BYTES, Answer, Ask, Declined, Ping, Pong

PLAIN = [mode for mode in MODES if mode[1] == "plain"]
FIVE = {"shop": 3, "bank": 2, "news": 1, "post": 2, "rail": 1}


def federation_of(mode, widths=FIVE, **settings):
    mask, aggregation = mode
    return PureFederation(widths, mask=mask, aggregation=aggregation, **settings)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("mode", MODES)
def test_contexts_are_the_plain_ones_behind_the_mask(mode, layout):
    federation = federation_of(mode, layout=layout)
    number = federation.ask()
    gathered = federation.check(number, FIVE)
    keys = federation.rounds[number][0]
    plain = np.hstack([features(name, keys, width) for name, width in FIVE.items()])
    mask = federation.mask()
    assert_allclose(mask @ mask.T, np.eye(9), atol=1e-12)
    assert_allclose(gathered.contexts, plain @ mask.T, atol=1e-11)
    assert len(gathered.contexts) == (5 if layout == "per_arm" else 2)
    columns = federation.roster.rows_width
    assert gathered.bytes_received == 8 * len(plain) * sum(columns[n] for n in list(FIVE)[1:])


@pytest.mark.parametrize("layout", ["outer", "disjoint"])
def test_one_row_for_each_user_is_asked_for_unless_rows_depend_on_the_arm(layout):
    federation = federation_of(("dense", "plain"), layout=layout)
    federation.runs_by_itself = False
    federation.ask(("ann",), (("a", "b", "c"),))
    assert all(message.arms == () and message.n_rows == 1 for _, _, message in federation.down)


@given(mode=st.sampled_from(PLAIN), away=st.sets(st.sampled_from(list(FIVE)[1:])),
       slow=st.sets(st.sampled_from(list(FIVE)[1:])))  # fmt: skip
@settings(max_examples=30 * MORE)
def test_whoever_is_away_or_slow_counts_as_zeros(mode, away, slow):
    federation = federation_of(mode)
    for name in away:
        federation.hang_up(name)
    federation.slow = slow
    number = federation.ask()
    assert (number in federation.gathered) == (slow <= away)
    federation.wait(federation.patience.deadline_s)
    federation.check(number, tuple(n for n in FIVE if n not in away | slow))
    assert {facts["participant"] for facts in federation.noted("answer_missing")} == slow - away
    assert federation.active.n_open == 0


def test_a_late_answer_is_noted_and_changes_nothing():
    federation = federation_of(("dense", "plain"))
    federation.slow = {"news"}
    number = federation.ask()
    federation.wait(0.25)
    contexts = federation.gathered[number].contexts.copy()
    federation.slow = set()
    before = fingerprint(federation.active)
    federation.run()
    assert federation.noted("answer_discarded") == [{"participant": "news", "round": number}]
    assert fingerprint(federation.active) == before
    assert_array_equal(federation.gathered[number].contexts, contexts)


def test_before_its_deadline_a_round_waits():
    federation = federation_of(("dense", "plain"))
    federation.slow = {"news"}
    number = federation.ask()
    federation.wait(0.2499)
    assert number not in federation.gathered
    federation.slow = set()
    federation.run()
    federation.check(number, tuple(FIVE))


def test_one_that_leaves_is_not_waited_for():
    federation = federation_of(("blockwise", "plain"))
    federation.slow = {"news", "post"}
    first, second = federation.ask(), federation.ask(("eve",), (("a",),))
    federation.slow = {"news"}
    federation.run()
    assert not federation.gathered
    federation.hang_up("news")
    for number in (first, second):
        federation.check(number, ("shop", "bank", "post", "rail"))
    assert federation.active.leave("news", 0.0) == []


def test_one_that_has_answered_before_it_leaves_contributes():
    federation = federation_of(("blockwise", "plain"))
    federation.slow = {"news"}
    number = federation.ask()
    federation.hang_up("bank")
    federation.slow = set()
    federation.run()
    federation.check(number, FIVE)


def test_the_next_deadline_is_that_of_the_oldest_open_round():
    federation = federation_of(("dense", "plain"))
    federation.slow = {"news"}
    assert federation.active.next_deadline is None
    federation.ask()
    federation.wait(0.1)
    federation.ask()
    assert federation.active.next_deadline == 0.25
    federation.wait(0.15)
    assert federation.active.next_deadline == 0.35
    federation.wait(0.1)
    assert federation.active.next_deadline is None


def test_with_nobody_there_the_own_block_is_the_context():
    for mode in MODES:
        federation = federation_of(mode, start=False)
        federation.check(federation.ask(), ("shop",))


def test_rounds_are_gathered_side_by_side_whatever_the_order_of_answers():
    federation = federation_of(("dense", "plain"))
    federation.runs_by_itself = False
    numbers = [federation.ask((user,), (("a", "b"),)) for user in ("ann", "bob", "eve")]
    federation.run_down()
    federation.up.reverse()
    federation.run()
    for number in numbers:
        federation.check(number, tuple(FIVE))


NOT_THE_ANSWER = [
    ({"epoch": 0}, "epoch: wanted 1, got 0"),
    ({"digest": b"other"}, "digest of the rows in their order: wanted"),
    ({"n_rows": 1}, "rows: wanted 5, got 1"),
    ({"n_columns": 1}, "columns: wanted 9, got 1"),
    ({"values": bytes(8)}, "bytes: wanted 360, got 8"),
    ({"values": np.full(45, np.nan).tobytes()}, "finite values"),
    ({"values": np.full(45, 65.0).tobytes()}, "at most 64"),
]


@pytest.mark.parametrize(("other", "reason"), NOT_THE_ANSWER)
def test_an_answer_that_is_not_right_is_never_summed_and_its_sender_counts_as_zeros(other, reason):
    federation = federation_of(("dense", "plain"))
    federation.runs_by_itself = False
    number = federation.ask()
    federation.run_down()
    wrong = federation.sent_by("news", Answer)._replace(**other)
    federation.hear("news", wrong)
    federation.run()
    refused, again = federation.noted("answer_refused")
    assert reason in refused["reason"]
    assert "wanted one answer" in again["reason"]  # the right one came too late
    federation.check(number, ("shop", "bank", "post", "rail"))


def test_an_answer_to_another_attempt_is_refused_and_the_right_one_still_counts():
    federation = federation_of(("dense", "plain"))
    federation.runs_by_itself = False
    number = federation.ask()
    federation.run_down()
    stale = federation.sent_by("news", Answer)._replace(attempt=1)
    federation.hear("news", stale)
    federation.run()
    federation.check(number, tuple(FIVE))
    assert federation.active.seats["news"].circuit.failures == 0


def test_a_duplicate_is_refused_and_counts_once():
    federation = federation_of(("dense", "plain"))
    federation.runs_by_itself = False
    number = federation.ask()
    federation.run_down()
    twice = federation.sent_by("news", Answer)
    for _ in range(2):
        federation.hear("news", twice)
    federation.run()
    federation.check(number, tuple(FIVE))
    assert len(federation.noted("answer_refused")) == 2


def test_an_answer_of_one_that_was_not_asked_is_refused():
    federation = federation_of(("dense", "plain"))
    federation.hang_up("news")
    federation.runs_by_itself = False
    number = federation.ask()
    federation.run_down()
    foreign = federation.sent_by("bank", Answer)
    federation.dial("news")
    federation.deliver_up(*federation.up.pop())
    before = fingerprint(federation.active)
    federation.hear("news", foreign)
    assert fingerprint(federation.active) == before
    federation.run()
    federation.check(number, ("shop", "bank", "post", "rail"))


def test_rows_of_a_trial_are_no_answer_to_a_real_ask():
    federation = federation_of(("dense", "plain"))
    number = federation.active.next_round
    federation.runs_by_itself = False
    federation.ask()
    name, stream, ask = federation.down.popleft()
    federation.down.append((name, stream, ask._replace(trial=7)))
    federation.run()
    federation.check(number, ("shop", "news", "post", "rail"))


def test_missing_features_are_noted():
    federation = federation_of(("dense", "plain"))
    federation.runs_by_itself = False
    federation.ask()
    federation.run_down()
    partly = federation.sent_by("news", Answer)._replace(missing=3)
    federation.hear("news", partly)
    wanted = {"participant": "news", "round": 1, "rows": 3}
    assert federation.noted("features_missing") == [wanted]


def test_one_that_declines_counts_as_zeros_at_once():
    federation = federation_of(("dense", "plain"))
    federation.runs_by_itself = False
    number = federation.ask()
    no = Declined(number, 0, "features", "the store is gone")
    federation.hear("news", no)
    federation.run()
    federation.check(number, ("shop", "bank", "post", "rail"))
    (facts,) = federation.noted("answer_declined")
    assert facts == {"participant": "news", "round": number, "code": "features",
                     "reason": "the store is gone"}  # fmt: skip


@pytest.mark.parametrize("declined", [Declined(9, 0, "features", ""), Declined(1, 1, "busy", "")])
def test_declining_what_was_not_asked_changes_nothing(declined):
    federation = federation_of(("dense", "plain"))
    federation.runs_by_itself = False
    number = federation.ask()
    before = fingerprint(federation.active)
    federation.hear("news", declined)
    assert fingerprint(federation.active) == before
    federation.run()
    federation.check(number, tuple(FIVE))


# --- bad input


@pytest.mark.parametrize(
    ("users", "arms", "own", "error", "message"),
    [
        (
            (),
            (),
            np.zeros((0, 3)),
            WireError,
            "needs arms for each user, got 0 lists of arms",
        ),
        (("ann",), (), np.zeros((1, 3)), WireError, "needs arms for each user, got 0"),
        (("ann",), ((),), np.zeros((0, 3)), WireError, "needs arms for each user"),
        (("ann", "bob"), (("a", "b"),), np.zeros((2, 3)), WireError, "for each user, got 1"),
        (("ann",), (("a",),), np.zeros((2, 3)), WireError, r"wanted shape \(1, 3\), got \(2"),
        (("ann",), (("a",),), np.zeros((1, 2)), WireError, r"wanted shape \(1, 3\), got \(1, 2"),
        (("ann",), (("a",),), np.full((1, 3), np.inf), WireError, "finite features, got NaN"),
    ],
)
def test_a_round_that_cannot_be_is_refused_and_changes_nothing(users, arms, own, error, message):
    federation = federation_of(("dense", "plain"))
    before = fingerprint(federation.active)
    with pytest.raises(error, match=message):
        federation.active.ask(users, arms, PlainBlock(own), 0.0)
    assert fingerprint(federation.active) == before


def test_a_round_that_no_message_could_answer_is_refused_before_anybody_is_blamed():
    federation = federation_of(("dense", "plain"))
    n_arms = MAX_BYTES // (8 * 9) + 1
    arms = tuple(str(arm) for arm in range(n_arms))
    with pytest.raises(WireError, match=f"at most {MAX_BYTES} bytes, wanted {72 * n_arms}"):
        federation.active.ask(("ann",), (arms,), PlainBlock(np.zeros((n_arms, 3))), 0.0)
    assert federation.active.n_open == 0


def test_layouts_without_rows_for_arms_need_users_only():
    federation = federation_of(("dense", "plain"), layout="outer")
    with pytest.raises(WireError, match="needs users and no arms, got 0 users and 0 lists of arms"):
        federation.active.ask((), (), PlainBlock(np.zeros((0, 3))), 0.0)


def test_nobody_is_heard_before_its_hello():
    federation = federation_of(("dense", "plain"), start=False)
    with pytest.raises(LinkError, match="wanted a hello of 'bank' first, got Pong"):
        federation.active.hear("bank", Pong(1), 0.0)


def test_a_second_hello_or_a_message_of_the_other_role_is_refused():
    federation = federation_of(("dense", "plain"))
    before = fingerprint(federation.active)
    for wrong in (federation.passive["bank"].hello(), Ask(1, 0, 1, ("ann",)), Ping(1)):
        message = f"wanted an answer of 'bank', got {type(wrong).__name__}"
        with pytest.raises(WireError, match=message):
            federation.active.hear("bank", wrong, 0.0)
    assert fingerprint(federation.active) == before


def test_a_new_stream_takes_the_place_of_an_old_one():
    """Even if the end of the old one was not noticed: what it still owed does not come."""
    federation = federation_of(("dense", "plain"))
    federation.slow = {"news"}
    number = federation.ask()
    federation.slow = set()
    federation.dial("news")
    federation.check(number, ("shop", "bank", "post", "rail"))
    federation.check(federation.ask(), tuple(FIVE))
