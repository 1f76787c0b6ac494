import asyncio

import pytest
from benchmarks import federation, http
from benchmarks.http_fan_out import FanOut
from benchmarks.http_fan_out import play as play_rounds
from benchmarks.http_line import LineProcess, Turn
from benchmarks.http_load import Load, play
from benchmarks.process import ROOT, WorkerDiedError


def test_ours_and_the_empty_handler_are_timed_with_many_clients_and_with_one(tmp_path):
    plan = http.Plan(turns=1, seconds=0.2, one_s=0.1, connections=4)
    seen = http.no_passive(tmp_path, plan, masks=["dense"])
    more = {"rank with ids, dense, alone", "rank and reward, dense, alone"}
    ways = {http.DIRECT, http.BY_PROXY, http.IN_CAMPAIGN}
    assert seen.keys() == {http.EMPTY, http.BARE, http.ALONE, *more, *ways}
    assert {name: len(contestant.many) for name, contestant in seen.items()} == {
        name: 5 if name in ways else 1 for name in seen
    }
    for contestant in seen.values():
        facts = contestant.figures()
        assert 0.0 < facts["slowest_turn_per_s"] <= facts["per_s"] <= facts["fastest_turn_per_s"]
        assert 0.0 < facts["p50_us"] <= facts["p99_us"]
        assert 0.0 < facts["one_p50_us"] <= facts["one_p99_us"]
        assert facts["cpu_us"] > 0.0


@pytest.mark.parametrize("batched", [False, True])
def test_rounds_of_the_bare_fan_out_come_back_whole(batched):
    async def run():
        async with FanOut(1, 800, batched=batched) as fan_out:
            return await play_rounds(fan_out, in_flight=4, seconds=0.2)

    turn = asyncio.run(run())
    assert turn.count > 4
    assert 0.0 < turn.p50_s <= turn.p99_s


def seen(*rates, cpu_us=(None,)):
    """A contestant of some turns; the last CPU time counts for those without one of their own."""
    costs = [*cpu_us, *[cpu_us[-1]] * len(rates)]
    turns = [Turn(rate, 1.0, 0.001, 0.002, cost) for rate, cost in zip(rates, costs, strict=False)]
    return http.Seen(turns, [])


def contestants(**more):
    return {
        http.EMPTY: seen(9_000, 10_000, 20_000, cpu_us=[100.0]),
        http.BARE: seen(12_000, 12_000, 20_000),
        http.ALONE: seen(10, 6_000, 16_000, cpu_us=[400.0, 200.0, 300.0]),
        http.DIRECT: seen(1, 1, 1, cpu_us=[400.0, 200.0, 300.0]),
        http.BY_PROXY: seen(1, 1, 1, cpu_us=[404.0, 220.0, 312.0]),
        http.IN_CAMPAIGN: seen(1, 1, 1, cpu_us=[800.0, 400.0, 303.0]),
        http.NAIVE: seen(10, 2_500, 5_000),
        http.FAN_OUT: seen(1_000),
        http.BATCHED: seen(4_000),
        http.TOGETHER: seen(499),
        **more,
    }


def test_a_bar_is_the_median_of_the_shares_of_each_turn():
    naive, proxy, campaign, together = http.bars_of(contestants())
    assert (naive.measured, naive.verdict) == (2.4, "pass")
    assert (round(proxy.measured, 4), proxy.verdict) == (1.04, "pass")
    assert (campaign.measured, campaign.verdict) == (2.0, "FAIL")
    assert (together.measured, together.verdict) == (0.499, "FAIL")
    assert "empty handler 0.60" in naive.detail
    assert "CPU of 3.0 empty handlers" in naive.detail
    assert together.detail.endswith("0.12")


def test_another_checkout_plays_beside_this_one(tmp_path):
    plan = http.Plan(turns=1, seconds=0.2, one_s=0.05, connections=2)
    played = http.beside(tmp_path, plan, ROOT)
    assert {len(contestant.many) for contestant in played.values()} == {5}
    assert all(bar.measured > 0.0 for bar in http.bars_beside(played))


def test_the_bar_beside_another_checkout_is_on_the_time_of_the_processor():
    played = {
        "rank": seen(1, 1, 1, cpu_us=[110.0]),
        "rank there": seen(2, 2, 2, cpu_us=[100.0]),
        "rank and reward": seen(1, 1, 1, cpu_us=[120.0]),
        "rank and reward there": seen(1, 1, 1, cpu_us=[100.0]),
    }
    rank, both = http.bars_beside(played)
    assert (rank.measured, rank.verdict) == (1.1, "pass")
    assert (both.measured, both.verdict) == (1.2, "FAIL")


def test_a_checkout_without_a_federation_is_named(tmp_path):
    with pytest.raises(WorkerDiedError, match=str(tmp_path)), http.served_by(tmp_path, tmp_path):
        pass


@pytest.mark.parametrize("benchmark", [http, federation])
def test_a_folder_that_is_no_checkout_is_refused(benchmark, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["", "--against", str(tmp_path / "misspelt")])
    with pytest.raises(SystemExit):
        benchmark.main()
    assert "wanted a checkout of this repository, got" in capsys.readouterr().err


def test_what_was_not_measured_is_no_pass():
    known = contestants(**{http.BY_PROXY: seen(1, 1, 1)})
    del known[http.NAIVE]
    naive, proxy, *_ = http.bars_of(known)
    assert naive.verdict == proxy.verdict == "not measured"


def test_a_server_that_refuses_fails_the_turn_instead_of_looking_fast():
    with LineProcess("benchmarks.http_empty") as empty:
        wrong = Load(empty.port, ("",), ("tea",))  # a user's id has a letter at least
        with pytest.raises(ConnectionError, match="wanted 200"):
            asyncio.run(play(wrong, connections=2, seconds=0.2))
        with pytest.raises(WorkerDiedError, match="code 1"):
            empty.play({})
