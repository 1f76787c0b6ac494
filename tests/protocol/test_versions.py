"""Participants of several versions work together as long as each link has one in common."""

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from networks import KINDS, network
from pure_federation import MODES, PureFederation, features

from vfbandits.errors import HandshakeError
from vfbandits.protocol.instructions import Close, Fetch, Reply, Send
from vfbandits.protocol.messages import Refused, Welcome
from vfbandits.protocol.version import MAX_VERSION, SPOKEN, Versions

NUMBERS = st.integers(1, 9)
RANGES = st.tuples(NUMBERS, NUMBERS).map(lambda pair: Versions(min(pair), max(pair)))


@given(ours=RANGES, theirs=RANGES)
def test_the_highest_common_version_is_the_largest_number_in_both(ours, theirs):
    both = set(range(ours.lowest, ours.highest + 1)) & set(range(theirs.lowest, theirs.highest + 1))
    assert ours.common(theirs) == theirs.common(ours) == max(both, default=None)


@pytest.mark.parametrize("pair", [(2, 1), (0, 1), (0, 0), (-1, 1), (1, MAX_VERSION + 1)])
def test_a_range_without_a_version_is_refused(pair):
    with pytest.raises(HandshakeError, match=f"protocol: .*got {pair[0]} and {pair[1]}"):
        Versions(*pair)


@pytest.mark.parametrize("mode", MODES)
def test_one_federation_has_links_of_several_versions(mode):
    mask, aggregation = mode
    federation = PureFederation(
        mask=mask,
        aggregation=aggregation,
        spoken={"shop": Versions(1, 3), "bank": Versions(1, 2), "news": Versions(3, 7)},
    )
    assert {name: seat.protocol for name, seat in federation.active.seats.items()} == {
        "bank": 2,
        "news": 3,
    }
    assert {name: role.protocol for name, role in federation.passive.items()} == {
        "bank": 2,
        "news": 3,
    }
    federation.check(federation.ask(), ("shop", "bank", "news"))


def test_a_participant_that_is_upgraded_and_dials_again_speaks_the_newer_version():
    federation = PureFederation(spoken={"shop": Versions(1, 2), "bank": Versions(1, 1)})
    assert federation.active.seats["bank"].protocol == 1
    federation.hang_up("bank")
    federation.spoken["bank"] = Versions(1, 2)
    federation.start("bank")
    assert federation.active.seats["bank"].protocol == federation.passive["bank"].protocol == 2
    federation.check(federation.ask(), ("shop", "bank", "news"))


def test_no_version_is_spoken_before_a_welcome():
    federation = PureFederation()
    bank = federation.passive["bank"]
    assert bank.protocol == SPOKEN.highest
    bank.hello()
    assert bank.protocol == 0


@pytest.mark.parametrize(
    ("ours", "theirs", "reason"),
    [
        (Versions(2, 3), (1, 1), "speaks versions 2 to 3, 'bank' speaks version 1: upgrade 'bank'"),
        (
            Versions(1, 1),
            (2, 4),
            "speaks version 1, 'bank' speaks versions 2 to 4: upgrade the active participant",
        ),
        (Versions(1, 1), (3, 2), "not below it, got 3 and 2"),
        (Versions(1, 1), (0, 0), "got 0 and 0"),
        (Versions(1, 1), (0, 9), "got 0 and 9"),
    ],
)
def test_without_a_common_version_both_ranges_are_named(ours, theirs, reason):
    federation = PureFederation(start=False, spoken={"shop": ours})
    federation.runs_by_itself = False
    federation.start("bank")
    lowest, highest = theirs
    hello = replace(
        federation.passive["bank"].hello(), lowest_protocol=lowest, highest_protocol=highest
    )
    sent, close, note = federation.active.join("bank", hello, 0.0)
    assert sent.message.code == "handshake"
    assert reason in sent.message.reason == note.facts["reason"]
    assert (close, note.event) == (Close("bank"), "handshake_refused")
    assert not federation.active.seats


