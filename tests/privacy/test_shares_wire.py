"""All bytes that leave each process on secret shares: no feature in them, rotated or not."""

import asyncio
import contextlib
from dataclasses import replace

import numpy as np
from hidden_values import keys_of, read_shares, spellings, values_of
from live_world import LiveWorld, client_of, wait_until_connected
from proxy import Proxy
from shared_sessions import MODEL, SCALE, SharedSession

from vfbandits.admin.federation_files import without_member
from vfbandits.core.ring import encode
from vfbandits.journal.mask_shares import ShareFiles
from vfbandits.pki.member import sealing_key_of
from vfbandits.protocol.application import ChangeRequest
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
    crossed = recorded(federation, PASSIVE, lambda: asyncio.run(play(world, federation)))
    # The recording is of plain messages, and has the words of 12 decisions.
    assert b"arm-3" in crossed["news heard"]
    assert len(crossed["news sent"]) > 12 * 4 * 16 * WIDTHS["news"]
    refuse_hidden(world, federation, crossed, epochs={1: federation.roster})


def test_a_helper_that_agrees_to_other_members_sends_and_gets_nothing_that_is_hidden(tmp_path):
    terms = replace(TERMS, shares=replace(RULES, helper="judge"))
    world = LiveWorld(tmp_path, widths=WIDTHS, terms=terms, n_users=4)
    federation = world.federation(insecure=True, model=MODEL)
    before = federation.roster

    async def leave():
        async with SharedSession(world, federation) as session:
            await wait_until_connected(session)
            await session.play(6)
            federation.roster = without_member(before, "news")
            signed = federation.sign(federation.roster)
            envelopes = federation.deal_shares(6, epoch=2, before=before)
            operator = client_of(federation, "operator")
            await operator.change(ChangeRequest(signed, envelopes), timeout_s=60.0)
            await operator.close()
            await session.wait_for("bank")
            await session.play(6)
            return signed, envelopes

    dealt = []
    crossed = recorded(federation, ("judge",), lambda: dealt.extend(asyncio.run(leave())))
    signed, envelopes = dealt
    heard = crossed["judge heard"]
    assert signed in heard
    assert envelopes.pop("judge") in heard
    assert not [name for name, envelope in envelopes.items() if envelope in heard]
    refuse_hidden(world, federation, crossed, epochs={1: before, 2: federation.roster})


def recorded(federation, names, scenario):
    """All bytes on the streams of these members while a scenario is played, and all logs."""
    port = int(federation.address.rsplit(":", 1)[1])
    with contextlib.ExitStack() as stack:
        proxies = {name: stack.enter_context(Proxy(port)) for name in names}
        for name, proxy in proxies.items():
            config = federation.config(name)
            text = config.read_text().replace(federation.address, f"127.0.0.1:{proxy.port}")
            config.write_text(text)
        stack.enter_context(federation)
        scenario()
        crossed = {f"{name} sent": bytes(p.upward) for name, p in proxies.items()}
        crossed |= {f"{name} heard": bytes(p.downward) for name, p in proxies.items()}
    members = {*WIDTHS, *names}
    return crossed | {f"{name} logged": federation.log_path(name).read_bytes() for name in members}


def refuse_hidden(world, federation, crossed, *, epochs):
    """No id, feature, share, key or secret of an epoch is in what has crossed."""
    shares = read_shares(federation)
    for place, data in crossed.items():
        found = [spelt for user in world.users for spelt in spellings(user) if spelt in data]
        assert not found, f"ids are in what {place}"
        for name in WIDTHS:
            hidden = {
                **values_of(world, name),
                **rotated(world, federation, name),
                **shares.get(name, {}),
                **keys_of(federation, name),
            }
            for epoch, roster in epochs.items():
                hidden |= secrets_of(federation, name, roster, epoch)
            for what, secret in hidden.items():
                assert secret not in data, f"{what} of {name} is in what {place}"


async def play(world, federation):
    async with SharedSession(world, federation) as session:
        await wait_until_connected(session)
        await session.play(12)
        assert set(session.contributors[-1]) == set(WIDTHS)


def rotated(world, federation, name):
    """Rows behind the private rotation: as numbers, and as words that no mask covers."""
    held = ShareFiles(federation.folder / name / "state" / "shares").load()
    share = held[max(held)].share
    rows = share.mask(world.blocks[name])
    words = to_rows(encode(rows, bound=16.0, what="rows"))
    parts = [words[start : start + 16] for start in range(0, len(words), 16)]
    found = {f"rotated feature {p}": np.float64(v).tobytes() for p, v in enumerate(rows.ravel())}
    return found | {f"word {place} without a mask": part for place, part in enumerate(parts)}


def secrets_of(federation, name, roster, epoch):
    """What the dealer gave to this participant alone; nothing to one that has left."""
    if roster.find(name) is None:
        return {}
    key = sealing_key_of(federation.identity(name))
    sealed = federation.folder / name / "dealt" / secrets_name(name, epoch)
    secrets = DealOpener(roster, epoch, name, key).secrets(sealed.read_bytes())
    sources = [secrets.participant.active, secrets.participant.helper]
    if secrets.server is not None:
        sources += [secrets.server.own, *secrets.server.inputs]
    raw = [source.to_bytes() for source in sources]
    named = {f"secret {place} of epoch {epoch}": one for place, one in enumerate(raw)}
    return named | {f"{what} as hex": one.hex().encode() for what, one in named.items()}
