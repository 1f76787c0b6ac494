"""The process of a helper without features: what it says of itself, and what it refuses."""

import asyncio
from dataclasses import replace

import pytest
from live_world import LiveWorld
from msgspec.structs import replace as changed
from served_federation import ServedFederation

from vfbandits.errors import ConfigError, EnvelopeError, JournalError
from vfbandits.participant.link import DISCONNECTED
from vfbandits.participant.run import build_helper
from vfbandits.participant.share_helper import BROKEN, IN_LOG
from vfbandits.protocol.messages import Help
from vfbandits.protocol.roster import SharesRules, Terms
from vfbandits.settings.services import load_helper
from vfbandits.telemetry.log import logger_for

WIDTHS = {"shop": 2, "bank": 3}
RULES = SharesRules(helper="notary", max_arms=4, window=4, decisions=6, posterior_scale=0.3)
MODEL = 'policy = "lints"\nposterior_scale = 0.3\nseed = 7\n'


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A federation that is never started."""
    terms = Terms(bound=4.0, shares=RULES)
    return LiveWorld(tmp_path_factory.mktemp("files"), widths=WIDTHS, terms=terms).federation(
        windows=1
    )


def helper_of(files):
    settings = load_helper(files.config("notary"))
    return build_helper(settings, logger_for("notary", "helper"))


def test_a_helper_is_never_asked_and_a_decision_has_no_part_of_it(tmp_path):
    world = LiveWorld(tmp_path, widths=WIDTHS, terms=Terms(bound=4.0, shares=RULES), n_users=4)
    plan = world.federation
    world.federation = lambda: plan(model=MODEL, patience="deadline_s = 5.0\n")
    federation = ServedFederation(world, "memory")
    heard = []

    async def scenario():
        await federation.start_active()
        await federation.start("bank", "notary")
        service, _ = federation.passive["notary"]
        hear = service._role.hear  # noqa: SLF001
        service._role.hear = lambda message: heard.append(type(message).__name__) or hear(message)  # noqa: SLF001
        try:
            reply = await federation.decide_with("bank")
            assert set(reply.contributors) == {"shop", "bank"}
            assert service.is_connected
            assert service.problems() == []
            assert service.counts["answered"] > 0
            gauges = federation.active.shared.describe()
            assert (gauges.helper, gauges.away) == ("notary", "")
        finally:
            await federation.close()

    asyncio.run(scenario())
    assert set(heard) <= {"Welcome", "Help", "Ping"}


def test_a_disk_that_fails_is_told_and_nothing_is_answered_from_then_on(files):
    async def scenario():
        service = helper_of(files)
        server = service._server  # noqa: SLF001
        assert service.problems() == [DISCONNECTED]
        service._role.epoch = 1  # noqa: SLF001  (as after the welcome)
        (reply,) = await service._answer(Help(1, b"no message"))  # noqa: SLF001
        assert reply.problem
        server._commit.fail("no space left on the device")  # noqa: SLF001
        assert service.problems() == [DISCONNECTED, BROKEN]
        (reply,) = await service._answer(Help(2, b"no message"))  # noqa: SLF001
        assert reply.problem == f"server B cannot use its journal: {IN_LOG}"
        assert service.counts == {"answered": 0, "refused": 2}
        await server.close()

    asyncio.run(scenario())


def test_one_process_has_the_log_of_a_helper(files):
    async def scenario():
        service = helper_of(files)
        with pytest.raises(JournalError, match="one writer, got a second"):
            helper_of(files)
        await service._server.close()  # noqa: SLF001
        again = helper_of(files)
        await again._server.close()  # noqa: SLF001

    asyncio.run(scenario())


def test_a_helper_needs_its_own_secrets(files, tmp_path):
    settings = changed(load_helper(files.config("notary")), dealt=tmp_path)
    with pytest.raises(ConfigError, match="needs what was dealt to 'notary', got no "):
        build_helper(settings, logger_for("notary", "helper"))
    theirs = files.folder / "bank" / "dealt" / "bank.epoch-1.secrets"
    (tmp_path / "notary.epoch-1.secrets").write_bytes(theirs.read_bytes())
    with pytest.raises(EnvelopeError, match="another to: wanted 'notary', got 'bank'"):
        build_helper(settings, logger_for("notary", "helper"))


def test_a_roster_that_names_another_helper_is_refused(files):
    other = replace(files.roster.terms.shares, helper="bank")
    with pytest.raises(ConfigError, match="so the terms must name it as helper, got 'bank'"):
        replace(files.roster, terms=replace(files.roster.terms, shares=other))
