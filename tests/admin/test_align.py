"""Aligning users: both ends have the same users in common, and see nothing of the others."""

import asyncio
import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from pure_federation import PureFederation

from vfbandits.admin.align import sessions
from vfbandits.admin.align.psi import Cores, Receiver, Sender
from vfbandits.admin.align.sessions import AlignmentService, align, common_to_all
from vfbandits.admin.align.users import UserList, read_users, write_users
from vfbandits.errors import ConfigError, FeatureError, HandshakeError, IdentityError, WireError
from vfbandits.protocol.alignment import AlignBegin, AlignCommon, AlignElements
from vfbandits.protocol.pseudonyms import pseudonyms_between
from vfbandits.transport.channel import Peer
from vfbandits.transport.rpc.alignment import BEGIN, EXCHANGE, TELL

OURS = tuple(f"user-{k}" for k in range(25))
THEIRS = tuple(f"user-{k}" for k in range(20, 31))
COMMON = tuple(sorted({*OURS} & {*THEIRS}))


class Line:
    """Hands calls over through the codec, and keeps the bytes; ``change`` may tamper with them."""

    def __init__(self, service, peer, change=lambda method, message: message):
        self.service, self.peer, self.change, self.seen = service, peer, change, []

    async def _call(self, method, handler, request):
        data = method.request.encode(self.change(method.name, request))
        self.seen.append(data)
        reply = await handler(self.peer, method.request.decode(data))
        data = method.reply.encode(self.change(method.name, reply))
        self.seen.append(data)
        return method.reply.decode(data)

    async def begin(self, request, *, timeout_s):
        return await self._call(BEGIN, self.service.begin, request)

    async def exchange(self, request, *, timeout_s):
        return await self._call(EXCHANGE, self.service.exchange, request)

    async def tell(self, request, *, timeout_s):
        return await self._call(TELL, self.service.tell, request)


@pytest.fixture
def cores():
    with_two = Cores(2)
    yield with_two
    with_two.close()


class World:
    """The active participant "shop" and a passive one, without a network."""

    def __init__(self, cores, *, ours=OURS, change=lambda method, message: message):
        federation = PureFederation(users="pseudonyms", start=False)
        self.roster, self.cores = federation.roster, cores
        names = {
            name: pseudonyms_between(self.roster, "shop", name, federation.sealing["shop"])
            for name in ("bank", "news")
        }
        self.names = pseudonyms_between(self.roster, "bank", "shop", federation.sealing["bank"])
        self.steps = []
        self.service = AlignmentService(
            self.roster, ours, names=names, cores=cores,
            on_step=lambda *step: self.steps.append(step),
        )  # fmt: skip
        certificate = self.roster.find("bank").certificate
        self.peer = Peer("bank", "passive", certificate)
        self.line = Line(self.service, self.peer, change)

    async def align(self, users=THEIRS):
        return await align(self.line, users, roster=self.roster, names=self.names, cores=self.cores)


@pytest.mark.parametrize("chunk", [3, 4, 100])
def test_both_ends_have_the_same_common_users_and_digest(cores, monkeypatch, chunk):
    monkeypatch.setattr(sessions, "CHUNK", chunk)
    monkeypatch.setattr(sessions, "MAX_ELEMENTS", 2)
    world = World(cores)
    theirs = asyncio.run(world.align())
    ours = world.service.results["bank"]
    assert theirs.common == ours.common == COMMON
    assert theirs.digest == ours.digest
    assert (theirs.n_own, theirs.n_theirs, theirs.peer) == (11, 25, "shop")
    assert (ours.n_own, ours.n_theirs, ours.peer) == (25, 11, "bank")
    assert world.service.waiting_for == ("news",)
    assert world.steps[-1] == ("bank", 36, 36)


@pytest.mark.parametrize(
    ("ours", "theirs"), [(OURS, ("nobody",)), (("ann",), ("ann",)), (("ann",), OURS)]
)
def test_sets_of_any_size_are_aligned(cores, ours, theirs):
    world = World(cores, ours=ours)
    assert set(asyncio.run(world.align(theirs)).common) == {*ours} & {*theirs}


