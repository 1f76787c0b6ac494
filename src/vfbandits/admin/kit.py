"""A member's kit: the organiser's answer to a request, as one file, which its owner unpacks.

A kit has the signed roster, a commented configuration and two certificates.  None is secret: the
keys were made by their owner, where the kit is unpacked.  The configuration is not signed, so it is
generated again from the roster; only the address is copied from the kit.
"""

import io
import lzma
import struct
import tomllib
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from vfbandits.errors import ConfigError, IdentityError, VFBanditsError
from vfbandits.features.open import scaling_of
from vfbandits.files import write_whole
from vfbandits.pki.files import certificate_path, make_folder, read_file, refuse_existing
from vfbandits.pki.request import Keys
from vfbandits.protocol.identity import (
    AUTHORITY,
    GENERATOR,
    Subject,
    authority_of,
    key_digest,
    subject_of,
)
from vfbandits.protocol.roster import Member, Roster, is_name
from vfbandits.protocol.signed_roster import MAX_BYTES, open_roster
from vfbandits.settings.address import split_address
from vfbandits.settings.decode import decode
from vfbandits.settings.features import FeatureSettings
from vfbandits.settings.template import (
    FEATURES_FILE,
    clipped,
    config_text,
    generator_text,
    with_features,
)

ROSTER = "roster.signed"
IDENTITY = "identity"
# What zipfile raises for an archive that is damaged, encrypted or malicious.
_UNREADABLE = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, OSError, EOFError),
    *(NotImplementedError, RuntimeError, ValueError, struct.error),
)
_DAY = (1980, 1, 1, 0, 0, 0)  # the same files make the same bytes


def kit_path(out: Path, name: str) -> Path:
    """The path of the kit of ``name``."""
    return out / f"{name}.zip"


@dataclass(frozen=True, slots=True)
class Kit:
    """What an organiser sends to one member, checked: the authority signed roster and certificate.

    ``fingerprint`` is the digest of the authority's key, which its owner must have read out:
    everything else is verified with that key.
    """

    subject: Subject
    roster: Roster
    fingerprint: str
    address: str
    files: dict[str, bytes] = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> "Kit":
        """The kit in a file."""
        files = _unpack(path)
        ((name, config),) = [
            (place.removesuffix(".toml"), data) for place, data in files.items() if ".toml" in place
        ]
        authority = _certificate(files[f"{IDENTITY}/{AUTHORITY}.crt"], path)
        certificate = _certificate(files[f"{IDENTITY}/{name}.crt"], path)
        key = authority.public_key()
        if not isinstance(key, EllipticCurvePublicKey):
            raise IdentityError(f"wanted an authority with an ECDSA key in {path}")
        roster = open_roster(files[ROSTER], key)
        try:
            certificate.verify_directly_issued_by(authority)
        except (InvalidSignature, TypeError, ValueError) as error:
            raise IdentityError(
                f"the certificate in {path} must be signed by the authority beside it, it is not"
            ) from error
        subject = subject_of(certificate)
        came = (subject.name, subject.federation, roster.federation)
        if came != (name, authority_of(authority), authority_of(authority)):
            raise IdentityError(
                f"wanted files of one member of one federation in {path}, got a certificate of "
                f"{subject.uri} and a roster of {roster.federation!r}"
            )
        return cls(subject, roster, key_digest(key), _address(config, subject, path), files)

    def take_in(self, folder: Path) -> "Joined":
        """Write the kit's files into its owner's folder, next to the keys; overwrites nothing.

        ``features.toml``, which was written when the scaling was fitted, becomes [features].
        """
        name, identity = self.subject.name, folder / IDENTITY
        keys = Keys.load(identity, name, self.subject.role)
        certificate = _certificate(self.files[f"{IDENTITY}/{name}.crt"], folder)
        if keys.tls.public_key() != certificate.public_key():
            raise IdentityError(
                f"the kit must be for the keys in {identity}, got one for other keys: run this "
                "command where vfb pki request was run"
            )
        member = self._own_entry(keys)
        config, table = self._config(member), folder / FEATURES_FILE
        has_features = member is not None and bool(member.width) and table.is_file()
        if has_features and member is not None:
            text = read_file(table, "[features]").decode()
            _refuse_other_features(text, folder, member)
            config = with_features(config, clipped(text, self.roster))
        files = {folder / place: data for place, data in self.files.items()}
        target = folder / f"{name}.toml"
        files[target] = config.encode()
        refuse_existing(list(files), "move it away first")
        make_folder(identity)
        for place, data in files.items():
            _write(place, data)
        return Joined(target, has_features=has_features)

    def _config(self, member: Member | None) -> str:
        if member is None:
            return generator_text(
                self.subject.name, self.roster, address=self.address, roster_file=ROSTER
            )
        return config_text(member, self.roster, address=self.address, roster_file=ROSTER)

    def _own_entry(self, keys: Keys) -> Member | None:
        """The owner's entry in the roster; a generator has none, but its key is pinned."""
        name, digest = self.subject.name, key_digest(keys.tls.public_key())
        if self.subject.role == GENERATOR:
            signing = keys.signing and keys.signing.public_key().public_bytes_raw().hex()
            if self.roster.generator_key not in ("", signing):
                raise IdentityError("the roster must have this generator's key, it has another")
            return None
        member = self.roster.find(name)
        if member is None or member.certificate != digest or member.role != self.subject.role:
            raise IdentityError(f"the roster must have {name!r} with these keys, it does not")
        return member


