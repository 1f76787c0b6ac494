"""Token buckets against the obvious one, and bodies that are too large."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from vfbandits.errors import SettingError
from vfbandits.http.access.limits import Buckets, Limits, Rate, network_of
from vfbandits.http.body_limit import BodyLimit
from vfbandits.http.refusals import TooLarge, TooMany

RATES = st.builds(Rate, st.floats(0.1, 1_000.0), burst=st.integers(1, 50))
# Whole milliseconds, so that a test of "just enough" is not one of rounding.
PAUSES = st.lists(st.integers(0, 3_000).map(lambda ms: ms / 1_000), max_size=80)


class Clock:
    """A clock that a test sets."""

    def __init__(self, moment=1_000.0):
        self.moment = moment

    def __call__(self):
        return self.moment


class ObviousBucket:
    """Tokens, filled up at each look."""

    def __init__(self, rate, moment):
        self.rate, self.tokens, self.moment = rate, float(rate.burst), moment

    def level(self, moment):
        return min(self.rate.burst, self.tokens + (moment - self.moment) * self.rate.per_s)

    def take(self, moment):
        self.tokens, self.moment = self.level(moment), moment
        if self.tokens < 1.0:
            return False
        self.tokens -= 1.0
        return True


@given(rate=RATES, pauses=PAUSES)
def test_a_bucket_lets_through_what_the_obvious_one_does(rate, pauses):
    clock = Clock()
    buckets, obvious = Buckets(rate, clock=clock), ObviousBucket(rate, clock.moment)
    for pause in pauses:
        clock.moment += pause
        level = obvious.level(clock.moment)
        if abs(level - 1.0) < 1e-6:  # either answer is right up to rounding
            return
        wait = buckets.take("web")
        assert (wait == 0.0) == obvious.take(clock.moment)
        if wait:
            assert wait == pytest.approx((1.0 - level) / rate.per_s, abs=1e-6)


@given(rate=RATES, pauses=PAUSES)
def test_no_more_get_through_than_the_burst_and_the_rate_over_the_time(rate, pauses):
    clock = Clock()
    buckets, start = Buckets(rate, clock=clock), clock.moment
    through = 0
    for pause in pauses:
        clock.moment += pause
        while buckets.take("web") == 0.0:
            through += 1
        assert through <= rate.burst + rate.per_s * (clock.moment - start) + 1e-6


@given(rate=RATES, refused=st.integers(0, 20))
def test_whoever_waits_as_told_gets_through_however_often_they_were_refused(rate, refused):
    clock = Clock()
    buckets = Buckets(rate, clock=clock)
    for _ in range(rate.burst):
        assert buckets.take("web") == 0.0
    for _ in range(refused):
        assert buckets.take("web") > 0.0
    clock.moment += buckets.take("web")
    assert buckets.take("web") == 0.0


@given(others=st.lists(st.text(max_size=3), max_size=50))
def test_one_caller_does_not_use_up_anothers_bucket(others):
    buckets = Buckets(Rate(1.0, burst=2), clock=Clock())
    for other in others:
        buckets.take(f"not {other}")
    assert [buckets.take("web") == 0.0 for _ in range(3)] == [True, True, False]


@given(names=st.lists(st.integers(0, 30).map(str), max_size=200), most=st.integers(1, 10))
def test_no_more_buckets_are_kept_than_allowed(names, most):
    buckets = Buckets(Rate(1.0, burst=5), clock=Clock(), most=most)
    for name in names:
        buckets.take(name)
        assert len(buckets) <= most


def test_the_bucket_used_longest_ago_is_forgotten():
    buckets = Buckets(Rate(1.0, burst=1), clock=Clock(), most=2)
    buckets.take("a")
    buckets.take("b")
    buckets.take("c")
    assert buckets.take("b") > 0.0
    assert buckets.take("a") == 0.0


def test_a_batch_is_let_in_and_paid_for_afterwards():
    clock = Clock()
    buckets = Buckets(Rate(10.0, burst=10), clock=clock)
    assert buckets.take("web") == 0.0
    buckets.owe("web", 99)
    assert buckets.take("web") == pytest.approx(9.1)
    clock.moment += 9.1
    assert buckets.take("web") == 0.0


def test_a_clock_that_goes_back_gives_nothing_away():
    clock = Clock()
    buckets = Buckets(Rate(1.0, burst=1), clock=clock)
    buckets.take("web")
    clock.moment -= 50.0
    assert buckets.take("web") > 0.0


def test_a_refusal_says_what_is_allowed_and_how_long_to_wait():
    buckets = Buckets(Rate(0.5, burst=1), clock=Clock())
    buckets.admit("web", "one caller")
    with pytest.raises(TooMany, match=r"at most 0.5 requests a second from one caller, and bursts "
                       r"of 1, got more: wait 2.000 s") as caught:  # fmt: skip
        buckets.admit("web", "one caller")
    assert caught.value.headers() == {"retry-after": "2"}


@pytest.mark.parametrize(
    ("per_s", "burst"), [(0.0, 1), (-1.0, 1), (float("nan"), 1), (float("inf"), 1), (1.0, 0)]
)
def test_a_rate_that_lets_nobody_through_is_refused(per_s, burst):
    with pytest.raises(SettingError):
        Rate(per_s, burst=burst)


def test_the_standard_limits_take_a_body_of_a_mebibyte():
    assert Limits.standard().body_bytes == 1_048_576


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2::", "2001:db8:1:2::"),
        ("::1", "::"),
        ("fe80::1%eth0", "fe80::"),
        ("", ""),
        ("not:an:address", "not:an:address"),
    ],
)
def test_an_address_counts_with_those_that_one_host_has(address, network):
    assert network_of(address) == network


# Bodies.  The application reads all it gets and says how much it was.


async def reading(scope, receive, send):
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(size).encode()})


async def answering_first(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await reading(scope, receive, lambda message: asyncio.sleep(0))


async def shrugging(scope, receive, send):
    try:
        await reading(scope, receive, send)
    except TooLarge:
        await send({"type": "http.response.start", "status": 500, "headers": []})
        await send({"type": "http.response.body", "body": b"whatever"})


def ask(app, chunks, headers=(), most=10):
    """Statuses and bodies that came back, and how many chunks were read."""
    sent, waiting = [], list(chunks)

    async def receive():
        chunk = waiting.pop(0)
        return {"type": "http.request", "body": chunk, "more_body": bool(waiting)}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "path": "/x", "headers": list(headers), "client": ("192.0.2.1", 1)}
    asyncio.run(BodyLimit(app, most)(scope, receive, send))
    statuses = [message["status"] for message in sent if "status" in message]
    body = b"".join(message.get("body", b"") for message in sent)
    return statuses, body, len(chunks) - len(waiting)


@given(chunks=st.lists(st.binary(max_size=8), min_size=1, max_size=6))
def test_a_body_passes_if_its_chunks_do_not_exceed_the_limit(chunks):
    total = sum(map(len, chunks))
    with capture_logs() as lines:
        statuses, body, _ = ask(reading, chunks)
    if total <= 10:
        assert (statuses, body) == ([200], str(total).encode())
    else:
        assert statuses == [413]
        assert [line["event"] for line in lines] == ["http_request_refused"]


def test_a_declared_length_is_refused_before_anything_is_read():
    with capture_logs() as lines:
        statuses, body, read = ask(reading, [b"x" * 11], [(b"content-length", b"11")])
    assert (statuses, read) == ([413], 0)
    assert b"at most 10 bytes, got 11" in body
    assert (lines[0]["status"], lines[0]["address"]) == (413, "192.0.2.1")


def test_a_declared_length_within_the_limit_passes():
    assert ask(reading, [b"x" * 10], [(b"content-length", b"10")])[:2] == ([200], b"10")


def test_reading_stops_at_the_limit():
    statuses, _, read = ask(reading, [b"x" * 6] * 100)
    assert (statuses, read) == ([413], 2)


@pytest.mark.parametrize(
    "headers",
    [
        [(b"content-length", b"1"), (b"transfer-encoding", b"chunked")],
        [(b"content-length", b"-1")],
        [(b"content-length", b"many")],
    ],
)
def test_a_length_that_does_not_count_is_not_believed(headers):
    assert ask(reading, [b"x" * 11], headers)[0] == [413]


def test_an_application_that_catches_the_refusal_does_not_hide_it():
    statuses, body, _ = ask(shrugging, [b"x" * 11])
    assert statuses == [413]
    assert b"whatever" not in body


def test_an_answer_that_had_begun_is_not_begun_again():
    with pytest.raises(TooLarge):
        ask(answering_first, [b"x" * 11])


def test_a_limit_of_nothing_is_refused():
    with pytest.raises(SettingError, match="at least one byte"):
        BodyLimit(reading, 0)
