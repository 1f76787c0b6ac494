"""The covariance form on secret shares: statistics and arms as in the open."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from plain_loops import needs_loops, turn_off_loops
from shares_world import (
    COVARIANCE_FORMS,
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
from vfbandits.core.shares import messages as m
from vfbandits.core.shares.covariance import messages as c
from vfbandits.core.shares.messages import Place
from vfbandits.core.shares.terms import MAX_ADDEND
from vfbandits.errors import SettingError, SharesError

EACH_FORM = pytest.mark.parametrize(("reads", "release"), COVARIANCE_FORMS)


def play(local, *, rounds, seed, max_late=6):
    """Decide and reward beside a plain twin, rewards late and shuffled; as in the open."""
    terms = local.terms
    rng = np.random.default_rng(seed)
    twin, _ = plain_twin(terms)
    theta_star = rng.standard_normal(terms.dim)
    waiting = []
    for _ in range(rounds):
        X = unit_rows(rng, int(rng.integers(1, terms.max_arms + 1)), terms.dim)
        opened = local.decide(split_rows(X, terms))
        decision = twin.decide(X)
        refuse_unless_released(opened, decision, X, twin, terms)
        waiting.append((local.pick(opened, decision.index), decision, X[decision.index]))
        rng.shuffle(waiting)
        while len(waiting) > rng.integers(max_late):
            event, decision, x = waiting.pop()
            reward = float(np.clip(x @ theta_star + 0.1 * rng.standard_normal(), -16, 16))
            local.learn(event, reward)
            twin.reward(decision, reward)
    return twin.states[None]


def refuse_unless_released(opened, decision, X, twin, terms):
    if terms.release == "arm":
        assert opened.arm == decision.index
        assert opened.statistics is None
        return
    assert_allclose(opened.statistics.means, decision.means, atol=1e-10)
    state = twin.states.get(None)
    inverse = np.eye(terms.dim) / terms.ridge if state is None else np.linalg.inv(state.Lambda)
    C = X @ inverse @ X.T
    wanted = {
        "means": np.zeros(0),
        "widths": np.diagonal(C),
        "covariance": 2.0 * C[np.tril_indices(len(X))],
    }[terms.reads]
    assert_allclose(opened.statistics.forms, wanted, atol=1e-10)


@needs_loops
@settings(max_examples=25, deadline=None)
@given(
    form=st.sampled_from(COVARIANCE_FORMS),
    widths=st.lists(st.integers(1, 3), min_size=2, max_size=3),
    window=st.integers(1, 4),
    decisions=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
)
def test_statistics_arms_and_state_are_those_of_a_plain_bandit(
    form, widths, window, decisions, seed
):
    terms = covariance_terms(*form, widths=tuple(widths), window=window, decisions=decisions)
    local = local_shares(terms, seed=seed)
    state = play(local, rounds=25, seed=seed)
    theta, inverse = local.reveal()
    assert_allclose(theta, state.theta, atol=1e-9)
    assert_allclose(inverse, np.linalg.inv(state.Lambda), atol=1e-9)


@EACH_FORM
def test_the_plain_loops_open_the_same_numbers_as_the_compiled_ones(reads, release, monkeypatch):
    terms = covariance_terms(reads, release)
    compiled, plain = Recorder(), Recorder()
    play(local_shares(terms, on_message=compiled), rounds=6, seed=3)
    turn_off_loops(monkeypatch)
    play(local_shares(terms, on_message=plain), rounds=6, seed=3)
    for (*_, one), (*_, other) in zip(compiled.messages, plain.messages, strict=True):
        assert one.to_bytes() == other.to_bytes()


def window_of_messages(reads, release, **changes):
    terms = covariance_terms(reads, release, window=2, **changes)
    recorder = Recorder()
    local = local_shares(terms, on_message=recorder)
    X = unit_rows(np.random.default_rng(0), terms.max_arms, terms.dim)
    for _ in range(2):
        local.learn(local.pick(local.decide(split_rows(X, terms)), 1), 0.5)
    return local, recorder


@EACH_FORM
def test_a_decision_and_a_reward_take_few_exchanges(reads, release):
    _, recorder = window_of_messages(reads, release)
    asks = [type(message) for message in recorder.view("helper")]
    comparison = [m.Compare, m.Results] if release == "arm" else []
    once = [c.Score, *comparison, m.Pick, m.Recall, c.Project, c.Scale]
    assert asks == [*once, *once, c.Shrink]


def test_repeated_messages_get_the_same_bytes_and_others_are_refused():
    local, recorder = window_of_messages("widths", "arm", max_arms=2)
    sent, answers = recorder.view("helper"), recorder.view("active", "helper")
    fresh = local_shares(local.terms).helper
    for message, answer in zip(sent, answers, strict=True):
        assert fresh.answer(message).to_bytes() == answer.to_bytes()
        assert fresh.answer(message).to_bytes() == answer.to_bytes()
        for part in fields(message)[1:]:
            value = getattr(message, part.name)
            if isinstance(value, np.ndarray) and value.size:
                changed = value.copy()
                changed.flat[0] ^= changed.dtype.type(1)
                with pytest.raises(SharesError, match="before: a second message"):
                    fresh.answer(replace(message, **{part.name: changed}))


def test_fields_of_another_size_are_refused_and_the_right_ones_still_taken():
    local, recorder = window_of_messages("widths", "statistics", max_arms=2)
    fresh = local_shares(local.terms).helper
    for message, answer in zip(
        recorder.view("helper"), recorder.view("active", "helper"), strict=True
    ):
        for part in fields(message)[1:]:
            value = getattr(message, part.name)
            if isinstance(value, np.ndarray) and value.size:
                with pytest.raises(SharesError, match="wanted"):
                    fresh.answer(replace(message, **{part.name: value[..., :0]}))
        assert fresh.answer(message).to_bytes() == answer.to_bytes()


def send_all(exchange, replies):
    for reply in replies:
        exchange.send(reply)


@pytest.mark.parametrize(("reads", "release"), [("means", "arm"), ("widths", "statistics")])
def test_the_active_server_refuses_answers_of_another_size(reads, release):
    local, recorder = window_of_messages(reads, release, max_arms=2)
    blocks = recorder.view("active", "participant")[:2]
    answers = recorder.view("active", "helper")

    def exchanges_of(fresh):
        fresh.active.take(fresh.dealer.deal())
        opened = yield from event_id_of(fresh.active, blocks)
        event = yield from fresh.active.pick(opened, 1)
        yield from fresh.active.learn(event, 0.5)

    n_answers = 7 if release == "arm" else 5
    for number, answer in enumerate(answers[:n_answers]):
        for part in fields(answer)[1:]:
            value = getattr(answer, part.name)
            if not value.size:
                continue
            exchange = exchanges_of(local_shares(local.terms))
            next(exchange)
            wrong = replace(answer, **{part.name: value[..., :0]})
            replies = (*answers[:number], wrong, *answers[number + 1 : n_answers])
            with pytest.raises(SharesError, match="wanted"):
                send_all(exchange, replies)


def test_messages_out_of_turn_or_of_the_other_form_are_refused():
    local, recorder = window_of_messages("widths", "arm")
    by_kind = {type(message): message for message in recorder.view("helper")}
    fresh = local_shares(local.terms).helper
    place = Place(0, 0, 0, 0)
    project, scale = (replace(by_kind[kind], place=place) for kind in (c.Project, c.Scale))
    for message in (project, scale):
        with pytest.raises(SharesError, match="no context was recalled in slot 0"):
            fresh.answer(message)
    with pytest.raises(SharesError, match="folded after 2 rewards, got 0"):
        fresh.answer(replace(by_kind[c.Shrink], place=place))
    ask = m.Ask(place, 0, ring.zeros(5))
    with pytest.raises(SharesError, match="Ask message is of another form of the state"):
        fresh.answer(ask)
    with pytest.raises(SharesError, match="Score message is of another form of the state"):
        local_shares(small_terms()).helper.answer(by_kind[c.Score])


@pytest.mark.parametrize("step", [m.Recall, c.Project, c.Scale, c.Shrink])
@pytest.mark.parametrize("is_answered", [False, True])
def test_a_reward_or_fold_that_failed_is_repeated_with_the_same_bytes(
    step, is_answered, monkeypatch
):
    terms = covariance_terms("widths", "arm", window=2)
    recorder = Recorder()
    local, whole = local_shares(terms, on_message=recorder), local_shares(terms)
    X = split_rows(unit_rows(np.random.default_rng(0), 3, terms.dim), terms)
    answer = local.helper.answer

    def lose(message):
        if isinstance(message, step):
            if is_answered:
                answer(message)
            raise ConnectionError
        return answer(message)

    events = [local.pick(local.decide(X), arm) for arm in (0, 1)]
    local.learn(events[0], 1.0)
    with monkeypatch.context() as patch:
        patch.setattr(local.helper, "answer", lose)
        with pytest.raises(ConnectionError):
            local.learn(events[1], -1.0)
    if step is c.Shrink:
        local.decide(X)  # folds first
    else:
        local.learn(events[1], -1.0)
    for event, reward in zip(
        [whole.pick(whole.decide(X), arm) for arm in (0, 1)], (1.0, -1.0), strict=True
    ):
        whole.learn(event, reward)
    for found, wanted in zip(local.reveal(), whole.reveal(), strict=True):
        assert_allclose(found, wanted, atol=1e-10)
    seen = {}
    for message in recorder.view("helper"):
        data = message.to_bytes()
        assert seen.setdefault((message.KIND, message.place), data) == data


def test_contexts_of_zeros_tie_and_have_no_width():
    terms = covariance_terms("widths", "arm")
    local = local_shares(terms)
    X = split_rows(np.zeros((4, 5)), terms)
    assert [local.decide(X).arm for _ in range(8)] == [0] * 8


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"reads": "median"}, "reads must be one of noise, means, widths, covariance"),
        ({"release": "all"}, "release must be one of arm, statistics, got 'all'"),
        ({"reads": "covariance"}, "release 'arm' does not go with reads 'covariance'"),
        ({"release": "statistics"}, "release 'statistics' does not go with reads 'noise'"),
        ({"reads": "widths", "beta": 17.0}, "must be at most 32 on secret shares"),
        ({"reads": "widths", "max_arms": 65}, "at most 64 .* got 65: .* every pair of arms"),
        (
            {"reads": "widths", "release": "statistics", "max_arms": 1_025},
            "at most 1024 .* got 1025: each decision needs dealt words for every arm",
        ),
    ],
)
def test_terms_that_do_not_go_together_are_refused(changes, reason):
    with pytest.raises(SettingError, match=reason):
        small_terms(**changes)


def test_rows_as_long_as_the_bound_are_decided_with_the_largest_beta():
    """Rounding may take a width above what the bound of the rows says."""
    terms = covariance_terms("widths", "arm", widths=(1, 1), ridge=2.0 / 256.0, beta=2.0)
    assert terms.beta * terms.max_length == MAX_ADDEND
    local = local_shares(terms)
    for _ in range(8):
        rows = np.array([[1.0, 1.0], [0.5, -0.5]])
        assert local.decide(split_rows(rows, terms)).arm == 0
