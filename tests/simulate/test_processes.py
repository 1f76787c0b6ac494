"""The pool of processes as processes: order, errors, and what is left after a kill."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vfbandits.errors import SettingError, VFBanditsError
from vfbandits.simulate.engine import HereEngine
from vfbandits.simulate.processes import ProcessEngine, local_engine


def test_one_process_is_this_one_and_more_are_a_pool():
    assert isinstance(local_engine(1), HereEngine)
    assert isinstance(local_engine(2), ProcessEngine)
    with pytest.raises(SettingError, match="processes must be a whole number"):
        local_engine(0)


@pytest.mark.parametrize("engine", [HereEngine(), ProcessEngine(2)], ids=["here", "pool"])
def test_every_task_gets_its_own_result(engine):
    assert dict(engine.run(abs, [-3, 1, -2])) == {0: 3, 1: 1, 2: 2}
    assert list(engine.run(abs, [])) == []


def test_a_process_that_dies_is_one_clear_error():
    with pytest.raises(VFBanditsError, match="ended before its task did"):
        list(ProcessEngine(2).run(os._exit, [1, 2]))


PARENT = """
import os, sys, time
from vfbandits.simulate.processes import ProcessEngine


def wait(folder):
    open(os.path.join(folder, str(os.getpid())), "w").close()
    time.sleep(60)


if __name__ == "__main__":
    list(ProcessEngine(2).run(wait, [sys.argv[1]] * 2))
"""


def test_when_the_parent_is_killed_its_processes_end_too(tmp_path):
    script, folder = tmp_path / "parent.py", tmp_path / "pids"
    script.write_text(PARENT)
    folder.mkdir()
    parent = subprocess.Popen([sys.executable, str(script), str(folder)])
    deadline = time.monotonic() + 60
    while len(list(folder.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    children = [int(path.name) for path in folder.iterdir()]
    assert len(children) == 2
    parent.kill()
    parent.wait()
    while any(alive(child) for child in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(alive(child) for child in children)


def alive(pid):
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"


SPAWNING = """
import os, signal, sys, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.process import BaseProcess
from vfbandits.simulate.processes import ProcessEngine


def interrupt(owner, name):
    method = getattr(owner, name)

    def interrupted(*words):
        os.kill(os.getpid(), signal.SIGINT)  # Ctrl-C
        return method(*words)

    setattr(owner, name, interrupted)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    interrupt(ProcessPoolExecutor, "submit")  # while the processes are started
    interrupt(BaseProcess, "terminate")  # and again, while they are ended
    try:
        list(ProcessEngine(2).run(time.sleep, [3600, 3600]))
    except KeyboardInterrupt:
        sys.exit(130)
"""


def test_an_interrupt_while_processes_are_started_or_ended_is_not_lost(tmp_path):
    script = tmp_path / "spawning.py"
    script.write_text(SPAWNING)
    done = subprocess.run([sys.executable, script], capture_output=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (130, b"")
