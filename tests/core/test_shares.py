"""Deciding and learning on secret shares: as in the open, slot by slot, each slot once."""

from copy import deepcopy
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from plain_loops import fewer_if_plain, turn_off_loops
from shares_world import (
    Recorder,
    covariance_terms,
    event_id_of,
    local_shares,
    plain_twin,
    small_terms,
    split_rows,
    unit_rows,
)

from vfbandits.core import ring
from vfbandits.core.mask import MaskShare
from vfbandits.core.shares import dealer as dealer_module
from vfbandits.core.shares import messages, sides
from vfbandits.core.shares.messages import Message, Place
from vfbandits.core.shares.offer import Offer
from vfbandits.core.shares.root import RootSide
from vfbandits.errors import (
    ArmError,
    RewardError,
    SettingError,
    SharesError,
    WireError,
)


def play(local, *, rounds, seed, max_late=6):
    """Decide and reward beside a plain twin, rewards late and shuffled; same arms all along."""
    terms = local.terms
    rng = np.random.default_rng(seed)
    twin, draws = plain_twin(terms)
    theta_star = rng.standard_normal(terms.dim)
    waiting = []
    for _ in range(rounds):
        X = unit_rows(rng, int(rng.integers(1, terms.max_arms + 1)), terms.dim)
        opened = local.decide(split_rows(X, terms))
        if terms.is_noisy:
            draws.normals = local.noise(opened.event)
        decision = twin.decide(X)
        assert opened.arm == decision.index
        waiting.append((local.pick(opened, opened.arm), decision, X[opened.arm]))
        rng.shuffle(waiting)
        while len(waiting) > rng.integers(max_late):
            event, decision, x = waiting.pop()
            reward = float(np.clip(x @ theta_star + 0.1 * rng.standard_normal(), -16, 16))
            local.learn(event, reward)
            twin.reward(decision, reward)
    return twin.states[None]


@settings(max_examples=15, deadline=None)
@given(
    widths=st.lists(st.integers(1, 3), min_size=2, max_size=3),
    window=st.integers(1, 4),
    decisions=st.integers(1, 5),
    scale=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 2**32 - 1),
)
def test_arms_and_state_are_those_of_a_plain_bandit_with_the_same_noise(
    widths, window, decisions, scale, seed
):
    terms = small_terms(
        widths=tuple(widths), window=window, decisions=decisions, posterior_scale=scale
    )
    local = local_shares(terms, seed=seed)
    state = play(local, rounds=fewer_if_plain(25), seed=seed)
    theta, inverse = local.reveal()
    assert_allclose(theta, state.theta, atol=1e-9)
    assert_allclose(inverse, np.linalg.inv(state.Lambda), atol=1e-9)


@pytest.mark.parametrize("scale", [0.0, 0.3])
@pytest.mark.parametrize("without", ["compiled loops", "compiled steps"])
def test_without_what_is_compiled_the_same_bytes_are_sent(without, scale, monkeypatch):
    """One server may have numba and the other not."""
    terms = small_terms(posterior_scale=scale)
    sent = []
    for is_compiled in (True, False):
        recorder = Recorder()
        if not is_compiled and without == "compiled loops":
            turn_off_loops(monkeypatch)
        elif not is_compiled:
            monkeypatch.setattr(RootSide, "_loops", lambda _: None)
        play(local_shares(terms, on_message=recorder), rounds=20, seed=3)
        sent.append([message.to_bytes() for _, _, message in recorder.messages])
    assert sent[0] == sent[1]


def test_arms_that_tie_go_to_the_first():
    terms = small_terms()
    local = local_shares(terms)
    X = np.repeat(unit_rows(np.random.default_rng(0), 1, terms.dim), 4, axis=0)
    assert [local.decide(split_rows(X, terms)).arm for _ in range(10)] == [0] * 10


