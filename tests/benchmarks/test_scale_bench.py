import os

import pytest
from benchmarks import scale
from benchmarks.scale_federation import LEADER, RANKER, cpu_s


def cost(decisions, rounds, leader_s):
    return scale.Cost(decisions, 100.0, rounds, {LEADER: leader_s}, 0.01)


def test_bars_are_medians_of_turns_and_of_the_shares_of_each_turn():
    alone = scale.Seen([cost(1_000, 50, 0.5), cost(2_000, 100, 2.0), cost(1_000, 50, 0.1)])
    apart = scale.Seen([cost(1_000, 50, 0.4), cost(500, 100, 0.6), cost(1_000, 90, 0.09)])
    per_round, share = scale.bars_of({scale.RANK: {scale.ALONE: alone, scale.APART: apart}})
    assert (per_round.measured, per_round.verdict) == (pytest.approx(1_000 / 90), "pass")
    assert (share.measured, share.verdict) == (pytest.approx(0.9), "pass")
    assert apart.figures()["cpu_us"] == {LEADER: pytest.approx(400.0)}
    slow = scale.Seen([cost(1_000, 800, 1.6)] * 3)
    bars = scale.bars_of({scale.RANK: {scale.ALONE: alone, scale.APART: slow}})
    assert [bar.verdict for bar in bars] == ["FAIL", "FAIL"]


def test_the_time_of_a_process_grows_with_its_work():
    before = cpu_s(os.getpid())
    while cpu_s(os.getpid()) < before + 0.03:
        sum(range(10_000))


@pytest.mark.long
def test_both_are_played_and_every_process_is_accounted_for(tmp_path):
    plan = scale.Plan(turns=1, seconds=0.5, in_flight=8, loads=(scale.REWARDED,))
    seen = scale.race(tmp_path, plan)
    assert seen.keys() == {scale.REWARDED}
    for both in seen.values():
        assert both.keys() == {scale.ALONE, scale.APART}
        for who, each in both.items():
            (turn,) = each.costs
            assert turn.decisions > 0
            assert 0 < turn.rounds <= turn.decisions
            passive = {"bank", "news", "postgresql"}
            ranker = {RANKER} if who == scale.APART else set()
            assert turn.cpu_s.keys() == {LEADER, *passive, *ranker}
            assert turn.each_us(LEADER) > 0.0
