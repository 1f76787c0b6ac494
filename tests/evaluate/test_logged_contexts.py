"""A campaign's own journal tells what another policy would have earned, in every layout."""

import asyncio
from itertools import chain

import numpy as np
import polars as pl
import pytest
from journals import KEY, OnSqlite
from logged_campaign import ARMS, DIM, LAYOUTS, LoggedCampaign

import vfbandits as vfb
from vfbandits.campaign.draws import FOR_CONTEXTS, FOR_HOLDBACK, EventDraws
from vfbandits.campaign.events import Decided
from vfbandits.errors import SettingError
from vfbandits.evaluate import evaluate, read_log, target_probabilities, teach
from vfbandits.evaluate.evaluation import EvaluationSettings, FrozenTarget
from vfbandits.evaluate.target import split_log
from vfbandits.journal.compact import compact
from vfbandits.journal.erase import ErasureRequest, erase_user
from vfbandits.journal.record import encode

DAY_S = 86_400.0


def served(campaign, *deeds, arms=lambda number: ARMS):
    """A deed is a number of events, or "masks", "save", or settings to change."""

    async def main():
        leader = campaign.open()
        for deed in deeds:
            if deed == "masks":
                await campaign.change_masks(leader)
            elif deed == "save":
                await leader.durable.snapshot()
            elif isinstance(deed, dict):
                await leader.configure(deed, by="ops")
            else:
                await campaign.serve(leader, deed, arms=arms)
        await leader.durable.close()

    asyncio.run(main())
    return campaign


def agent_of(log, policy=None):
    return lambda: vfb.Bandit(
        policy or vfb.LinUCB(beta=0.3),
        dim=DIM,
        layout=log.layout,
        arm_dim=None if log.arm_features is None else log.arm_features.shape[-1],
        intercept=log.layout != "per_arm",
        seed=0,
    )


def some_arms(number):
    """Three or four of them, in an order that changes."""
    offer = [arm for place, arm in enumerate(ARMS) if (number + place) % 5]
    return offer[::-1] if number % 2 else offer


