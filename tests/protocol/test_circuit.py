"""Who fails several times in a row is left alone, until it answers a ping."""

from pure_federation import PureFederation

from vfbandits.protocol.active import Patience
from vfbandits.protocol.messages import Ping, Pong

FIVE = {"shop": 3, "bank": 2, "news": 1, "post": 2, "rail": 1}


def federation_of(mode, **settings):
    mask, aggregation = mode
    return PureFederation(FIVE, mask=mask, aggregation=aggregation, **settings)


def test_after_several_failures_a_participant_is_left_alone_until_it_answers_a_ping():
    patience = Patience(failures_to_open=2)
    federation = federation_of(("dense", "plain"), patience=patience)
    federation.slow = {"news"}
    for _ in range(2):
        number = federation.ask()
        federation.wait(0.25)
        federation.check(number, ("shop", "bank", "post", "rail"))
    assert federation.noted("circuit_opened") == [{"participant": "news"}]
    assert federation.active.askable() == ("bank", "post", "rail")

    number = federation.ask()  # nobody waits for it any more
    federation.check(number, ("shop", "bank", "post", "rail"))

    federation.wait(0.5)
    pings = [m for n, _, m in federation.down if n == "news" and isinstance(m, Ping)]
    federation.wait(0.1)  # it was pinged just now
    assert [m for n, _, m in federation.down if n == "news" and isinstance(m, Ping)] == pings

    federation.slow = set()
    federation.run()
    assert federation.noted("circuit_closed") == [{"participant": "news"}]
    federation.check(federation.ask(), tuple(FIVE))


def test_an_answer_in_time_wipes_earlier_failures_out():
    federation = federation_of(("dense", "plain"))
    for _ in range(3):
        for slow in ({"news"}, {"news"}, set()):
            federation.slow = slow
            federation.run()
            federation.ask()
            federation.wait(0.25)
    assert not federation.noted("circuit_opened")


def test_only_the_pong_to_the_latest_ping_closes_a_circuit():
    federation = federation_of(("dense", "plain"), patience=Patience(failures_to_open=1))
    federation.slow = {"news"}
    federation.ask()
    federation.wait(0.25)
    seat = federation.active.seats["news"]
    assert seat.circuit.is_open
    for number in (0, 1):  # it was not even pinged yet
        assert federation.active.hear("news", Pong(number), federation.now) == []
    federation.wait(1.0)
    federation.wait(1.0)
    assert federation.active.hear("news", Pong(1), federation.now) == []
    assert seat.circuit.is_open
    (note,) = federation.active.hear("news", Pong(2), federation.now)
    assert (note.event, seat.circuit.is_open) == ("circuit_closed", False)

    federation.ask()
    federation.wait(0.25)
    assert federation.active.hear("news", Pong(2), federation.now) == []  # the same one again
    assert seat.circuit.is_open


def test_a_pong_is_no_answer():
    """One that never answers in time cannot keep its circuit closed by pongs."""
    federation = federation_of(("dense", "plain"), patience=Patience(failures_to_open=2))
    federation.slow = {"news"}
    for _ in range(2):
        federation.ask()
        federation.active.hear("news", Pong(0), federation.now)
        federation.wait(0.25)
    assert federation.active.seats["news"].circuit.is_open


def test_one_that_comes_back_is_asked_again():
    federation = federation_of(("dense", "plain"), patience=Patience(failures_to_open=1))
    federation.slow = {"news"}
    federation.ask()
    federation.wait(0.25)
    federation.slow = set()
    federation.hang_up("news")
    federation.dial("news")
    federation.check(federation.ask(), tuple(FIVE))
