"""The three ways messages travel, behind one door, for contract tests."""

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from certificates import FEDERATION, make_authority, make_leaf

from vfbandits.protocol.roster import ACTIVE, PASSIVE
from vfbandits.transport.channel import Dialer, Handler
from vfbandits.transport.memory import MemoryNetwork
from vfbandits.transport.rpc.client import RpcDialer
from vfbandits.transport.rpc.server import RpcListener
from vfbandits.transport.rpc.tls import TlsFiles, host_name

KINDS = ("memory", "rpc over TLS", "rpc without TLS")
ACTIVE_NAME = "shop"


@dataclass(frozen=True)
class Network:
    """A port that runs, and ways to it."""

    kind: str
    port: int
    dialer: Callable[[str], Dialer]
    stop: Callable[[float], object]
    tls: Callable[[str], TlsFiles] | None = None


def issue(folder: Path, *names: str) -> Callable[[str], TlsFiles]:
    """Certificates of the active participant and of passive ones, of one authority."""
    authority = make_authority()
    make_leaf(folder, ACTIVE_NAME, ACTIVE, authority=authority)
    for name in names:
        make_leaf(folder, name, PASSIVE, authority=authority)
    return lambda name: files(folder, name)


def files(folder: Path, name: str) -> TlsFiles:
    return TlsFiles(folder / f"{name}.crt", folder / f"{name}.key", folder / "authority.crt")


@contextlib.asynccontextmanager
async def network(kind: str, folder: Path, handler: Handler, *names: str) -> AsyncIterator[Network]:
    if kind == "memory":
        memory = MemoryNetwork(ACTIVE_NAME)
        await memory.start(handler)
        try:
            yield Network(kind, 0, memory.dialer, lambda grace_s: memory.stop(grace_s=grace_s))
        finally:
            await memory.stop(grace_s=0.0)
        return
    tls = issue(folder, *names) if kind == "rpc over TLS" else None
    listener = RpcListener("127.0.0.1:0", tls=tls(ACTIVE_NAME) if tls else None)
    port = await listener.start(handler)

    def dialer(name: str) -> RpcDialer:
        return RpcDialer(
            f"127.0.0.1:{port}",
            tls=tls(name) if tls else None,
            name=name,
            role=PASSIVE,
            server_name=host_name(ACTIVE_NAME, FEDERATION) if tls else "",
        )

    try:
        yield Network(kind, port, dialer, lambda grace_s: listener.stop(grace_s=grace_s), tls)
    finally:
        await listener.stop(grace_s=0.0)