def test_the_version_is_compared_before_anything_else():
    """A hello of another version may mean something else by its other fields."""
    federation = PureFederation(start=False, spoken={"shop": Versions(2, 2)})
    federation.runs_by_itself = False
    federation.start("bank")
    hello = replace(federation.passive["bank"].hello(), federation="other", width=99, name="news")
    refused, *_ = federation.active.join("bank", hello, 0.0)
    assert refused.message.reason.startswith("protocol: ")


@pytest.mark.parametrize("chosen", [0, 2, 4, MAX_VERSION])
def test_a_welcome_to_a_version_that_is_not_spoken_is_refused(chosen):
    federation = PureFederation(start=False, spoken={"bank": Versions(3, 3)})
    federation.runs_by_itself = False
    federation.start("bank")
    bank = federation.passive["bank"]
    with pytest.raises(HandshakeError, match=f"'bank' speaks version 3, .* chose {chosen}"):
        bank.hear(Welcome(1, protocol=chosen))
    assert (bank.protocol, bank.is_welcome) == (0, False)


# --- over a network: what the codec carries is what is agreed on


def meet(kind, folder, federation):
    """Join the bank over a network, then ask it once; returns what it heard first."""
    active, bank = federation.active, federation.passive["bank"]

    async def listen(link):
        todo = active.join("bank", await link.receive(), 0.0)
        for one in todo:
            if isinstance(one, Send):
                await link.send(one.message)
        if not active.seats:
            return
        _, todo = active.ask(("ann",), (("a",),), features("shop", [("ann", "a")], 3), 0.0)
        (ask,) = [one.message for one in todo if isinstance(one, Send)]
        await link.send(ask)
        done.set_result(active.hear("bank", await link.receive(), 0.0))

    async def test():
        nonlocal done
        done = asyncio.get_running_loop().create_future()
        async with network(kind, folder, listen, "bank") as net:
            link = await net.dialer("bank").dial(timeout_s=30.0)
            await link.send(bank.hello())
            first = await asyncio.wait_for(link.receive(), 30.0)
            if isinstance(first, Refused):
                return first, None
            bank.hear(first)
            (fetch,) = bank.hear(await asyncio.wait_for(link.receive(), 30.0))
            assert isinstance(fetch, Fetch)
            for reply in bank.answer(fetch.ask, features("bank", fetch.ask.keys(), 2)):
                assert isinstance(reply, Reply)
                await link.send(reply.message)
            return first, await asyncio.wait_for(done, 30.0)

    done = None
    return asyncio.run(test())


def pair(ours, theirs):
    federation = PureFederation(start=False, spoken={"shop": ours, "bank": theirs})
    federation.runs_by_itself = False
    federation.start("bank")
    return federation


@pytest.mark.parametrize("kind", KINDS)
def test_an_older_peer_joins_and_answers(kind, tmp_path):
    federation = pair(Versions(1, 3), Versions(1, 2))
    first, done = meet(kind, tmp_path, federation)
    assert first == Welcome(1, protocol=2)
    assert federation.active.seats["bank"].protocol == federation.passive["bank"].protocol == 2
    assert [type(one).__name__ for one in done if not hasattr(one, "event")] == ["Gathered"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("theirs", "said"), [(Versions(1, 1), "version 1"), (Versions(4, 9), "versions 4 to 9")]
)
def test_a_peer_that_is_too_old_or_too_new_hears_both_ranges(kind, tmp_path, theirs, said):
    federation = pair(Versions(2, 3), theirs)
    first, _ = meet(kind, tmp_path, federation)
    wanted = f"protocol: the active participant speaks versions 2 to 3, 'bank' speaks {said}"
    assert first.reason.startswith(wanted)
    with pytest.raises(HandshakeError, match=wanted):
        federation.passive["bank"].hear(first)