@pytest.mark.parametrize("arms", [lambda number: ARMS, some_arms], ids=["all", "some"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_estimates_from_the_export_are_those_of_the_contexts_themselves(tmp_path, layout, arms):
    """Up to rounding, behind masks that changed twice: every estimator is blind to them."""
    path = tmp_path / "log.parquet"
    campaign = served(LoggedCampaign(layout), 120, "masks", 60, "masks", 60, arms=arms)
    made = campaign.export(path)
    assert (made.rows, made.evaluable, made.layout) == (240, 240, layout)
    log, plain = read_log(path), campaign.plain_log()
    assert (log.layout, log.arms, log.n_arms) == (layout, ARMS, 4)
    assert (log.offered is None) == (arms is not some_arms)
    np.testing.assert_allclose(log.contexts, plain.contexts @ campaign.source.turn.T, atol=1e-12)
    rng = np.random.default_rng
    found = evaluate(log, agent_of(log), rng=rng(0))
    wanted = evaluate(plain, agent_of(plain), rng=rng(0))
    for one, other in zip(found, wanted, strict=True):
        assert one.value == pytest.approx(other.value, abs=1e-9), one.estimator
        assert one.low == pytest.approx(other.low, abs=1e-9)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_estimate_from_the_export_is_near_the_truth(tmp_path, layout):
    """Within four standard errors: of the policy that the first half has taught."""
    path = tmp_path / "log.parquet"
    campaign = served(LoggedCampaign(layout, seed=3), 800)
    campaign.export(path)
    first, rest = split_log(read_log(path), train_share=0.5)
    probabilities = target_probabilities(teach(agent_of(rest)(), first), rest)
    means = np.array([campaign.source.means(str(user), ARMS) for user in range(400, 800)])
    truth = (probabilities * means).sum(axis=1).mean()
    judge = FrozenTarget(
        rest, probabilities, settings=EvaluationSettings(), rng=np.random.default_rng(0)
    )
    for name in ("ips", "snips", "dr", "sndr"):
        terms = judge.terms(name)
        assert abs(terms.value - truth) < 4.0 * terms.standard_error, name
    assert judge.terms("dr").value > rest.value + 2.0 * judge.terms("dr").standard_error


@pytest.mark.parametrize("layout", ["per_arm", "outer"])
def test_a_fraction_is_drawn_by_events_and_the_rest_is_skipped(tmp_path, layout):
    path = tmp_path / "log.parquet"
    campaign = served(LoggedCampaign(layout, log_contexts=0.3), 300)
    made = campaign.export(path)
    draws = EventDraws(1)
    wanted = [f"e{n}" for n in range(300) if draws.fraction(f"e{n}", FOR_CONTEXTS) < 0.3]
    assert 60 < len(wanted) < 120
    table = pl.read_parquet(path)
    assert (made.rows, made.evaluable, len(table)) == (300, len(wanted), 300)
    column = "offered_contexts" if layout == "per_arm" else "offered_features"
    assert table.filter(pl.col(column).is_not_null())["event_id"].to_list() == wanted
    log = read_log(path)
    assert len(log) == len(wanted)
    rewards = dict(zip(table["event_id"], table["reward"], strict=True))
    assert log.rewards.tolist() == [rewards[name] for name in wanted]
    if layout == "outer":  # a model for each arm, of the same users
        assert len(read_log(path, layout="disjoint")) == len(wanted)
    else:
        with pytest.raises(SettingError, match="it has contexts of layout 'per_arm'"):
            read_log(path, layout="disjoint")


def test_another_seed_draws_other_events_and_the_holdback_others_again():
    """An application that chooses ids cannot choose which of them are logged."""
    names = [f"e{n}" for n in range(2_000)]

    def drawn(seed, purpose):
        draws = EventDraws(seed)
        return np.array([draws.fraction(name, purpose) < 0.5 for name in names])

    first = drawn(1, FOR_CONTEXTS)
    assert 0.45 < first.mean() < 0.55
    assert (first == drawn(1, FOR_CONTEXTS)).all()
    for other in (drawn(2, FOR_CONTEXTS), drawn(1, FOR_HOLDBACK)):
        assert 0.45 < (first == other).mean() < 0.55


def test_contexts_are_kept_from_the_change_of_settings_on(tmp_path):
    path = tmp_path / "log.parquet"
    campaign = LoggedCampaign("outer", log_contexts="chosen")
    served(campaign, 30)
    assert campaign.export(path).evaluable == 0
    with pytest.raises(SettingError, match=r'must have context columns.* log_contexts = "all"'):
        read_log(path, layout="outer")
    served(campaign, {"log_contexts": "all"}, 20, "masks", {"log_contexts": "chosen"}, 10)
    assert campaign.export(path).evaluable == 20
    assert len(read_log(path)) == 20
    with pytest.raises(SettingError, match="log_contexts must be 'all', 'chosen' or a fraction"):
        served(campaign, {"log_contexts": "every"})


def test_arm_features_that_change_are_those_of_each_event(tmp_path):
    path = tmp_path / "log.parquet"
    campaign = served(LoggedCampaign("outer"), 40)
    before = campaign.source.features["ale"].copy()
    campaign.source.features["ale"] = before + 1.0
    served(campaign, 40)
    campaign.export(path)
    log = read_log(path)
    assert log.arm_features.shape == (80, 4, 2)
    assert (log.arm_features[:40, 0] == before).all()
    assert (log.arm_features[40:, 0] == before + 1.0).all()
    found = evaluate(log, agent_of(log), rng=np.random.default_rng(0))
    assert np.isfinite([one.value for one in found]).all()


@pytest.mark.parametrize("layout", ["per_arm", "outer"])
def test_erasure_retention_and_compaction_take_the_contexts_along(tmp_path, layout):
    place = OnSqlite(tmp_path)
    campaign = served(LoggedCampaign(layout, journal=place.open), 12, "save", 3, "save")
    journal = place.open()
    at = {event.user: event.offered.rows.tobytes() for _, event in journal.read()
          if isinstance(event, Decided)}  # fmt: skip
    assert at["5"] in on_disk(tmp_path)
    erase_user(journal, ErasureRequest("5", "on request", "ops", 0.0))
    journal.close()
    assert at["5"] not in on_disk(tmp_path)
    assert at["6"] in on_disk(tmp_path)
    assert campaign.export(tmp_path / "log.parquet").evaluable == 14
    journal = place.open()
    assert compact(journal) is not None
    journal.close()
    assert at["6"] not in on_disk(tmp_path)


def test_with_a_key_the_contexts_are_not_on_the_disk_and_the_export_has_them(tmp_path):
    place = OnSqlite(tmp_path, KEY)
    campaign = served(LoggedCampaign("per_arm", journal=place.open), 5)
    rows = [event.offered.rows for event in decided(place)]
    assert not any(one.tobytes() in on_disk(tmp_path) for one in rows)
    campaign.export(tmp_path / "log.parquet")
    assert (read_log(tmp_path / "log.parquet").contexts == np.array(rows)).all()


def on_disk(folder):
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def decided(place):
    journal = place.open()
    records = chain(journal.remains(), journal.read(journal.compacted_to))
    events = [event for _, event in records if isinstance(event, Decided)]
    journal.close()
    return events


def test_old_contexts_leave_with_their_records(tmp_path):
    place = OnSqlite(tmp_path)
    campaign = LoggedCampaign("per_arm", journal=place.open)
    served(campaign, 5)
    first = decided(place)[0].offered.rows.tobytes()
    campaign.clock.now += 3 * DAY_S

    async def main():
        leader = campaign.open()
        leader.retain_s = DAY_S
        await campaign.serve(leader, 5)
        assert await leader.retain() > 0
        await leader.durable.close()

    asyncio.run(main())
    assert {event.user for event in decided(place)} == {"5", "6", "7", "8", "9"}
    assert first not in on_disk(tmp_path)


def test_a_record_grows_by_the_numbers_that_it_keeps():
    """Documented: 8 bytes for each number, and the ids of the arms."""
    sizes = {}
    for keep in ("chosen", "all"):
        campaign = served(LoggedCampaign("per_arm", log_contexts=keep), 1)
        journal = campaign.open_journal()
        event = next(one for _, one in journal.read() if isinstance(one, Decided))
        journal.close()
        sizes[keep] = len(encode(event))
    ids = sum(len(arm) + 1 for arm in ARMS)
    assert 0 <= sizes["all"] - sizes["chosen"] - 8 * DIM * len(ARMS) - ids < 12