def test_blank_rows_change_nothing():
    terms = small_terms(window=4, decisions=1)
    local = local_shares(terms)
    X = unit_rows(np.random.default_rng(1), 3, terms.dim)
    event = local.pick(local.decide(split_rows(X, terms)), 2)
    local.learn(event, 1.0)
    before = local.reveal()
    local.decide(split_rows(X, terms))  # fills the window with three blanks and folds it
    for found, wanted in zip(local.reveal(), before, strict=True):
        assert_allclose(found, wanted, atol=1e-10)


def one_decision(seed=0, **changes):
    terms = small_terms(**changes)
    recorder = Recorder()
    local = local_shares(terms, seed=seed, on_message=recorder)
    X = unit_rows(np.random.default_rng(seed), terms.max_arms, terms.dim)
    opened = local.decide(split_rows(X, terms))
    return local, recorder, opened, X


def messages_of_a_window(**changes):
    local, recorder, opened, _ = one_decision(**changes)
    event = local.pick(opened, opened.arm)
    local.learn(event, 1.0)
    for _ in range(local.terms.decisions):  # the last one folds the window
        local.decide(split_rows(unit_rows(np.random.default_rng(2), 3, 5), local.terms))
    local._ensure_deal()  # noqa: SLF001
    local._run(local.active.fill_absent(local.active.next_place(), (1,), n_arms=2))  # noqa: SLF001
    local.hand_over((2,), (0,), [MaskShare(np.eye(2))])
    return [message for _, _, message in recorder.messages]


def test_every_message_comes_back_from_its_bytes():
    kinds = set()
    lifted = Recorder()
    local = local_shares(small_terms(layout="outer", arm_dim=2), on_message=lifted)
    local.decide(split_rows(np.full((1, 5), 0.1), local.terms), Offer(features=np.eye(2)))
    messages = messages_of_a_window() + messages_of_a_window(reads="widths", beta=0.5)
    for message in messages + [message for _, _, message in lifted.messages]:
        data = message.to_bytes()
        assert len(data) == message.size_bytes
        again = type(message).from_bytes(data)
        assert again.to_bytes() == data
        assert again.place == message.place
        for part in fields(message)[1:]:
            assert np.array_equal(getattr(again, part.name), getattr(message, part.name))
        kinds.add(type(message).__name__)
    assert kinds == {kind.__name__ for kind in Message.__subclasses__()}


def test_damaged_bytes_are_refused():
    data = one_decision()[1].messages[-1][2].to_bytes()
    kind = type(one_decision()[1].messages[-1][2])
    for damaged in (b"", b"\xff" + data[1:], data[:-1], data + b"\0"):
        with pytest.raises(WireError):
            kind.from_bytes(damaged)


def test_a_window_counts_the_bytes_of_its_deals():
    deal = local_shares(small_terms()).dealer.deal()
    parts = (*deal.decisions, *deal.rewards, deal.fold)
    assert deal.size_bytes == sum(len(part.to_bytes()) for part in parts)


def test_messages_do_not_show_their_words():
    message = one_decision()[1].view("helper")[0]
    assert repr(message) == f"Ask({message.place})"


def test_the_helper_answers_a_repeated_message_with_the_same_bytes():
    local, recorder, _, _ = one_decision()
    asks, answers = recorder.view("helper"), recorder.view("active", "helper")
    for ask, answer in zip(asks, answers, strict=True):
        assert local.helper.answer(ask).to_bytes() == answer.to_bytes()


@pytest.mark.parametrize("place", range(4))
def test_the_helper_refuses_another_message_in_a_used_slot(place):
    local, recorder, _, _ = one_decision()
    message = recorder.view("helper")[place]
    name = fields(message)[-1].name
    changed = getattr(message, name).copy()
    changed.flat[0] ^= changed.dtype.type(1)
    with pytest.raises(SharesError, match="slot 0 of window 0 was used before"):
        local.helper.answer(replace(message, **{name: changed}))


