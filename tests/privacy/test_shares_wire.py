"""All bytes that leave each process on secret shares: no feature in them, rotated or not."""

import asyncio
import contextlib

import numpy as np
from hidden_values import keys_of, read_shares, spellings, values_of
from live_world import LiveWorld, wait_until_connected
from proxy import Proxy
from shared_sessions import MODEL, SCALE, SharedSession

from vfbandits.core.ring import encode
from vfbandits.journal.mask_shares import ShareFiles
from vfbandits.pki.member import sealing_key_of
from vfbandits.protocol.dealt import DealOpener, secrets_name
from vfbandits.protocol.roster import PSEUDONYMS, SharesRules, Terms
from vfbandits.protocol.slots import to_rows

WIDTHS = {"shop": 4, "bank": 3, "news": 5}
PASSIVE = ("bank", "news")
RULES = SharesRules(helper="bank", max_arms=4, window=4, decisions=6, posterior_scale=SCALE)
TERMS = Terms(bound=4.0, users=PSEUDONYMS, shares=RULES)


def test_no_feature_rotated_feature_arm_reward_or_secret_leaves_a_process(tmp_path):
    world = LiveWorld(tmp_path, widths=WIDTHS, terms=TERMS, n_users=4)
    # Without TLS, so that the bytes on the wire are the bytes of the messages.
    federation = world.federation(insecure=True, model=MODEL)
    port = int(federation.address.rsplit(":", 1)[1])
    with contextlib.ExitStack() as stack:
        proxies = {name: stack.enter_context(Proxy(port)) for name in PASSIVE}
        for name, proxy in proxies.items():
            config = federation.config(name)
            text = config.read_text().replace(federation.address, f"127.0.0.1:{proxy.port}")
            config.write_text(text)
        stack.enter_context(federation)
        asyncio.run(play(world, federation))
        crossed = {f"{name} sent": bytes(p.upward) for name, p in proxies.items()}
        crossed |= {f"{name} heard": bytes(p.downward) for name, p in proxies.items()}
    crossed |= {f"{name} logged": federation.log_path(name).read_bytes() for name in WIDTHS}
    # The recording is of plain messages, and has the words of 12 decisions.
    assert b"arm-3" in crossed["news heard"]
    assert len(crossed["news sent"]) > 12 * 4 * 16 * WIDTHS["news"]
    shares = read_shares(federation)
    for place, data in crossed.items():
        found = [spelt for user in world.users for spelt in spellings(user) if spelt in data]
        assert not found, f"ids are in what {place}"
        for name in WIDTHS:
            hidden = {
                **values_of(world, name),
                **rotated(world, federation, name),
                **shares[name],
                **keys_of(federation, name),
                **secrets_of(federation, name),
            }
            for what, secret in hidden.items():
                assert secret not in data, f"{what} of {name} is in what {place}"


async def play(world, federation):
    async with SharedSession(world, federation) as session:
        await wait_until_connected(session)
        await session.play(12)
        assert set(session.contributors[-1]) == set(WIDTHS)


def rotated(world, federation, name):
    """Rows behind the private rotation: as numbers, and as words that no mask covers."""
    share = ShareFiles(federation.folder / name / "state" / "shares").load()[1].share
    rows = share.mask(world.blocks[name])
    words = to_rows(encode(rows, bound=16.0, what="rows"))
    parts = [words[start : start + 16] for start in range(0, len(words), 16)]
    found = {f"rotated feature {p}": np.float64(v).tobytes() for p, v in enumerate(rows.ravel())}
    return found | {f"word {place} without a mask": part for place, part in enumerate(parts)}


def secrets_of(federation, name):
    """What the dealer gave to this participant alone."""
    key = sealing_key_of(federation.identity(name))
    sealed = federation.folder / name / "dealt" / secrets_name(name, 1)
    secrets = DealOpener(federation.roster, 1, name, key).secrets(sealed.read_bytes())
    sources = [secrets.participant.active, secrets.participant.helper]
    if secrets.server is not None:
        sources += [secrets.server.own, *secrets.server.inputs]
    raw = [source.to_bytes() for source in sources]
    return {f"secret {place}": one for place, one in enumerate(raw)} | {
        f"secret {place} as hex": one.hex().encode() for place, one in enumerate(raw)
    }
