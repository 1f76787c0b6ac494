"""What must not leave a process, in every form in which it could: features, shares, keys, ids."""

import base64
import hashlib

import numpy as np

from vfbandits.journal.mask_shares import ShareFiles
from vfbandits.pki.files import key_path, sealing_key_path


def read_shares(federation):
    found = {}
    for name in federation.roster.split.names:
        held = ShareFiles(federation.folder / name / "state" / "shares").load()
        found[name] = {
            f"entry {place} of the share of epoch {epoch}": entry.tobytes()
            for epoch, item in held.items()
            for place, entry in enumerate(item.share.columns.ravel())
        }
    return found


def values_of(world, name):
    values = world.blocks[name].ravel()
    found = {f"feature {place}": np.float64(value).tobytes() for place, value in enumerate(values)}
    found.update({f"feature {p} as text": repr(float(v)).encode() for p, v in enumerate(values)})
    return found


def keys_of(federation, name):
    home = federation.folder / name / "identity"
    identity = federation.identity(name)
    sealing = identity.sealing_key.private_bytes_raw()
    pems = [key_path(home, name).read_bytes(), sealing_key_path(home, name).read_bytes()]
    bodies = [b"".join(pem.splitlines()[1:-1]) for pem in pems]
    return {
        "sealing key": sealing,
        "sealing key as hex": sealing.hex().encode(),
        **{f"key file {place}": body[20:60] for place, body in enumerate(bodies)},
        **{f"key bytes {place}": base64.b64decode(body)[-32:] for place, body in enumerate(bodies)},
    }


def spellings(user):
    """An id as a process might write it: as it is, in hex or base64, or hashed without a key."""
    raw = user.encode()
    hashed = [kind(raw).digest() for kind in (hashlib.sha256, hashlib.sha1, hashlib.md5)]
    hashed.append(hashlib.blake2b(raw, digest_size=16).digest())
    return [raw, raw.hex().encode(), *hashed, *(one.hex().encode() for one in hashed)]