@pytest.mark.parametrize(
    "step", [messages.Recall, messages.Whiten, messages.Learn, messages.Settle]
)
@pytest.mark.parametrize("is_answered", [False, True])
def test_after_a_reward_that_failed_its_slot_serves_no_other_reward(step, is_answered, monkeypatch):
    """The helper knows its own share of a context, so two under one mask show their difference."""
    local, recorder, opened, X = one_decision()
    events = [local.pick(opened, 1), local.pick(local.decide(split_rows(X, local.terms)), 0)]
    answer = local.helper.answer

    def lose(message):
        if isinstance(message, step):
            if is_answered:
                answer(message)
            raise ConnectionError
        return answer(message)

    with monkeypatch.context() as patch:
        patch.setattr(local.helper, "answer", lose)
        with pytest.raises(ConnectionError):
            local.learn(events[0], 1.0)
    sent = len(recorder.messages)
    for call in (
        lambda: local.learn(events[1], 1.0),
        lambda: local.learn(events[0], 0.0),
        lambda: local._run(local.active.fill()),  # noqa: SLF001
    ):
        with pytest.raises(SharesError, match=r"failed on its way, of the decision \(0, 0\)"):
            call()
    assert len(recorder.messages) == sent
    local.learn(events[0], 1.0)
    local.learn(events[1], 1.0)
    seen = {}
    for message in recorder.view("helper"):
        data = message.to_bytes()
        assert seen.setdefault((message.KIND, message.place), data) == data
    whole = local_shares(local.terms)
    for arm in (1, 0):
        whole.learn(whole.pick(whole.decide(split_rows(X, local.terms)), arm), 1.0)
    for found, wanted in zip(local.reveal(), whole.reveal(), strict=True):
        assert_allclose(found, wanted, atol=1e-9)


def test_the_helper_refuses_a_window_that_is_over_and_gaps():
    local, recorder, opened, _ = one_decision(window=1)
    local.learn(local.pick(opened, 0), 0.5)
    with pytest.raises(SharesError, match="window 1 is open, got a message for window 0"):
        local.helper.answer(recorder.view("helper")[0])
    ask = recorder.view("helper")[0]
    with pytest.raises(SharesError, match="window 1 is open, got a message for window 2"):
        local.helper.answer(replace(ask, place=Place(0, 2, 0, 0)))
    with pytest.raises(SharesError, match="epoch 0 is open, got a message for 1"):
        local.helper.answer(replace(ask, place=Place(1, 1, 0, 0)))


def test_the_helper_refuses_steps_without_a_beginning_and_what_it_does_not_know():
    local, recorder, opened, _ = one_decision()
    local.learn(local.pick(opened, 0), 0.5)
    elsewhere = Place(0, 0, 0, 2)
    by_kind = {type(m): m for m in recorder.view("helper")}
    for kind, reason in (
        (messages.Sample, "no decision was asked for in slot 2"),
        (messages.Learn, "no context was recalled in slot 2"),
        (messages.Recall, "the next reward has slot 1, got 2"),
    ):
        with pytest.raises(SharesError, match=reason):
            local.helper.answer(replace(by_kind[kind], place=elsewhere))
    with pytest.raises(SharesError, match="wanted slot 0 to 3 after 1 rewards"):
        local.helper.answer(replace(by_kind[messages.Ask], place=elsewhere))
    recall = replace(by_kind[messages.Recall], place=Place(0, 0, 0, 1))
    with pytest.raises(SharesError, match="no context waits for a reward"):
        local.helper.answer(recall)
    fold = messages.Fold(elsewhere, ring.zeros(5, 5), ring.zeros(5))
    with pytest.raises(SharesError, match="folded after 3 rewards, got 1"):
        local.helper.answer(fold)
    with pytest.raises(SharesError, match="does not answer a Picked"):
        local.helper.answer(messages.Picked(elsewhere))
    wrong = replace(by_kind[messages.Sample], place=elsewhere, contexts=ring.zeros(4, 6))
    with pytest.raises(SharesError, match="wanted contexts of 1 to 4 arms and 5 features"):
        local.helper.answer(wrong)
    local.decide(split_rows(unit_rows(np.random.default_rng(2), 3, 5), local.terms))
    compare = replace(by_kind[messages.Compare], place=Place(0, 0, 0, 1))
    fresh = local_shares(local.terms)
    fresh.helper.answer(recorder.view("helper")[0])
    for kind in (messages.Compare, messages.Results, messages.Pick):
        with pytest.raises(SharesError, match="no contexts came in slot 0"):
            fresh.helper.answer(by_kind[kind])
    fresh.helper.answer(recorder.view("helper")[1])
    with pytest.raises(SharesError, match="as many live positions as arms, got 3"):
        fresh.helper.answer(
            replace(compare, place=Place(0, 0, 0, 0), live=np.array([1, 1, 1, 0], np.uint8))
        )