def test_there_are_no_false_matches(cores):
    """The raw mode compares whole points."""
    ours = tuple(f"a{k}" for k in range(200))
    theirs = tuple(f"b{k}" for k in range(200))
    assert asyncio.run(World(cores, ours=ours).align(theirs)).common == ()


def test_no_id_and_no_hash_of_one_is_in_what_travels(cores):
    world = World(cores)
    asyncio.run(world.align())
    data = b"".join(world.line.seen)
    assert len(data) > 35 * (2 * len(THEIRS) + len(OURS))
    for user in {*OURS, *THEIRS}:
        raw = user.encode()
        for spelt in (raw, raw.hex().encode(), hashlib.sha256(raw).digest()):
            assert spelt not in data


def test_two_alignments_of_the_same_users_have_nothing_but_pseudonyms_in_common(cores):
    """Keys are new each time: what was recorded before cannot be compared."""

    def elements(data):
        return {data[at : at + 33] for at in range(len(data) - 32)}

    first, second = World(cores), World(cores)
    asyncio.run(first.align())
    asyncio.run(second.align())
    exchanged = [elements(b"".join(world.line.seen[2:4])) for world in (first, second)]
    assert not exchanged[0] & exchanged[1]


def test_a_participant_may_begin_again(cores):
    world = World(cores)
    assert asyncio.run(world.align()).common == COMMON
    again = asyncio.run(world.align(THEIRS[:2]))
    assert world.service.results["bank"].common == again.common == ("user-20", "user-21")


def test_common_to_all_are_those_of_every_pair(cores):
    world = World(cores)
    one = asyncio.run(world.align())
    two = replace(one, common=("user-1", "user-22"))
    assert common_to_all([one, two]) == ("user-22",)
    assert common_to_all([one]) == COMMON


def test_many_threads_at_one_sender_get_what_one_gets(cores):
    """The library ends the process if two threads use one of its ciphers."""
    sender, elements = Sender(cores), Receiver(cores).blind(OURS)
    alone = sender.cover(elements)
    with ThreadPoolExecutor(8) as threads:
        assert [*threads.map(sender.cover, [elements] * 40)] == [alone] * 40


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("peer", "error", "words"),
    [
        (Peer("eve", "passive", "ab" * 32), IdentityError, "who is not in it"),
        (Peer("bank", "passive", "ab" * 32), IdentityError, "who is not in it"),
        (Peer("shop", "active", ""), IdentityError, "wanted role passive"),
    ],
)
def test_a_peer_that_is_no_passive_participant_of_the_roster_is_refused(cores, peer, error, words):
    world = World(cores)
    for call in (
        world.service.begin(peer, AlignBegin(world.roster.digest, 1)),
        world.service.exchange(peer, AlignElements(0, ())),
        world.service.tell(peer, AlignCommon(())),
    ):
        with pytest.raises(error, match=words):
            asyncio.run(call)


def test_another_roster_is_refused_with_both_digests(cores):
    world = World(cores)
    with pytest.raises(HandshakeError, match=f"has '{world.roster.digest}', 'bank' has 'feed'"):
        asyncio.run(world.service.begin(world.peer, AlignBegin("feed", 1)))


def test_calls_in_another_order_are_refused(cores):
    world = World(cores)
    element = Receiver(cores).blind(["ann"])[0]

    async def play(*requests):
        await world.service.begin(world.peer, AlignBegin(world.roster.digest, 2))
        for request in requests:
            is_common = isinstance(request, AlignCommon)
            call = world.service.tell if is_common else world.service.exchange
            await call(world.peer, request)

    for requests, words in (
        ([AlignElements(1, (element,))], "wanted those from 0 of 2, got 1 from 1"),
        ([AlignElements(0, (element,) * 3)], "wanted those from 0 of 2, got 3 from 0"),
        ([AlignElements(0, (element,))] * 2, "wanted those from 1 of 2, got 1 from 0"),
        ([AlignCommon((), bytes(32))], "wanted all elements before"),
    ):
        with pytest.raises(WireError, match=words):
            asyncio.run(play(*requests))
    news = Peer("news", "passive", world.roster.find("news").certificate)
    with pytest.raises(WireError, match="that 'news' has begun, got none"):
        asyncio.run(world.service.exchange(news, AlignElements(0, ())))


