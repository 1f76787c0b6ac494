"""No private key leaves its file."""

import base64
import logging
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from members import BANK, GENERATOR, SHOP, WEB, join, mode

from vfbandits.errors import IdentityError
from vfbandits.pki import (
    Authority,
    Grant,
    Identity,
    approve,
    check_certificate,
    create_authority,
)
from vfbandits.pki.request import Keys

NOW = datetime.now(UTC)


@pytest.fixture
def ca(tmp_path):
    create_authority(tmp_path / "ca", "shops")
    return tmp_path / "ca"


def spellings(path):
    """The secret number of a private key file, as bytes, hex and base64."""
    key = load_pem_private_key(path.read_bytes(), None)
    numbers = getattr(key, "private_numbers", None)
    raw = numbers().private_value.to_bytes(32, "big") if numbers else key.private_bytes_raw()
    # Wherever it starts in what was encoded, one of these three is part of the base64 text.
    in_base64 = [base64.b64encode(raw[start : start + 27]) for start in range(3)]
    return [raw, raw.hex().encode(), raw.hex().upper().encode(), *in_base64]


def test_no_private_key_is_in_a_public_file_a_repr_an_error_or_a_log(tmp_path, ca, caplog, capsys):
    caplog.set_level(logging.DEBUG)
    said = []
    for terms in (SHOP, BANK, WEB, GENERATOR):
        folder = join(tmp_path, ca, terms)
        identity = Identity.load(folder, terms["name"])
        keys = Keys.load(folder, terms["name"], terms["role"])
        approval = approve(folder / f"{terms['name']}.request.json", ca, grant=Grant(renew=True))
        said += [repr(identity), repr(keys), repr(approval), repr(Authority.load(ca))]
        for wrong in ({"name": "x"}, {"key": ca / "authority.key"}):
            said += check_certificate(identity.certificate_path, ca / "authority.crt", NOW, **wrong)
    assert "sealing_key" not in said[0]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    secrets = [path for path in files if path.suffix == ".key"]
    assert len(secrets) == 4 + 2 + 1 + 1
    assert all(mode(path) == 0o600 for path in secrets)
    public = b"".join(path.read_bytes() for path in files if path not in secrets)
    seen = public + "".join([*said, caplog.text, *capsys.readouterr()]).encode()
    assert b"shops" in seen
    seen += seen.replace(b"\n", b"")
    for path in secrets:
        assert any(one in path.read_bytes().replace(b"\n", b"") for one in spellings(path))
        for spelling in spellings(path):
            assert spelling not in seen, path


def test_a_damaged_key_is_refused_without_a_word_of_it(tmp_path, ca):
    folder = join(tmp_path, ca, BANK)
    path = Path(folder / "bank.sealing.key")
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([lines[0], lines[1][:-8], lines[2]]))
    with pytest.raises(IdentityError, match="wanted a private key in PEM") as caught:
        Identity.load(folder, "bank")
    assert lines[1][:20].decode() not in str(caught.value)
    assert caught.value.__cause__ is None
