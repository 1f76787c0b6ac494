"""All bytes that leave each process, recorded on the way: no raw feature, mask or key in them."""

import asyncio
import contextlib

import pytest
from hidden_values import keys_of, read_shares, spellings, values_of
from live_world import LiveWorld, Session, wait_until_connected
from proxy import Proxy

from vfbandits import LinUCB
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
