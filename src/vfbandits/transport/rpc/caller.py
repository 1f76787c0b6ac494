"""The identity of a caller: by its certificate, or without TLS by its own metadata."""

from typing import Final, TypeAlias

import grpc

from vfbandits.errors import IdentityError
from vfbandits.protocol.roster import ROLES, is_name
from vfbandits.transport.channel import Peer
from vfbandits.transport.rpc.tls import identity_from_certificate

FEDERATION: Final = "vfbandits.v1.Federation"
JOIN: Final = f"/{FEDERATION}/Join"
PROTOCOL_KEY: Final = "vfb-protocol"
NAME_KEY: Final = "vfb-name"
ROLE_KEY: Final = "vfb-role"

Context: TypeAlias = grpc.aio.ServicerContext[bytes, bytes]
Metadata: TypeAlias = tuple[tuple[str, str], ...]


def introduction(name: str, role: str, *, tls: bool) -> Metadata:
    """The metadata by which a caller names itself; none with TLS, where its certificate does."""
    return () if tls else ((NAME_KEY, name), (ROLE_KEY, role))


def peer_of(context: Context, *, federation: str | None) -> Peer:
    """The peer of a call; ``federation`` is None without TLS."""
    if federation is None:
        return _introduced(context)
    shown = context.auth_context()
    version = b"".join(shown.get("ssl_tls_version", ()))
    if version != b"TLSv1.3":
        raise IdentityError(f"wanted TLS 1.3, got {version.decode(errors='replace')!r}")
    who = identity_from_certificate(b"".join(shown.get("x509_pem_cert", ())))
    if who.federation != federation:
        raise IdentityError(
            f"wanted a member of federation {federation!r}, got one of {who.federation!r}"
        )
    return Peer(who.name, who.role, who.certificate, context.peer())


def _introduced(context: Context) -> Peer:
    said = dict(context.invocation_metadata() or ())
    name, role = str(said.get(NAME_KEY, "")), str(said.get(ROLE_KEY, ""))
    if not is_name(name) or role not in ROLES:
        raise IdentityError(
            f"without TLS a caller must send {NAME_KEY}, a name, and {ROLE_KEY}, one of "
            f"{', '.join(ROLES)}, got {name[:64]!r} and {role[:64]!r}"
        )
    return Peer(name, role, "", context.peer())
