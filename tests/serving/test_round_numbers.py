"""One that lies about its round locks nobody out, whatever is started again afterwards."""

import asyncio
import contextlib
import json
import re

import pytest
from live_world import LiveWorld
from served_federation import ServedFederation

from vfbandits.errors import ConfigError, LinkError
from vfbandits.protocol.handshake import MAX_ROUND_STEP, hello_of
from vfbandits.protocol.messages import Refused, Welcome
from vfbandits.protocol.roster import Terms
from vfbandits.serving.active import ROUNDS_AHEAD
from vfbandits.serving.masks import ROUNDS, SEATS, load_round, load_seats

WIDTHS = {"shop": 2, "bank": 2, "news": 2, "post": 2}
PASSIVE = ("bank", "news", "post")


async def say_hello(served, name, next_round):
    """What a participant with a valid certificate gets for this hello."""
    roster = served.files.roster
    hello = hello_of(roster.find(name), roster, epochs=(), next_round=next_round)
    dialer = served.dialer(name)
    link = await dialer.dial(timeout_s=30.0)
    try:
        await link.send(hello)
        return await asyncio.wait_for(link.receive(), 30.0)
    finally:
        with contextlib.suppress(LinkError):
            await link.close()
        await dialer.close()


async def lie_and_start_again(served, said):
    try:
        await served.start_active()
        answer = await say_hello(served, "post", said)
        assert isinstance(answer, Refused if said > MAX_ROUND_STEP + 1 else Welcome)
        await served.start(*PASSIVE)
        await served.decide_with(*PASSIVE)
        after_the_lie = served.active.role.next_round
        assert MAX_ROUND_STEP < after_the_lie < 2 * MAX_ROUND_STEP

        await served.stop(*PASSIVE)  # everybody starts again, with what is on the disks
        await served.stop_active()
        await served.start_active()
        assert after_the_lie <= served.active.role.next_round <= after_the_lie + ROUNDS_AHEAD
        await served.start(*PASSIVE)
        await served.decide_with(*PASSIVE)

        await served.stop_active()
        (served.state("shop") / ROUNDS).unlink()  # an old copy was put back
        await served.start_active()
        assert served.active.role.next_round == 1
        await served.decide_with(*PASSIVE)
    finally:
        await served.close()


@pytest.mark.parametrize("kind", ["memory", "rpc"])
@pytest.mark.parametrize("said", [1 << 48, MAX_ROUND_STEP])
def test_a_lie_about_the_round_locks_nobody_out(tmp_path, kind, said):
    world = LiveWorld(tmp_path, widths=WIDTHS, terms=Terms("dense", "secure"), n_users=2)
    served = ServedFederation(world, kind)
    asyncio.run(lie_and_start_again(served, said))
    kept = json.loads((served.state("shop") / ROUNDS).read_text(encoding="utf-8"))
    assert kept["version"] == 1
    assert kept["next_round"] > 1


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"next_round": 0}', '{"next_round": 1.5}', '{"next_round": true}',
             '{"next_round": 9223372036854775808}', "\x00"],
)  # fmt: skip
def test_a_damaged_file_of_rounds_is_refused_by_name(tmp_path, text):
    (tmp_path / ROUNDS).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"rounds\.json must hold the next round"):
        load_round(tmp_path)


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"epoch": 1}', '{"epoch": "1", "has_share": []}',
             '{"epoch": 1, "has_share": [2]}', '{"version": "1", "epoch": 1, "has_share": []}'],
)  # fmt: skip
def test_a_damaged_file_of_seats_is_refused_by_name(tmp_path, text):
    (tmp_path / SEATS).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"seats\.json must hold a mask epoch and names"):
        load_seats(tmp_path)


def test_files_without_a_version_are_of_version_1(tmp_path):
    (tmp_path / ROUNDS).write_text('{"next_round": 65540}')
    (tmp_path / SEATS).write_text('{"epoch": 2, "has_share": ["bank", "news"]}')
    assert load_round(tmp_path) == 65_540
    assert load_seats(tmp_path) == (2, ("bank", "news"))
    assert (load_round(tmp_path / "new"), load_seats(tmp_path / "new")) == (1, None)


@pytest.mark.parametrize(
    ("name", "load", "text"),
    [
        (ROUNDS, load_round, '{"version": 2, "next_round": 7}'),
        (ROUNDS, load_round, '{"version": 2}'),
        (SEATS, load_seats, '{"version": 2, "seats": []}'),
    ],
)
def test_files_of_a_newer_version_are_refused_with_both_versions(tmp_path, name, load, text):
    (tmp_path / name).write_text(text)
    wanted = f"^{re.escape(str(tmp_path / name))} must have version 1, got 2: it was written by a"
    with pytest.raises(ConfigError, match=wanted):
        load(tmp_path)


def test_a_disk_that_is_full_keeps_no_round_and_stops_nothing(tmp_path):
    world = LiveWorld(tmp_path, widths=WIDTHS, terms=Terms("dense", "secure"), n_users=2)
    served = ServedFederation(world, "memory")

    async def whole():
        try:
            await served.start_active()
            (served.state("shop") / ROUNDS).mkdir()  # cannot be replaced by a file
            await served.start(*PASSIVE)
            await served.decide_with(*PASSIVE)
        finally:
            await served.close()

    asyncio.run(whole())
