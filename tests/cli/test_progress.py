"""How far a command is: a bar on a terminal, and plain lines everywhere else."""

import io
import os
import pty
import subprocess
import sys

import pytest
from command_words import beside_progress

from vfbandits.progress import Lines, progress

SCRIPT = """
import time
from vfbandits import progress
progress.EVERY_S = 0.05
with progress.progress("rounds", total=20) as tell:
    for done in range(1, 21):
        tell(done)
        time.sleep(0.02)
"""


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def lines(times, *, what="rounds", total=100):
    stream, clock = io.StringIO(), Clock()
    tell = Lines(what, total=total, stream=stream, every_s=5.0, clock=clock)
    for clock.now, done in times:
        tell(done)
    return stream.getvalue().splitlines()


def test_what_is_over_in_seconds_has_no_line():
    assert lines([(0.1, 1), (4.9, 100)]) == []


def test_there_is_a_line_every_few_seconds_however_often_it_is_told():
    told = lines([(0.01 * step, 0.05 * step) for step in range(2000)])
    assert len(told) == 3
    assert told[0] == "25 of 100 rounds, 25 %, about 15 s left"


def test_the_time_left_does_not_count_what_was_done_before():
    (line,) = lines([(0.0, 50), (10.0, 60)])
    assert line == "60 of 100 rounds, 60 %, about 40 s left"


def test_without_a_total_there_is_no_share():
    assert lines([(6.0, 1_000_000)], what="rows", total=None) == ["1,000,000 rows"]


def test_a_total_and_a_note_can_be_told_later():
    stream, clock = io.StringIO(), Clock()
    tell = Lines("", total=None, stream=stream, clock=clock)
    tell(1.0, total=4.0, note="3 of 9 cells")
    clock.now = 6.0
    tell(2.0)
    assert stream.getvalue() == "3 of 9 cells, 50 %, about 12 s left\n"


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_a_pipe_gets_lines_and_no_control_characters(monkeypatch, term):
    stream = io.StringIO()
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(sys, "stderr", stream)
    with progress("rounds", total=3) as tell:
        tell(3)
    assert stream.getvalue() == ""


def on_terminal(term):
    """What the script writes to a pseudo-terminal."""
    here, there = pty.openpty()
    environment = {**os.environ, "TERM": term}
    child = subprocess.Popen([sys.executable, "-c", SCRIPT], stderr=there, env=environment)
    os.close(there)
    seen = b""
    try:
        while read := os.read(here, 1 << 16):
            seen += read
    except OSError:  # Linux says so when the other end is closed
        pass
    os.close(here)
    assert child.wait() == 0
    return seen.decode()


def test_a_terminal_gets_a_bar():
    seen = on_terminal("xterm")
    assert "\x1b[" in seen
    assert "20 of 20 rounds" in seen


def test_a_terminal_that_cannot_move_its_cursor_gets_lines():
    seen = on_terminal("dumb")
    assert "\x1b[" not in seen
    assert beside_progress(seen.replace("\r", "")) == []
