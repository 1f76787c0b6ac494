import asyncio
import os
import signal
import ssl
from contextlib import suppress

import pytest
from benchmarks.loopback_tls import HOST, issue_certificates
from benchmarks.masked_arithmetic import POOL_ROUNDS, sample_contexts
from benchmarks.raw_fan_out import ActiveSide, RawFanOut


def plain_arms(shape, rounds):
    """What the same bandit chooses on the contexts that the participants hold together."""
    active, contexts = ActiveSide(shape), sample_contexts(shape)
    return [active.decide(contexts[t % POOL_ROUNDS]) for t in range(rounds)]


@pytest.mark.parametrize("n_answerers", [1, 4])
def test_computed_rounds_choose_the_arms_of_the_plain_bandit(n_answerers):
    async def play():
        async with RawFanOut(n_answerers, 1600, "compute", n_arms=10) as fan_out:
            one_by_one = [await fan_out.round() for _ in range(20)]
            in_flight = await asyncio.gather(*(fan_out.round() for _ in range(20)))
            return fan_out.shape, [*one_by_one, *in_flight]

    shape, arms = asyncio.run(play())
    assert arms == plain_arms(shape, 40)
    assert len(set(arms)) > 1


def test_ready_rounds_are_timed_one_at_a_time_and_in_flight():
    async def play():
        async with RawFanOut(2, 800_000) as fan_out:
            return await fan_out.measure(10), await fan_out.measure(10, in_flight=5)

    for seen in asyncio.run(play()):
        assert len(seen.seconds) == 10
        assert 0.0 < seen.p50_s <= seen.p99_s
        assert seen.rounds_per_s > 0.0


def test_a_round_fails_when_an_answerer_goes_away():
    async def play():
        async with RawFanOut(2) as fan_out:
            await fan_out.round()
            for pid in fan_out.process_ids[:1]:
                os.kill(pid, signal.SIGKILL)
            while True:
                await fan_out.round()

    with pytest.raises(ConnectionError):
        asyncio.run(play())


def test_a_closed_fan_out_refuses_rounds_and_leaves_no_process():
    async def play():
        async with RawFanOut(2) as fan_out:
            await fan_out.round()
        with pytest.raises(ConnectionError, match="is not open"):
            await fan_out.round()
        return fan_out.process_ids

    for pid in asyncio.run(play()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_size_that_holds_no_whole_rows_is_refused():
    with pytest.raises(ValueError, match="float64 for 10 arms, got 8001 bytes"):
        RawFanOut(size_bytes=8001)


def test_only_a_caller_with_a_certificate_gets_in(tmp_path):
    certificates, callers = issue_certificates(tmp_path), []

    def greet(_, writer):
        callers.append(writer.get_extra_info("ssl_object").version())
        writer.close()

    async def call(context):
        async with await asyncio.start_server(greet, HOST, ssl=certificates.listener()) as server:
            port = server.sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection(HOST, port, ssl=context)
            # With TLS 1.3 a caller hears of its refusal only now, as an end or as an error.
            with suppress(OSError):
                await reader.read()
            writer.close()

    asyncio.run(call(ssl.create_default_context(cafile=str(certificates.authority))))
    assert callers == []
    asyncio.run(call(certificates.dialler()))
    assert callers == ["TLSv1.3"]