def test_the_helper_refuses_fields_of_another_size_and_keeps_what_it_has():
    local, recorder, opened, _ = one_decision()
    local.learn(local.pick(opened, 0), 0.5)
    sent = recorder.view("helper")

    def helper_before(number):
        fresh = local_shares(local.terms).helper
        for message in sent[:number]:
            fresh.answer(message)
        return fresh

    for number, message in enumerate(sent):
        for part in fields(message)[1:]:
            value = getattr(message, part.name)
            if isinstance(value, np.ndarray) and value.size:
                helper = helper_before(number)
                with pytest.raises(SharesError, match="wanted"):
                    helper.answer(replace(message, **{part.name: value[..., :0]}))
                helper.answer(message)


def test_the_helper_refuses_messages_that_no_active_server_would_send():
    local, recorder, _, _ = one_decision()
    ask, *_ = recorder.view("helper")
    by_kind = {type(m): m for m in recorder.view("helper")}
    helper = local_shares(local.terms).helper
    helper.answer(ask)
    sample = by_kind[messages.Sample]
    with pytest.raises(SharesError, match="wanted contexts of 1 to 4 arms"):
        helper.answer(replace(sample, contexts=np.zeros(2, np.uint64)))
    helper.answer(sample)
    with pytest.raises(SharesError, match="nothing was compared in slot 0"):
        helper.answer(messages.Results(ask.place, np.zeros(0, np.uint8)))
    compare = by_kind[messages.Compare]
    with pytest.raises(SharesError, match="wanted live of shape"):
        helper.answer(replace(compare, live=compare.live[:, None]))
    helper.answer(compare)


def test_the_helper_compares_nothing_once_the_shown_arm_is_known():
    local = local_shares(small_terms())
    opened = local.decide([np.full((1, width), 0.25) for width in local.terms.widths])
    local.pick(opened, 0)  # one arm is not compared with itself
    live = np.zeros(local.terms.max_arms, np.uint8)
    live[0] = 1
    late = messages.Compare(opened.place, live, np.zeros(1, np.uint64), np.zeros(0, np.uint16))
    with pytest.raises(SharesError, match="this slot is over: its words are gone"):
        local.helper.answer(late)


def test_the_helper_refuses_steps_of_a_reward_out_of_turn():
    local, recorder, opened, _ = one_decision()
    local.learn(local.pick(opened, 0), 0.5)
    sent = recorder.view("helper")
    by_kind = {type(message): message for message in sent}
    helper = local_shares(local.terms).helper
    for message in sent[: sent.index(by_kind[messages.Recall]) + 1]:
        helper.answer(message)
    with pytest.raises(SharesError, match="no context was whitened in slot 0"):
        helper.answer(by_kind[messages.Learn])
    with pytest.raises(SharesError, match="no reward was learnt in slot 0"):
        helper.answer(by_kind[messages.Settle])


def test_answers_of_another_size_are_refused_after_rewards():
    local, _, opened, X = one_decision()
    local.learn(local.pick(opened, 0), 0.5)
    place = local.active.next_place()
    exchange = local.active.prepare(place)
    asked = local.helper.answer(next(exchange))
    with pytest.raises(StopIteration) as ready:
        exchange.send(replace(asked, projections=asked.projections[:, :0]))
    blocks = [
        one.share(place, block)
        for one, block in zip(local.participants, split_rows(X, local.terms), strict=True)
    ]
    with pytest.raises(SharesError, match="wanted words that fit together"):
        next(local.active.decide(ready.value.value, blocks))


