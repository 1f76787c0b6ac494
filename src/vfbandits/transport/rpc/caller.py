"""Who calls, and what: by the certificate, or without TLS by what the caller says of itself."""

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
    """What a caller says of itself: nothing, where its certificate speaks."""
    return () if tls else ((NAME_KEY, name), (ROLE_KEY, role))


def peer_of(context: Context, *, federation: str | None) -> Peer:
    """Who calls; ``federation`` is None without TLS."""
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
        raise IdentityError(f"without TLS a caller says {NAME_KEY} and {ROLE_KEY}, got no such")
    return Peer(name, role, "", context.peer())
