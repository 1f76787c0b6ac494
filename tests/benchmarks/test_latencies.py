import asyncio

from benchmarks.latencies import interleave_rounds, measure_rounds


def test_as_many_rounds_as_asked_are_in_flight_and_no_more():
    now, most = 0, 0

    async def play():
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1

    seen = asyncio.run(measure_rounds(play, 20, in_flight=4))
    assert most == 4
    assert len(seen.seconds) == 20
    assert min(seen.seconds) >= 0.005
    assert seen.elapsed_s < sum(seen.seconds)


def test_contestants_take_turns_and_the_first_turn_does_not_count():
    order = []

    async def play(name):
        order.append(name)

    plays = {name: lambda name=name: play(name) for name in "ab"}
    seen = asyncio.run(interleave_rounds(plays, turns=2, rounds=3))
    assert order == list("aaabbb" * 3)
    assert {name: len(latencies.seconds) for name, latencies in seen.items()} == {"a": 6, "b": 6}