def test_the_helper_compares_nothing_where_statistics_are_released():
    recorder = Recorder()
    terms = covariance_terms("means", "statistics")
    local = local_shares(terms, on_message=recorder)
    local.decide(split_rows(unit_rows(np.random.default_rng(0), 2, 5), terms))
    place = recorder.view("helper")[0].place
    live, numbers = np.array([1, 1, 0, 0], np.uint8), np.zeros(2, np.uint64)
    for message in (
        messages.Compare(place, live, numbers, np.zeros(2, np.uint16)),
        messages.Results(place, np.zeros(2, np.uint8)),
    ):
        with pytest.raises(SharesError, match="nothing is compared"):
            local.helper.answer(message)


def test_the_active_server_refuses_what_is_out_of_turn():
    local, _, opened, _ = one_decision(decisions=1)
    with pytest.raises(SharesError, match="no slot left for a decision"):
        local.active.next_place()
    with pytest.raises(SharesError, match="wanted what is dealt for window 0, got window 1"):
        local.active.take(local.dealer.deal())
    with pytest.raises(ArmError, match="a position among 4, got 4"):
        local.pick(opened, 4)
    with pytest.raises(SharesError, match="folded after 3 rewards, got 0"):
        next(local.active.fold())
    with pytest.raises(SharesError, match="no context waits"):
        local.learn((0, 3), 1.0)
    event = local.pick(opened, 1)
    with pytest.raises(RewardError, match="at most 16 in size, got 17"):
        local.learn(event, 17.0)
    local.learn(event, 1.0)
    with pytest.raises(SharesError, match="no context waits"):
        local.learn(event, 1.0)


def test_the_active_server_refuses_an_answer_of_another_kind():
    local, _, opened, _ = one_decision()
    exchange = local.active.pick(opened, 0)
    next(exchange)
    other = messages.Candidates(Place(0, 0, 0, 0), np.zeros(1, np.uint8))
    with pytest.raises(SharesError, match="wanted a Picked message, got Candidates"):
        exchange.send(other)


def test_scores_beyond_what_is_compared_are_noticed_where_no_arm_is_left():
    local, recorder, _, _ = one_decision()
    answers = iter(recorder.view("active", "helper"))
    fresh = local_shares(local.terms)
    fresh.active.take(fresh.dealer.deal())
    blocks = recorder.view("active", "participant")
    exchange = event_id_of(fresh.active, blocks)
    next(exchange)
    for _ in range(3):
        exchange.send(next(answers))
    none = replace(next(answers), candidates=np.zeros(4, np.uint8))
    with pytest.raises(SharesError, match="no arm is the best"):
        exchange.send(none)


def test_without_a_deal_the_active_server_has_no_slot():
    local = local_shares(small_terms())
    with pytest.raises(SharesError, match="window 0 was not dealt"):
        local.active.next_place()


def test_a_full_window_takes_no_reward():
    local, _, _, _ = one_decision()
    local.active.n_rows = 3
    with pytest.raises(SharesError, match="no slot left for a reward"):
        next(local.active.fill())


@pytest.mark.parametrize("is_answered", [False, True])
@pytest.mark.parametrize("goes_on_with", ["decision", "reward"])
def test_a_fold_that_failed_on_its_way_is_repeated(is_answered, goes_on_with, monkeypatch):
    local, recorder, opened, X = one_decision(window=1)
    events = [local.pick(opened, 1), local.pick(local.decide(split_rows(X, local.terms)), 0)]
    answer = local.helper.answer

    def lose(message):
        if isinstance(message, messages.Fold):
            if is_answered:
                answer(message)
            raise ConnectionError
        return answer(message)

    with monkeypatch.context() as patch:
        patch.setattr(local.helper, "answer", lose)
        with pytest.raises(ConnectionError):
            local.learn(events[0], 1.0)
    if goes_on_with == "decision":
        local.decide(split_rows(X, local.terms))
    else:
        local.learn(events[1], 1.0)
    first, second = [x for x in recorder.view("helper") if isinstance(x, messages.Fold)][:2]
    assert first.to_bytes() == second.to_bytes()
    whole = local_shares(local.terms)
    for arm in (1, 0)[: 1 if goes_on_with == "decision" else 2]:
        whole.learn(whole.pick(whole.decide(split_rows(X, local.terms)), arm), 1.0)
    for found, wanted in zip(local.reveal(), whole.reveal(), strict=True):
        assert_allclose(found, wanted, atol=1e-9)


