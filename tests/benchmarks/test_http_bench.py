import asyncio

import pytest
from benchmarks import http
from benchmarks.http_fan_out import FanOut
from benchmarks.http_fan_out import play as play_rounds
from benchmarks.http_line import LineProcess, Turn
from benchmarks.http_load import Load, play
from benchmarks.process import WorkerDiedError


def test_ours_and_the_empty_handler_are_timed_with_many_clients_and_with_one(tmp_path):
    plan = http.Plan(turns=1, seconds=0.2, one_s=0.1, connections=4)
    seen = http.no_passive(tmp_path, plan, masks=["dense"])
    more = {"rank with ids, dense, alone", "rank and reward, dense, alone"}
    assert seen.keys() == {http.EMPTY, http.BARE, http.ALONE, *more}
    for contestant in seen.values():
        facts = contestant.figures()
        assert facts["slowest_turn_per_s"] == facts["fastest_turn_per_s"] == facts["per_s"] > 0.0
        assert 0.0 < facts["p50_us"] <= facts["p99_us"]
        assert 0.0 < facts["one_p50_us"] <= facts["one_p99_us"]


@pytest.mark.parametrize("batched", [False, True])
def test_rounds_of_the_bare_fan_out_come_back_whole(batched):
    async def run():
        async with FanOut(1, 800, batched=batched) as fan_out:
            return await play_rounds(fan_out, in_flight=4, seconds=0.2)

    turn = asyncio.run(run())
    assert turn.count > 4
    assert 0.0 < turn.p50_s <= turn.p99_s


def test_a_bar_is_the_median_of_the_shares_of_each_turn():
    def seen(*rates):
        return http.Seen([Turn(rate, 1.0, 0.001, 0.002) for rate in rates], [])

    contestants = {
        http.EMPTY: seen(9_000, 10_000, 20_000),
        http.BARE: seen(12_000, 12_000, 20_000),
        http.ALONE: seen(10, 6_000, 16_000),
        http.FAN_OUT: seen(1_000),
        http.BATCHED: seen(4_000),
        http.TOGETHER: seen(499),
    }
    alone, together = http.bars_of(contestants)
    assert (alone.measured, alone.verdict) == (0.6, "pass")
    assert (together.measured, together.verdict) == (0.499, "FAIL")
    assert alone.detail.endswith("0.50")
    assert together.detail.endswith("0.12")


def test_a_server_that_refuses_fails_the_turn_instead_of_looking_fast():
    with LineProcess("benchmarks.http_empty") as empty:
        wrong = Load(empty.port, ("",), ("tea",))  # a user's id has a letter at least
        with pytest.raises(ConnectionError, match="wanted 200"):
            asyncio.run(play(wrong, connections=2, seconds=0.2))
        with pytest.raises(WorkerDiedError, match="code 1"):
            empty.play({})
