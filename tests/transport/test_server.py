"""The port: who is let in, what is told to whom, and what happens to bytes that are not ours."""

import asyncio
import contextlib

import grpc
import pytest
from certificates import make_authority, make_leaf
from networks import ACTIVE_NAME, files
from structlog.testing import capture_logs

from vfbandits.errors import ConfigError, HandshakeError, LinkError, WireError
from vfbandits.protocol.messages import MAX_BYTES, Ping, Pong
from vfbandits.transport.rpc.caller import JOIN
from vfbandits.transport.rpc.client import RpcDialer
from vfbandits.transport.rpc.codec import decode_to_passive, encode
from vfbandits.transport.rpc.options import MAX_RECEIVED
from vfbandits.transport.rpc.server import RpcListener

SECRET = b"\x7a\xffa plain feature"
WHO = (("vfb-name", "bank"), ("vfb-role", "passive"))


@contextlib.asynccontextmanager
async def port(handler, *, tls=None):
    listener = RpcListener("127.0.0.1:0", tls=tls)
    try:
        yield await listener.start(handler)
    finally:
        await listener.stop(grace_s=0.0)


async def echo(link):
    while True:
        await link.send(Ping((await link.receive()).number))


@contextlib.asynccontextmanager
async def raw_stream(port, metadata=WHO):
    """A client that may send anything."""
    options = [("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options) as channel:
        yield channel.stream_stream(JOIN)(metadata=metadata)


async def status_after(stream, *messages):
    """What the peer is told when it sends these."""
    with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        for message in messages:
            await stream.write(message)
        while await stream.read() is not grpc.aio.EOF:
            pass
    return await stream.code(), await stream.details()


@pytest.mark.parametrize("garbage", [b"", b"\x00", SECRET, encode(Ping(1)), b"\x12" * 5000])
def test_bytes_that_are_not_ours_end_the_stream_with_a_sentence_that_does_not_repeat_them(garbage):
    errors = []

    async def handler(link):
        try:
            await echo(link)
        except WireError as error:
            errors.append(str(error))
            raise

    async def test():
        async with port(handler) as number, raw_stream(number) as stream:
            await stream.write(encode(Pong(3)))
            assert decode_to_passive(await stream.read()) == Ping(3)
            code, said = await status_after(stream, garbage)
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert errors == [said]
        assert "feature" not in said

    asyncio.run(test())


def test_a_message_over_the_limit_is_refused_by_the_codec_and_a_huge_one_by_grpc():
    ends = []

    async def handler(link):
        try:
            await link.receive()
        except (LinkError, WireError) as error:
            ends.append(type(error))
            raise

    async def test(size):
        async with port(handler) as number, raw_stream(number) as stream:
            return await status_after(stream, bytes(size))

    code, said = asyncio.run(test(MAX_BYTES + 1))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert f"at most {MAX_BYTES} bytes, got {MAX_BYTES + 1}" in said
    code, said = asyncio.run(test(MAX_RECEIVED + 1))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "larger than max" in said
    assert ends == [WireError, LinkError]


def test_of_an_error_of_ours_the_peer_is_told_the_sentence():
    async def handler(link):
        await link.receive()
        raise HandshakeError("wanted width 3, got 4")

    async def test():
        async with port(handler) as number:
            dialer = RpcDialer(f"127.0.0.1:{number}", tls=None, name="bank", role="passive")
            link = await dialer.dial(timeout_s=30.0)
            await link.send(Pong(1))
            with pytest.raises(LinkError, match="wanted width 3, got 4"):
                await link.receive()
            await link.close()

    asyncio.run(test())


def test_of_any_other_error_the_peer_is_told_nothing_and_the_log_everything():
    async def handler(link):
        raise ZeroDivisionError("3.14 / 0")

    async def test():
        async with port(handler) as number, raw_stream(number) as stream:
            return await status_after(stream)

    with capture_logs() as logs:
        status = asyncio.run(test())
    assert status == (grpc.StatusCode.INTERNAL, "internal error, see the log")
    (entry,) = logs
    assert (entry["event"], entry["log_level"]) == ("call_failed", "error")
    assert isinstance(entry["exc_info"], ZeroDivisionError)
    assert entry["address"].startswith("ipv4:127.0.0.1:")


@pytest.mark.parametrize(
    "metadata",
    [(), WHO[:1], WHO[1:], (("vfb-name", "bank/.."), WHO[1]), (WHO[0], ("vfb-role", "king"))],
)
def test_without_tls_a_peer_that_does_not_say_who_it_is_is_refused(metadata):
    async def test():
        async with port(echo) as number, raw_stream(number, metadata) as stream:
            return await status_after(stream)

    with capture_logs() as logs:
        code, said = asyncio.run(test())
    assert code is grpc.StatusCode.PERMISSION_DENIED
    assert "vfb-name" in said
    assert [entry["event"] for entry in logs] == ["peer_refused"]


@pytest.mark.parametrize(
    ("leaf", "says"),
    [
        ({"federation": "circus"}, "wanted a member of federation 'fair', got one of 'circus'"),
        ({"uris": ()}, "a certificate names one member as"),
    ],
)
def test_a_certificate_of_our_authority_that_is_not_for_us_is_refused_and_logged(
    tmp_path, leaf, says
):
    authority = make_authority()
    make_leaf(tmp_path, ACTIVE_NAME, "active", authority=authority)
    make_leaf(tmp_path, "bank", "passive", authority=authority, **leaf)

    async def test():
        async with port(echo, tls=files(tmp_path, ACTIVE_NAME)) as number:
            dialer = RpcDialer(
                f"127.0.0.1:{number}",
                tls=files(tmp_path, "bank"),
                name="bank",
                role="passive",
                server_name="shop.fair.vfb",
            )
            with pytest.raises(LinkError, match=says):
                await dialer.dial(timeout_s=30.0)

    with capture_logs() as logs:
        asyncio.run(test())
    (entry,) = logs
    assert entry["event"] == "peer_refused"
    assert says in entry["reason"]


def test_over_tls_what_a_peer_says_of_itself_counts_for_nothing(tmp_path):
    authority = make_authority()
    make_leaf(tmp_path, ACTIVE_NAME, "active", authority=authority)
    make_leaf(tmp_path, "bank", "passive", authority=authority)
    held = files(tmp_path, "bank")
    peers = []

    async def handler(link):
        peers.append(link.peer)

    async def test():
        credentials = grpc.ssl_channel_credentials(
            held.authority.read_bytes(), held.key.read_bytes(), held.certificate.read_bytes()
        )
        options = [("grpc.ssl_target_name_override", "shop.fair.vfb")]
        lie = (("vfb-name", "news"), ("vfb-role", "operator"))
        async with port(handler, tls=files(tmp_path, ACTIVE_NAME)) as number:
            target = f"127.0.0.1:{number}"
            async with grpc.aio.secure_channel(target, credentials, options) as channel:
                await status_after(channel.stream_stream(JOIN)(metadata=lie))

    asyncio.run(test())
    assert [(peer.name, peer.role) for peer in peers] == [("bank", "passive")]


def test_a_port_that_is_taken_is_refused():
    async def test():
        async with port(echo) as number:
            with pytest.raises(ConfigError, match=r"cannot listen on .*: is it in use"):
                await RpcListener(f"127.0.0.1:{number}", tls=None).start(echo)

    asyncio.run(test())