def test_the_helper_refuses_another_fold_of_a_window_that_is_over():
    local, recorder, opened, _ = one_decision(window=1)
    local.learn(local.pick(opened, 0), 0.5)
    fold = recorder.view("helper")[-1]
    answer = recorder.view("active", "helper")[-1]
    assert local.helper.answer(fold).to_bytes() == answer.to_bytes()
    with pytest.raises(SharesError, match="window 0 was folded before"):
        local.helper.answer(replace(fold, theta=fold.theta ^ np.uint64(1)))


def test_look_ups_of_too_many_bits_are_refused_by_both_servers():
    local, recorder, _, _ = one_decision()
    fresh = local_shares(local.terms)
    for message in recorder.view("helper")[:2]:
        fresh.helper.answer(message)
    compare = recorder.view("helper")[2]
    with pytest.raises(SharesError, match="look-ups of 13 bits, got a larger number"):
        fresh.helper.answer(replace(compare, lookups=compare.lookups | np.uint16(2**13)))
    compared = fresh.helper.answer(compare)
    fresh.active.take(fresh.dealer.deal())
    blocks = recorder.view("active", "participant")
    exchange = event_id_of(fresh.active, blocks)
    next(exchange)
    for reply in recorder.view("active", "helper")[:2]:
        exchange.send(reply)
    with pytest.raises(SharesError, match="look-ups of 13 bits, got a larger number"):
        exchange.send(replace(compared, lookups=compared.lookups | np.uint16(2**15)))


def send_all(exchange, replies):
    for reply in replies:
        exchange.send(reply)


def test_the_active_server_refuses_answers_of_another_size():
    local, recorder, opened, _ = one_decision()
    event = local.pick(opened, 0)
    local.learn(event, 0.5)
    blocks = recorder.view("active", "participant")
    answers = recorder.view("active", "helper")

    def exchanges_of(fresh):
        fresh.active.take(fresh.dealer.deal())
        opened = yield from event_id_of(fresh.active, blocks)
        event = yield from fresh.active.pick(opened, 0)
        yield from fresh.active.learn(event, 0.5)

    for number, answer in enumerate(answers):
        for part in fields(answer)[1:]:
            value = getattr(answer, part.name)
            if not value.size:
                continue
            exchange = exchanges_of(local_shares(local.terms))
            next(exchange)
            send_all(exchange, answers[:number])
            wrong = replace(answer, **{part.name: value[..., :0]})
            with pytest.raises(SharesError, match="wanted"):
                send_all(exchange, (wrong, *answers[number + 1 :]))


def test_a_missing_or_foreign_block_is_refused():
    local, recorder, _, _ = one_decision()
    blocks = recorder.view("active", "participant")
    ready = local._run(local.active.prepare(local.active.next_place()))  # noqa: SLF001
    for wrong in (blocks[:1], blocks[::-1], blocks):
        with pytest.raises(SharesError, match="slot 1 needs a block of each participant"):
            next(local.active.decide(ready, wrong))


def test_blocks_of_another_width_or_of_too_many_arms_are_refused():
    local, recorder, _, _ = one_decision()
    fresh = local_shares(local.terms)
    fresh._ensure_deal()  # noqa: SLF001
    blocks = recorder.view("active", "participant")
    first = blocks[0].contexts
    narrow = replace(blocks[0], contexts=first[:, :, :1])
    many = [replace(b, contexts=np.repeat(b.contexts, 2, axis=1)) for b in blocks]
    ready = fresh._run(fresh.active.prepare(fresh.active.next_place()))  # noqa: SLF001
    for wrong in ([narrow, blocks[1]], many):
        again = deepcopy(fresh.active)
        with pytest.raises(SharesError, match="wanted words that fit together"):
            next(again.decide(ready, wrong))


