"""All bytes that leave each process, recorded on the way: no raw feature, mask or key in them."""

import asyncio
import base64
import contextlib
import hashlib

import numpy as np
import pytest
from live_world import LiveWorld, Session, wait_until_connected
from proxy import Proxy

from vfbandits import LinUCB
from vfbandits.journal.mask_shares import ShareFiles
from vfbandits.pki.files import key_path, sealing_key_path
from vfbandits.protocol.application import ChangeRequest
from vfbandits.protocol.roster import Terms

WIDTHS = {"shop": 4, "bank": 3, "news": 5}
PASSIVE = ("bank", "news")


@pytest.mark.parametrize(
    ("mask", "aggregation", "layout", "users"),
    [
        ("blockwise", "plain", "per_arm", "pseudonyms"),
        ("dense", "plain", "outer", "clear"),
        ("dense", "secure", "per_arm", "pseudonyms"),
    ],
)
def test_no_raw_feature_mask_key_or_hidden_id_leaves_a_process(
    tmp_path, mask, aggregation, layout, users
):
    arm_dim = 2 if layout == "outer" else 0
    terms = Terms(mask, aggregation, layout, arm_dim=arm_dim, users=users)
    world = LiveWorld(tmp_path, widths=WIDTHS, terms=terms)
    # Without TLS, so that the bytes on the wire are the bytes of the messages.
    federation = world.federation(insecure=True)
    port = int(federation.address.rsplit(":", 1)[1])
    with contextlib.ExitStack() as stack:
        proxies = {name: stack.enter_context(Proxy(port)) for name in PASSIVE}
        for name, proxy in proxies.items():
            config = federation.config(name)
            text = config.read_text().replace(federation.address, f"127.0.0.1:{proxy.port}")
            config.write_text(text)
        stack.enter_context(federation)
        shares = asyncio.run(play(world, federation, dense=mask == "dense"))
        sent = {name: bytes(p.upward) for name, p in proxies.items()}
        heard = {name: bytes(p.downward) for name, p in proxies.items()}
    logs = {name: federation.log_path(name).read_bytes() for name in WIDTHS}

    for name in PASSIVE:
        # The recording is of plain messages: arms, or ids, can be read in it.
        assert (b"arm-3" if layout == "per_arm" else b"user-3") in heard[name]
        assert len(sent[name]) > 40 * 8 * WIDTHS[name]
    if users == "pseudonyms":
        for place, data in {**sent, **heard, **logs}.items():
            found = [spelt for user in world.users for spelt in spellings(user) if spelt in data]
            assert not found, f"ids are in what {place} sent or heard"
    for name in WIDTHS:
        hidden = {**values_of(world, name), **shares[name], **keys_of(federation, name)}
        for place, data in {**sent, **heard, **logs}.items():
            for what, secret in hidden.items():
                assert secret not in data, f"{what} of {name} is in what {place} sent or heard"


async def play(world, federation, *, dense):
    """Decide, learn, change the masks and decide again; returns all shares there were."""
    async with Session(world, federation, world.central(LinUCB(beta=0.5))) as session:
        await wait_until_connected(session)
        await session.play(15)
        shares = read_shares(federation)
        envelopes = federation.deal(federation.roster, 2) if dense else {}
        async with Session(world, federation, session.central, name="operator") as operator:
            await operator.client.change(ChangeRequest(envelopes=envelopes), timeout_s=20.0)
        await session.play(10)
        for name, more in read_shares(federation).items():
            shares[name].update(more)
    assert session.is_lossless
    return shares


def read_shares(federation):
    found = {}
    for name in WIDTHS:
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
