import asyncio
from itertools import pairwise

import pytest
from benchmarks.raw_frames import HEADER, FrameConnection
from hypothesis import given
from hypothesis import strategies as st

LARGEST = 40


def feed(data, cuts):
    """Give a connection bytes in pieces, as a socket might; return the frames it hands on."""
    frames = []
    connection = FrameConnection(
        LARGEST,
        on_made=lambda _: None,
        on_frame=lambda _, view: frames.append(bytes(view)),
        on_lost=lambda: None,
    )
    edges = [0, *sorted(cuts), len(data)]
    for start, end in pairwise(edges):
        connection.get_buffer(-1)[: end - start] = data[start:end]
        connection.buffer_updated(end - start)
    return frames


@given(
    sent=st.lists(st.binary(max_size=LARGEST), max_size=8),
    cuts=st.lists(st.integers(0, 100), max_size=6),
)
def test_frames_arrive_whole_and_in_order_however_they_are_cut(sent, cuts):
    data = b"".join(HEADER.pack(len(frame)) + frame for frame in sent)
    assert feed(data, [min(cut, len(data)) for cut in cuts]) == sent


def test_a_frame_longer_than_the_largest_is_refused():
    with pytest.raises(ValueError, match="at most 40 bytes are read, got 41"):
        feed(HEADER.pack(LARGEST + 1), [])


def test_a_connection_without_a_writer_is_refused():
    connection = FrameConnection(
        LARGEST, on_made=lambda _: None, on_frame=lambda *_: None, on_lost=lambda: None
    )
    with pytest.raises(TypeError, match="ReadTransport"):
        connection.connection_made(asyncio.ReadTransport())