def test_a_participant_shares_one_block_in_a_slot():
    terms = small_terms()
    local = local_shares(terms)
    one, place = local.participants[0], Place(0, 0, 0, 1)
    block = np.full((3, 2), 0.5)
    assert one.share(place, block).to_bytes() == one.share(place, block).to_bytes()
    with pytest.raises(SharesError, match="slot 1 of window 0 was used before"):
        one.share(place, block + 0.1)
    one.share(Place(0, 1, 0, 0), block)
    with pytest.raises(SharesError, match="slot 1 of window 0 was used before"):
        one.share(place, block)
    assert repr(one) == "SharingParticipant(0)"


@pytest.mark.parametrize("value", [np.nan, np.inf, 2.0])
def test_blocks_beyond_the_bound_use_no_slot(value):
    terms = small_terms()
    local = local_shares(terms)
    X = np.zeros((2, 5))
    X[1, 4] = value
    with pytest.raises(SharesError, match="at most 1 long, the declared bound"):
        local.decide(split_rows(X, terms))
    with pytest.raises(ArmError, match="at most max_arms=4 arms, got 5"):
        local.decide(split_rows(np.zeros((5, 5)), terms))
    assert local.active.n_slots == 0


def test_both_servers_let_the_oldest_context_go():
    terms = small_terms()
    local = local_shares(terms)
    for server in (local.active, local.helper):
        server._max_open = 1  # noqa: SLF001
    X = split_rows(np.full((2, 5), 0.1), terms)
    first, second = (local.pick(local.decide(X), 0) for _ in range(2))
    with pytest.raises(SharesError, match="no context waits"):
        local.learn(first, 1.0)
    local.learn(second, 1.0)


def test_the_dealer_draws_again_where_a_number_could_wrap(monkeypatch):
    refused = []

    def wraps_once(mask):
        if not refused:
            refused.append(mask)
            raise SharesError("could wrap")
        return sides.reopened_mask(mask)

    monkeypatch.setattr(dealer_module, "reopened_mask", wraps_once)
    local = local_shares(small_terms())
    play(local, rounds=8, seed=1)
    assert len(refused) == 1
    monkeypatch.setattr(dealer_module, "reopened_mask", lambda _: sides.reopened_mask(MAX_WORDS))
    with pytest.raises(SharesError, match="could wrap"):
        local.dealer.deal()


MAX_WORDS = ring.from_integers([2**128 - 1])


def test_no_role_shows_a_secret():
    local, _, _, _ = one_decision()
    assert repr(local.dealer) == "Dealer(windows=1)"
    assert repr(local.active) == "ActiveServer(window=0, rows=0, slots=1)"
    sheet = ring.WordSource(bytes(32)).sheet(ring.SheetName("a", 0, 0, 0, 0), {"words": (2,)})
    assert repr(sheet).endswith("left=['words'])")
    assert repr(local.helper) == "Helper(window=0, rows=0, open=0)"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"max_arms": 65}, "max_arms must be at most 64"),
        ({"max_arms": 0}, "max_arms must be"),
        ({"window": 0}, "window must be"),
        ({"bound": -1.0}, "bound must be a positive number"),
        ({"ridge": 0.0}, "ridge must be a positive number, got 0.0"),
        ({"bound": 30.0}, "must be at most 16 on secret shares, got 60"),
        ({"posterior_scale": 3.0}, "must be at most 4 on secret shares, got 6"),
        ({"posterior_scale": 65.0, "bound": 1e-3}, "at most 64 on secret shares, got 65"),
        (
            {
                "reads": "widths",
                "release": "statistics",
                "max_arms": 1024,
                "widths": (10_000, 7_000),
            },
            "has at most 67,108,864 products that are masked again, got 214,",
        ),
    ],
)
def test_terms_that_the_ring_has_no_room_for_are_refused(changes, reason):
    with pytest.raises(SettingError, match=reason):
        small_terms(**changes)
