"""A peer that is not who it says is refused, and is told why.

In the TLS handshake only the end that dials can say why: gRPC has no interface that reports a
refused handshake to the server.
"""

import asyncio
import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from live_world import LiveWorld

from vfbandits.errors import LinkError
from vfbandits.pki import Grant, Identity, approve, create_authority, create_request
from vfbandits.pki.member import server_name, tls_files
from vfbandits.protocol.handshake import hello_of
from vfbandits.protocol.messages import Answer, Refused
from vfbandits.transport.rpc.client import RpcDialer

WIDTHS = {"shop": 3, "bank": 2, "news": 2}


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    world = LiveWorld(tmp_path_factory.mktemp("identity"), widths=WIDTHS)
    federation = world.federation()
    federation.start("shop")
    yield federation
    federation.stop_all()


def admitted(federation, folder, name, role, *, ca=None, now=None, width=2):
    """An identity that some authority approved."""
    home = folder / name
    request = create_request(
        home,
        federation="local",
        name=name,
        role=role,
        width=width if role == "passive" else 0,
    )
    approve(request, ca or federation.folder / "organiser", now=now, grant=Grant(days=30))
    return Identity.load(home, name)


async def knock(federation, identity, *, says=None, **terms):
    """Dial with an identity and say hello as ``says``; returns what comes back."""
    roster = federation.roster
    dialer = RpcDialer(
        federation.address,
        tls=tls_files(identity),
        name=identity.subject.name,
        role=identity.subject.role,
        server_name=server_name(roster),
    )
    link = await dialer.dial(timeout_s=30.0)
    try:
        member = roster.find(says or "bank")
        await link.send(replace(hello_of(member, roster, epochs=(), next_round=1), **terms))
        return await asyncio.wait_for(link.receive(), 30.0), link
    finally:
        if says is None:
            await link.close()


def logged(federation, event, words, *, name="shop", timeout_s=60.0):
    """Wait for a line of a participant's log."""
    limit = time.monotonic() + timeout_s
    while time.monotonic() < limit:
        for line in federation.events(name):
            if line["event"] == event and words in line.get("reason", ""):
                return line
        time.sleep(0.05)
    raise AssertionError(f"no {event} with {words!r} in {federation.log_path(name).read_text()}")


def test_an_expired_certificate_is_refused(federation, tmp_path):
    old = datetime(2020, 1, 1, tzinfo=UTC)
    identity = admitted(federation, tmp_path, "late", "passive", now=old)
    with pytest.raises(LinkError, match="our own certificate expired on 2020"):
        asyncio.run(knock(federation, identity))


def test_a_participant_whose_certificate_has_expired_logs_that_itself(federation):
    """The one that dials says it: gRPC does not report the refused handshake to the server."""
    old, renewed = datetime(2020, 1, 1, tzinfo=UTC), Grant(days=30, renew=True)
    request = federation.folder / "news" / "identity" / "news.request.json"
    certificate = request.with_name("news.crt")
    valid = certificate.read_bytes()
    approve(request, federation.folder / "organiser", now=old, grant=renewed)
    try:
        federation.start("news")
        logged(federation, "link_lost", "our own certificate expired on 2020", name="news")
        federation.stop("news")
    finally:
        certificate.write_bytes(valid)
    for name in ("shop", "news"):  # and gRPC's core adds nothing of its own
        lines = federation.log_path(name).read_text().splitlines()
        assert [line for line in lines if not line.startswith("{")] == []


def test_a_certificate_of_another_authority_is_refused(federation, tmp_path):
    create_authority(tmp_path / "other", "local")
    identity = admitted(federation, tmp_path, "bank", "passive", ca=tmp_path / "other")
    with pytest.raises(LinkError, match="its certificate is of another authority"):
        asyncio.run(knock(federation, identity))
    # This end refused the server; with the right authority the server refuses this end.
    theirs = tmp_path / "bank" / "authority.crt"
    theirs.write_bytes((federation.folder / "organiser" / "authority.crt").read_bytes())
    identity = Identity(
        identity.subject,
        identity.certificate,
        identity.certificate_path,
        identity.key_path,
        theirs,
    )
    with pytest.raises(LinkError, match=r"our own certificate .* was not issued by the authority"):
        asyncio.run(knock(federation, identity))


def test_somebody_who_is_not_in_the_roster_is_refused(federation, tmp_path):
    identity = admitted(federation, tmp_path, "stranger", "passive")
    message, _ = asyncio.run(knock(federation, identity))
    assert isinstance(message, Refused)
    assert "'stranger', who is not in it" in message.reason
    logged(federation, "identity_refused", "'stranger', who is not in it")


def test_an_application_may_not_join_as_a_participant(federation):
    message, _ = asyncio.run(knock(federation, federation.identity("app")))
    assert isinstance(message, Refused)
    assert "wanted role passive" in message.reason
    logged(federation, "identity_refused", "wanted role passive")


def test_a_participant_may_not_speak_for_another(federation):
    async def whole():
        message, link = await knock(federation, federation.identity("bank"), says="news")
        await link.close()
        return message

    message = asyncio.run(whole())
    assert isinstance(message, Refused)
    assert "wanted the hello of 'bank', got one that says 'news'" in message.reason
    logged(federation, "handshake_refused", "'news'")


@pytest.mark.parametrize(
    ("lowest", "highest", "reason"),
    [
        (2, 5, "the active participant speaks version 1, 'bank' speaks versions 2 to 5: upgrade"),
        (3, 2, "a highest one that is not below it, got 3 and 2"),
        (0, 0, "got 0 and 0"),
    ],
)
def test_a_participant_without_a_common_version_is_refused(federation, lowest, highest, reason):
    identity = federation.identity("bank")
    terms = {"lowest_protocol": lowest, "highest_protocol": highest}
    message, _ = asyncio.run(knock(federation, identity, **terms))
    assert isinstance(message, Refused)
    assert reason in message.reason


def test_an_answer_before_the_hello_is_refused(federation):
    async def whole():
        identity = federation.identity("bank")
        dialer = RpcDialer(
            federation.address,
            tls=tls_files(identity),
            name="bank",
            role="passive",
            server_name=server_name(federation.roster),
        )
        link = await dialer.dial(timeout_s=30.0)
        await link.send(Answer(1, 0, 1, bytes(16), 1, 2, bytes(16)))
        message = await asyncio.wait_for(link.receive(), 30.0)
        await link.close()
        return message

    message = asyncio.run(whole())
    assert isinstance(message, Refused)
    assert "wanted a hello, got Answer" in message.reason
