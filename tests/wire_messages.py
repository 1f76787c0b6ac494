"""Strategies for every message that may travel, and a way to compare those without equality."""

from hypothesis import strategies as st

from vfbandits.core.noise import VectorNoise
from vfbandits.core.shares.messages import Place
from vfbandits.errors import ArmError
from vfbandits.protocol import application, messages
from vfbandits.protocol.messages import DECLINES, DIGEST_SIZE
from vfbandits.transport.rpc.checks import MAX_COUNT, MAX_REASON_LENGTH, MAX_TEXT_LENGTH

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=MAX_TEXT_LENGTH // 4)
REASON = st.text(st.characters(exclude_categories=["Cs"]), max_size=MAX_REASON_LENGTH // 4)
COUNT = st.integers(0, MAX_COUNT)
SMALL = st.integers(0, 2**32 - 1)
BYTES = st.binary(max_size=100)
NAMES = st.lists(TEXT, max_size=4).map(tuple)
CAMPAIGN = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)
NAMED = st.just("") | CAMPAIGN
DOUBLES = st.integers(0, 5).flatmap(lambda n: st.binary(min_size=8 * n, max_size=8 * n))


def tuples_of(element, size):
    return st.lists(element, min_size=size, max_size=size).map(tuple)


@st.composite
def asks(draw):
    users = draw(NAMES)
    arms = draw(st.just(()) | tuples_of(NAMES, len(users)))
    campaigns = draw(st.just(()) | tuples_of(CAMPAIGN, 1) | tuples_of(CAMPAIGN, len(users)))
    ask = messages.Ask(
        draw(COUNT), draw(SMALL), draw(COUNT), users, arms, draw(NAMES), draw(COUNT), campaigns
    )
    if draw(st.booleans()):
        place = Place(*(draw(COUNT) for _ in range(4)))
        return ask._replace(place=place, absent=draw(NAMES))
    return ask


@st.composite
def answers(draw):
    rows, columns = draw(st.integers(0, 5)), draw(st.integers(0, 5))
    values = draw(st.binary(min_size=8 * rows * columns, max_size=8 * rows * columns))
    return messages.Answer(
        draw(COUNT),
        draw(SMALL),
        draw(COUNT),
        draw(st.binary(min_size=DIGEST_SIZE, max_size=DIGEST_SIZE)),
        rows,
        columns,
        draw(st.sampled_from([bytes, memoryview]))(values),
        draw(st.integers(0, rows)),
        draw(st.lists(st.integers(0, 2**32 - 1), max_size=rows).map(tuple)),
    )


HELLOS = st.builds(
    messages.Hello,
    lowest_protocol=SMALL,
    highest_protocol=SMALL,
    federation=TEXT,
    roster=TEXT,
    name=TEXT,
    width=SMALL,
    dim=SMALL,
    layout=TEXT,
    mask=TEXT,
    aggregation=TEXT,
    scaling=TEXT,
    dtype=TEXT,
    epochs=st.lists(COUNT, max_size=4).map(tuple),
    next_round=COUNT,
    noise=st.none()
    | st.builds(VectorNoise, st.floats(1e-3, 1e3), st.floats(1e-9, 0.1), st.floats(1e-6, 1e6)),
    protection=TEXT.filter(bool),
)
TO_ACTIVE = st.one_of(
    HELLOS,
    answers(),
    st.builds(messages.Declined, COUNT, SMALL, st.sampled_from(DECLINES), REASON),
    st.builds(messages.Pong, COUNT),
    st.builds(messages.Helped, COUNT, BYTES, REASON),
)
TO_PASSIVE = st.one_of(
    st.builds(messages.Welcome, COUNT, BYTES, SMALL),
    st.builds(messages.Refused, TEXT, REASON),
    asks(),
    st.builds(messages.Ping, COUNT),
    st.builds(messages.Help, COUNT, BYTES),
    st.builds(messages.Prepare, COUNT, COUNT, NAMES, BYTES, BYTES),
    st.builds(messages.Commit, COUNT),
    st.builds(messages.Abort, COUNT),
)
REQUESTS_AND_REPLIES = {
    "DECIDE": (
        st.builds(application.DecideRequest, TEXT, NAMES, DOUBLES, DOUBLES, TEXT, COUNT, NAMED),
        st.builds(
            application.DecideReply,
            TEXT,
            TEXT,
            st.integers(0, 1000),
            st.floats(),
            DOUBLES,
            DOUBLES,
            NAMES,
            COUNT,
            COUNT,
            st.floats(),
        ),
    ),
    "REWARD": (
        st.builds(application.RewardRequest, TEXT, st.floats(), COUNT),
        st.builds(application.RewardReply, st.booleans()),
    ),
    "STATUS": (
        st.builds(application.StatusRequest),
        st.builds(application.StatusReply, REASON),
    ),
    "CHANGE": (
        st.builds(application.ChangeRequest, BYTES, st.dictionaries(TEXT, BYTES, max_size=4)),
        st.builds(application.ChangeReply, COUNT, TEXT),
    ),
    "GATHER": (
        st.builds(
            application.GatherRequest,
            st.lists(
                st.builds(
                    application.DecideRequest, TEXT, NAMES, DOUBLES, DOUBLES, TEXT, COUNT, NAMED
                ),
                max_size=3,
            ).map(tuple),
        ),
        st.builds(
            application.GatherReplies,
            st.lists(
                st.builds(application.GatherReply, DOUBLES, NAMES, COUNT, COUNT)
                | st.builds(ArmError, TEXT),
                max_size=3,
            ).map(tuple),
        ),
    ),
}


def shown(message):
    """What is in a message, comparable: NaN equals NaN, a view equals its bytes."""
    if isinstance(message, Exception):
        return type(message), str(message)
    return type(message), [_plain(getattr(message, name)) for name in message.__match_args__]


def _plain(part):
    if isinstance(part, memoryview):
        return bytes(part)
    if isinstance(part, tuple):
        return [_plain(one) for one in part]
    if hasattr(part, "__match_args__") or isinstance(part, Exception):
        return shown(part)
    return repr(part) if isinstance(part, float) else part
