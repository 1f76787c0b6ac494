"""A dial that fails says what stood in the way, soon, and leaves nothing behind."""

import asyncio
import contextlib
import socket
import time

import grpc
import pytest
from certificates import DAY, FEDERATION, make_authority, make_leaf
from networks import ACTIVE_NAME, files

from vfbandits.errors import ConfigError, IdentityError, LinkError
from vfbandits.transport.rpc.caller import FEDERATION as SERVICE
from vfbandits.transport.rpc.client import RpcDialer
from vfbandits.transport.rpc.server import RpcListener
from vfbandits.transport.rpc.tls import TlsFiles, host_name

HOST = host_name(ACTIVE_NAME, FEDERATION)
OLD = {"not_before": -9 * DAY, "not_after": -DAY}
YOUNG = {"not_before": DAY, "not_after": 9 * DAY}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Members of one authority, some out of date, and strangers of another one."""
    folder = tmp_path_factory.mktemp("pki")
    authority, other = make_authority(), make_authority("another authority")
    make_leaf(folder, ACTIVE_NAME, "active", authority=authority)
    make_leaf(folder, "bank", "passive", authority=authority)
    make_leaf(folder, "old", "passive", authority=authority, **OLD)
    make_leaf(folder, "young", "passive", authority=authority, **YOUNG)
    make_leaf(folder / "expired", ACTIVE_NAME, "active", authority=authority, **OLD)
    make_leaf(folder / "other", ACTIVE_NAME, "active", authority=other)
    make_leaf(folder / "other", "bank", "passive", authority=other)
    return folder


async def read(link):
    while True:
        await link.receive()


def dialer(address, tls, server_name=HOST):
    return RpcDialer(address, tls=tls, name="bank", role="passive", server_name=server_name)


@contextlib.asynccontextmanager
async def listening(tls):
    listener = RpcListener("127.0.0.1:0", tls=tls)
    port = await listener.start(read)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await listener.stop(grace_s=0.0)


def refusal(server, client, **options):
    async def test():
        async with listening(server) as address:
            start = time.monotonic()
            with pytest.raises(LinkError) as caught:
                await dialer(address, client, **options).dial(timeout_s=30.0)
            assert time.monotonic() - start < 20.0
            return str(caught.value)

    return asyncio.run(test())


def test_of_a_server_with_another_authority(folder):
    said = refusal(files(folder / "other", ACTIVE_NAME), files(folder, "bank"))
    assert "its certificate is of another authority" in said


def test_of_a_server_whose_certificate_has_expired(folder):
    said = refusal(files(folder / "expired", ACTIVE_NAME), files(folder, "bank"))
    assert "its certificate has expired" in said


def test_of_a_server_with_another_name(folder):
    said = refusal(files(folder, ACTIVE_NAME), files(folder, "bank"), server_name="news.fair.vfb")
    assert "its certificate has another name" in said


def test_of_a_server_without_tls(folder):
    assert "it does not speak TLS" in refusal(None, files(folder, "bank"))


def test_of_our_own_certificate_that_has_expired(folder):
    said = refusal(files(folder, ACTIVE_NAME), files(folder, "old"))
    assert "our own certificate expired on 20" in said


def test_of_our_own_certificate_that_is_not_valid_yet(folder):
    said = refusal(files(folder, ACTIVE_NAME), files(folder, "young"))
    assert "our own certificate is not valid before 20" in said


def test_of_our_own_certificate_of_another_authority(folder):
    mixed = files(folder / "other", "bank")
    ours = TlsFiles(mixed.certificate, mixed.key, files(folder, "bank").authority)
    said = refusal(files(folder, ACTIVE_NAME), ours)
    assert f"our own certificate {ours.certificate} was not issued by the authority in" in said


def test_of_a_certificate_in_which_this_end_finds_no_fault(folder):
    """In TLS 1.3 the dialling end is not told; the error names the command that asks."""
    shown = files(folder, ACTIVE_NAME)
    server = TlsFiles(shown.certificate, shown.key, files(folder / "other", "bank").authority)
    said = refusal(server, files(folder, "bank"))
    assert "a server does that refuses our certificate; `vfb preflight` shows the reason" in said


def test_of_a_port_where_nobody_listens(folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"

    async def test():
        with pytest.raises(LinkError, match=f"{address}: nobody listens there"):
            await dialer(address, files(folder, "bank")).dial(timeout_s=30.0)

    asyncio.run(test())


def test_of_a_server_that_says_nothing(folder):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"

        async def test():
            start = time.monotonic()
            with pytest.raises(LinkError, match=f"{address} did not answer within 0.3 s"):
                await dialer(address, files(folder, "bank")).dial(timeout_s=0.3)
            assert time.monotonic() - start < 20.0

        asyncio.run(test())


def test_a_stream_that_ends_well_before_its_headers_were_read_is_a_link_that_ended():
    async def at_once(requests, context):
        """What is left of a listener that accepts and closes in one go, if gRPC is slow."""

    async def test():
        server = grpc.aio.server()
        methods = {"Join": grpc.stream_stream_rpc_method_handler(at_once)}
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, methods)])
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        link = await dialer(f"127.0.0.1:{port}", None).dial(timeout_s=30.0)
        with pytest.raises(LinkError, match="it ended the stream"):
            await link.receive()
        await link.close()
        await server.stop(0.0)

    asyncio.run(test())


def test_each_dial_is_fresh_with_no_back_off_from_the_one_before(folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    async def test():
        way = dialer(f"127.0.0.1:{port}", files(folder, "bank"))
        for _ in range(5):
            with pytest.raises(LinkError):
                await way.dial(timeout_s=30.0)
        listener = RpcListener(f"127.0.0.1:{port}", tls=files(folder, ACTIVE_NAME))
        await listener.start(read)
        start = time.monotonic()
        link = await way.dial(timeout_s=30.0)
        assert time.monotonic() - start < 5.0  # five failures would make gRPC wait for ten
        await link.close()
        await way.close()
        await listener.stop(grace_s=0.0)

    asyncio.run(test())


def test_a_renewed_certificate_is_used_by_the_next_dial(folder, tmp_path):
    for name in ("certificate", "key", "authority"):
        part = getattr(files(folder, "old"), name)
        (tmp_path / part.name).write_bytes(part.read_bytes())

    async def test():
        async with listening(files(folder, ACTIVE_NAME)) as address:
            way = dialer(address, files(tmp_path, "old"))
            with pytest.raises(LinkError, match="expired"):
                await way.dial(timeout_s=30.0)
            renewed = files(folder, "bank")
            (tmp_path / "old.crt").write_bytes(renewed.certificate.read_bytes())
            with pytest.raises(LinkError, match="is not the key of"):
                await way.dial(timeout_s=30.0)
            (tmp_path / "old.key").write_bytes(renewed.key.read_bytes())
            await (await way.dial(timeout_s=30.0)).close()

    asyncio.run(test())


def test_a_dial_that_is_cancelled_leaves_nothing_behind(folder):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"

        async def test():
            dialling = asyncio.ensure_future(
                dialer(address, files(folder, "bank")).dial(timeout_s=30.0)
            )
            accepting = asyncio.get_running_loop().sock_accept(mute)
            connection, _ = await asyncio.wait_for(accepting, 60.0)
            dialling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await dialling
            return connection

        mute.settimeout(0.0)
        connection = asyncio.run(test())
        connection.settimeout(60.0)
        while connection.recv(65536):
            pass
        connection.close()


def test_files_that_cannot_be_used_are_refused_before_any_dial(folder):
    with pytest.raises(IdentityError, match="cannot read"):
        dialer("127.0.0.1:1", files(folder, "nobody"))


@pytest.mark.parametrize("address", ["10.0.0.1:4000", "0.0.0.0:4000", "example.org:1", "[::]:1"])
def test_without_tls_only_loopback_is_dialled_or_listened_on(address):
    with pytest.raises(ConfigError, match="without TLS an address must be on loopback"):
        dialer(address, None, server_name="")
    with pytest.raises(ConfigError, match="without TLS an address must be on loopback"):
        RpcListener(address, tls=None)
