"""The TLS files, keys and roster entry of a member's process."""

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from vfbandits.errors import ConfigError
from vfbandits.pki import Identity
from vfbandits.pki.files import read_certificate
from vfbandits.protocol.roster import Member, Roster
from vfbandits.settings.services import ParticipantConfig
from vfbandits.transport.rpc.tls import TlsFiles


def server_name(roster: Roster) -> str:
    """The name that the active participant's certificate must have."""
    return f"{roster.active.name}.{roster.federation}.vfb"


def tls_files(identity: Identity) -> TlsFiles:
    """The files of an identity that TLS needs."""
    return TlsFiles(identity.certificate_path, identity.key_path, identity.authority_path)


def authority_key(identity: Identity) -> EllipticCurvePublicKey:
    """The key that signs rosters, from the authority's certificate beside the identity."""
    key = read_certificate(identity.authority_path).public_key()
    if not isinstance(key, EllipticCurvePublicKey):
        raise ConfigError(f"wanted an authority with an ECDSA key, got {identity.authority_path}")
    return key


def tls_of(place: ParticipantConfig) -> TlsFiles | None:
    """The files that TLS needs; None if TLS is switched off."""
    return None if place.insecure else tls_files(Identity.load(place.identity, place.name))


def own_member(place: ParticipantConfig, roster: Roster) -> Member:
    """The entry of this process in the roster."""
    member = roster.find(place.name)
    if member is None or member.role != place.role:
        came = "no member of this name" if member is None else f"the role {member.role}"
        raise ConfigError(f"wanted {place.role} {place.name!r} in the roster, got {came}")
    return member


def sealing_key_of(identity: Identity) -> X25519PrivateKey:
    """The key that opens envelopes of mask shares."""
    if identity.sealing_key is None:
        raise ConfigError(
            f"wanted a sealing key of {identity.subject.name!r}, got none; make a new request"
        )
    return identity.sealing_key
