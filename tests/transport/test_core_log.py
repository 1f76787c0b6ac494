"""Which peer was turned away in the handshake, and why, from what gRPC's core prints."""

import asyncio
import contextlib
import os
import select
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from certificates import DAY, FEDERATION, make_authority, make_leaf
from networks import ACTIVE_NAME, files

from vfbandits.errors import ConfigError, LinkError
from vfbandits.transport.rpc.client import RpcDialer
from vfbandits.transport.rpc.core_log import CoreLog, HandshakeLines
from vfbandits.transport.rpc.tls import TlsFiles, host_name

HOST = host_name(ACTIVE_NAME, FEDERATION)
TESTS = Path(__file__).parent.parent
HEAD = b"I1116 04:46:57.048293    5387 "
FAILED = (
    HEAD
    + b"handshaker.cc:155] CallNextHandshakerLocked: error=UNKNOWN: CERTIFICATE_VERIFY_FAILED: "
    b"certificate has expired: OK"
)
SHUTDOWN = (
    b" shutdown=false index=2, args={grpc.internal.endpoint_peer_address=ipv4:10.0.0.7:55, x}"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pki")
    authority = make_authority()
    make_leaf(folder, ACTIVE_NAME, "active", authority=authority)
    make_leaf(folder, "bank", "passive", authority=authority)
    make_leaf(folder, "old", "passive", authority=authority, not_before=-9 * DAY, not_after=-DAY)
    make_leaf(folder, "young", "passive", authority=authority, not_before=DAY)
    make_leaf(folder / "other", "bank", "passive", authority=make_authority("another"))
    make_leaf(folder / "twin", "bank", "passive", authority=make_authority())
    return folder


class Watcher:
    """The process that listens, and what it says."""

    def __init__(self, folder):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GRPC")}
        self.process = subprocess.Popen(
            [sys.executable, str(TESTS / "refusal_watcher.py"), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**kept, "PYTHONPATH": str(TESTS)},
        )
        self.port = int(self.process.stdout.readline())

    def line(self):
        ready, _, _ = select.select([self.process.stdout], [], [], 10.0)
        assert ready, "nothing was said"
        return os.read(self.process.stdout.fileno(), 65536).decode()

    def end(self):
        """What it wrote to its standard error, and to its standard output at the end."""
        out, err = self.process.communicate(b"\n", timeout=30)
        return err, out


@pytest.fixture(scope="module")
def watcher(folder):
    watcher = Watcher(folder)
    yield watcher
    watcher.process.kill()
    watcher.process.communicate()


def dial(watcher, held):
    async def test():
        dialer = RpcDialer(
            f"127.0.0.1:{watcher.port}", tls=held, name="bank", role="passive", server_name=HOST
        )
        link = await dialer.dial(timeout_s=30.0)
        await link.close()

    asyncio.run(test())


def refused(said):
    """The reason, of a line with an address that is the peer's."""
    head, _, reason = said.strip().partition(": ")
    assert head.startswith("refused ipv4:127.0.0.1:")
    assert head.rpartition(":")[2].isdigit()
    return reason


@pytest.mark.parametrize(
    ("where", "name", "reason"),
    [
        ("", "old", "its certificate has expired"),
        ("", "young", "its certificate is not valid yet"),
        ("other", "bank", "its certificate is of another authority"),
        ("twin", "bank", "its certificate is of another authority"),
    ],
)
def test_a_certificate_that_is_not_accepted_is_named_with_its_fault(
    watcher, folder, where, name, reason
):
    held = files(folder / where, name)
    with pytest.raises(LinkError):
        dial(watcher, TlsFiles(held.certificate, held.key, folder / "authority.crt"))
    assert refused(watcher.line()) == reason


def test_a_peer_without_a_certificate_is_named(watcher, folder):
    async def test():
        credentials = grpc.ssl_channel_credentials((folder / "authority.crt").read_bytes())
        options = [("grpc.ssl_target_name_override", HOST)]
        address = f"127.0.0.1:{watcher.port}"
        async with grpc.aio.secure_channel(address, credentials, options) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await channel.unary_unary("/x")(b"", timeout=5.0)

    asyncio.run(test())
    assert refused(watcher.line()) == "it showed no certificate"


def test_a_peer_that_speaks_plain_text_is_named(watcher):
    with socket.create_connection(("127.0.0.1", watcher.port)) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert refused(watcher.line()) == "it does not speak TLS"


def test_a_peer_that_speaks_an_old_tls_is_named(watcher, folder):
    held = files(folder, "bank")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(held.authority)
    context.load_cert_chain(held.certificate, held.key)
    with (
        socket.create_connection(("127.0.0.1", watcher.port)) as plain,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        context.wrap_socket(plain, server_hostname=HOST)
    assert refused(watcher.line()) == "it does not speak TLS 1.3"


def test_a_peer_that_does_not_accept_our_certificate_is_seen_to_hang_up(watcher, folder):
    held = files(folder, "bank")
    other = folder / "other" / "authority.crt"
    with pytest.raises(LinkError, match="another authority"):
        dial(watcher, TlsFiles(held.certificate, held.key, other))
    assert refused(watcher.line()).startswith("it ended the handshake")


def test_a_peer_that_is_accepted_is_not_named_and_the_standard_error_is_left_as_it_was(folder):
    watcher = Watcher(folder)
    dial(watcher, files(folder, "bank"))
    with contextlib.suppress(LinkError):
        dial(watcher, files(folder, "old"))
    assert "expired" in watcher.line()
    err, out = watcher.end()
    assert err == b"before\nI am no record\nprogress 50 %\rafter\nat the end\n"
    assert out == b"False\n"


def test_the_log_must_be_started_before_grpc():
    with pytest.raises(ConfigError, match="before grpc is imported"):
        CoreLog(print).start()


def kept(*lines, verbose=False):
    """The lines that are shown, and the calls."""
    calls = []
    filtered = HandshakeLines(lambda *call: calls.append(call), verbose=verbose)
    return [line for line in lines if filtered.keep(line)], calls


def test_a_refusal_is_called_out_once_with_its_address():
    trace = (b"=== Source Location Trace: === ", b"src/core/util/status_helper.cc:68")
    again = HEAD + b"channel_trace.h:396] handshake manager: Failed with error: UNKNOWN: x"
    shown, calls = kept(FAILED, *trace, SHUTDOWN, again, *trace, b"", b"", b"ours")
    assert calls == [("its certificate has expired", "ipv4:10.0.0.7:55")]
    assert shown == [b"ours"]


def test_a_refusal_whose_address_never_comes_is_called_out_without():
    _, calls = kept(FAILED, b"ours")
    assert calls == [("its certificate has expired", "")]


def test_errors_of_the_core_and_lines_of_others_are_shown_and_its_remarks_are_not():
    error = b"E1116 04:46:57.048293    5387 server.cc:1] bad"
    remark = HEAD + b"server.cc:1] all is well"
    lines = [error, b"src/core/a.cc:1", remark, b"src/core/a.cc:1", b"  File x", b"", b"I think"]
    assert kept(*lines)[0] == [error, b"src/core/a.cc:1", b"  File x", b"", b"I think"]
    assert kept(*lines, verbose=True)[0] == lines


def test_text_without_an_end_is_shown_at_once_unless_the_core_may_be_speaking():
    lines = HandshakeLines(print)
    assert lines.is_whole(b"password: ")
    assert not lines.is_whole(b"I11")
    assert not lines.is_whole(HEAD[:12])