def test_a_participant_cannot_name_users_that_the_other_does_not_have(cores):
    def change(method, message):
        if method == "Tell" and isinstance(message, AlignCommon):
            return AlignCommon((*message.pseudonyms[:1], bytes(16)), message.digest)
        return message

    with pytest.raises(WireError, match="wanted users of both, got 1 others"):
        asyncio.run(World(cores, change=change).align())


def test_results_that_differ_are_told_at_both_ends(cores):
    def change(method, message):
        if method == "Tell" and isinstance(message, AlignCommon):
            return AlignCommon(message.pseudonyms[1:], message.digest)
        return message

    world = World(cores, change=change)
    with pytest.raises(WireError, match=r"the same 5 common users, .*, got 4 of digest"):
        asyncio.run(world.align())
    assert world.service.waiting_for == ("bank", "news")


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ({"elements": ()}, "elements: wanted 11, as were sent, got 0"),
        ({"own": ()}, "own elements: wanted 1 to 25 more, got 0"),
    ],
)
def test_a_reply_with_which_an_exchange_would_be_wrong_or_never_end_is_refused(cores, what, words):
    def change(method, message):
        is_reply = method == "Exchange" and not isinstance(message, AlignElements)
        return replace(message, **what) if is_reply else message

    with pytest.raises(WireError, match=words):
        asyncio.run(World(cores, change=change).align())


def test_bytes_that_are_no_points_are_refused(cores):
    with pytest.raises(WireError, match="wanted points of the curve"):
        Sender(cores).cover([bytes(33)])
    with pytest.raises(WireError, match="wanted points of the curve"):
        Receiver(cores).common([bytes(33)], [b"\x02" + bytes(32)])
    with pytest.raises(WireError, match="elements have 33 bytes each, got one of 4"):
        EXCHANGE.request.decode(EXCHANGE.request.encode(AlignElements(0, (b"junk",))))
    many = AlignElements(0, (bytes(33),) * 10_001)
    with pytest.raises(WireError, match="elements has at most 10000 items, got 10001"):
        EXCHANGE.request.decode(EXCHANGE.request.encode(many))
    with pytest.raises(WireError, match="a digest has 32 bytes, got 3"):
        TELL.request.decode(TELL.request.encode(AlignCommon((), b"abc")))
    with pytest.raises(WireError, match="n_users is at most"):
        BEGIN.request.decode(BEGIN.request.encode(AlignBegin("", 1 << 40)))


# --- lists --------------------------------------------------------------------------------------


def test_a_list_has_each_user_once_and_counts_what_was_left_out(tmp_path):
    path = tmp_path / "users.txt"
    path.write_text("ann\n\n bob \nann\r\neve\n", encoding="utf-8")
    users = read_users(path)
    assert (users.users, users.repeated, users.empty) == (("ann", "bob", "eve"), 1, 1)
    out = tmp_path / "new" / "common.txt"
    write_users(out, users.users)
    assert read_users(out).users == users.users
    assert out.stat().st_mode & 0o077 == 0


def test_users_that_no_line_could_hold_are_refused():
    with pytest.raises(FeatureError, match=r"text of one line .*, got 2 others"):
        UserList.of(["ann", "a\nb", " eve"])
    with pytest.raises(FeatureError, match="needs users, got none"):
        UserList.of([""])


def test_a_file_that_cannot_be_read_is_one_clear_error(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(ConfigError, match="a user in each line, got"):
            read_users(path)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="it is not UTF-8"):
        read_users(tmp_path / "bytes")