@dataclass(frozen=True, slots=True)
class Joined:
    """The configuration file of a member that unpacked its kit."""

    config: Path
    has_features: bool


def pack(name: str, out: Path) -> Path:
    """The public files of the folder of ``name`` as one file."""
    folder, target = out / name, kit_path(out, name)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for place in _places(name):
            info = zipfile.ZipInfo(place, _DAY)
            info.external_attr = 0o644 << 16
            archive.writestr(info, read_file(folder / place, "a file of the kit"))
    return _write(target, buffer.getvalue())


def _write(path: Path, data: bytes) -> Path:
    try:
        return write_whole(path, lambda file: file.write(data), mode=0o644)
    except OSError as error:
        raise ConfigError(f"wanted a file to write, got {path}: {error.strerror}") from error


def _places(name: str) -> tuple[str, ...]:
    certificates = (certificate_path(Path(IDENTITY), who).as_posix() for who in (name, AUTHORITY))
    return (f"{name}.toml", ROSTER, *certificates)


def _unpack(path: Path) -> dict[str, bytes]:
    """The files of a kit; an archive with any other file is refused, since anybody can make one."""
    data = read_file(path, "a kit", most=2 * MAX_BYTES)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            places = archive.namelist()
            names = [place.removesuffix(".toml") for place in places if place.endswith(".toml")]
            is_one = len(names) == 1 and is_name(names[0])
            if not is_one or sorted(places) != sorted(_places(names[0])):
                raise IdentityError(
                    f"a kit has NAME.toml, {ROSTER}, {IDENTITY}/NAME.crt and "
                    f"{IDENTITY}/{AUTHORITY}.crt, got {', '.join(places[:6])} in {path}"
                )
            if any(archive.getinfo(place).file_size > MAX_BYTES for place in places):
                raise IdentityError(f"files of a kit have at most {MAX_BYTES} bytes, got more")
            return {place: archive.read(place) for place in places}
    except VFBanditsError:
        raise
    except _UNREADABLE as error:
        raise IdentityError(f"wanted a kit that vfb federation init wrote, got {path}") from error


def _certificate(pem: bytes, where: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError as error:
        raise IdentityError(f"wanted a certificate in PEM in {where}") from error


def _address(config: bytes, subject: Subject, path: Path) -> str:
    """The address in a configuration, which must be that of ``subject``."""
    try:
        document = tomllib.loads(config.decode())
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the configuration in {path} must be TOML, but {error}") from error
    came = (document.get("name"), document.get("role"))
    if came != (subject.name, subject.role):
        raise ConfigError(
            f"the configuration in {path} must be of {subject.role} {subject.name!r}, got "
            f"{came[1]!r:.40} {came[0]!r:.40}"
        )
    address = str(document.get("address", ""))
    split_address(address)
    return address


def _refuse_other_features(text: str, folder: Path, member: Member) -> None:
    """Refuse a table [features] whose scaling is not the one of the request."""
    where = folder / FEATURES_FILE
    try:
        table = tomllib.loads(text).get("features")
        settings = decode(table, FeatureSettings, where=where.name, folder=folder.resolve())
        scaling = scaling_of(settings)
    except (ValueError, VFBanditsError) as error:
        raise ConfigError(f"{where} must be what vfb features fit wrote, but {error}") from error
    if (member.scaling or scaling.digest) != scaling.digest or scaling.width != member.width:
        raise ConfigError(
            f"{where} must have the scaling of the request, {member.width} features of digest "
            f"{member.scaling[:16]}…, got {scaling.width} of {scaling.digest[:16]}…"
        )
