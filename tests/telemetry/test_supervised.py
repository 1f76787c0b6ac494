"""Background tasks: a death is seen, and what can go on goes on."""

import asyncio
import threading

import pytest
from structlog.testing import capture_logs

from vfbandits.errors import VFBanditsError
from vfbandits.telemetry import supervised
from vfbandits.telemetry.supervised import UNNAMED, Supervisor


def divide(by):
    return 1 / by


async def soon(is_so):
    async with asyncio.timeout(30.0):
        while not is_so():  # noqa: ASYNC110  (a test may poll)
            await asyncio.sleep(0.005)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(supervised, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(supervised, "CALM_S", 0.05)


def test_a_task_is_started_again_and_counts_as_well_after_a_while():
    async def main():
        runs = []

        async def work():
            runs.append(1)
            if len(runs) < 3:
                raise KeyError("secret")
            await asyncio.Event().wait()

        supervisor = Supervisor()
        with capture_logs() as lines:
            task = supervisor.start("work", work)
            await soon(lambda: len(runs) == 3)
            assert supervisor.problems() == ["background task 'work' died: KeyError"]
            await soon(lambda: not supervisor.problems())
            await task.stop()
        assert supervisor.failures == {"work": 2}
        assert [line["event"] for line in lines] == ["task_failed"] * 2
        assert all(line["log_level"] == "error" for line in lines)

    asyncio.run(main())


def test_a_task_that_just_ends_or_waits_for_what_was_cancelled_has_died_too():
    async def main():
        supervisor = Supervisor()

        async def ends():
            pass

        async def is_cancelled_from_within():
            gone = asyncio.get_running_loop().create_future()
            gone.cancel()
            await gone

        tasks = [supervisor.start("a", ends), supervisor.start("b", is_cancelled_from_within)]
        await soon(lambda: len(supervisor.problems()) == 2)
        assert supervisor.problems() == [
            "background task 'a' died: it ended",
            "background task 'b' died: CancelledError",
        ]
        for task in tasks:
            await task.stop()
        assert supervisor.problems() == []

    asyncio.run(main())


def test_a_task_that_dies_again_and_again_is_stuck():
    async def main():
        async def work():
            raise ValueError

        supervisor = Supervisor()
        task = supervisor.start("work", work)
        await soon(supervisor.problems)
        assert supervisor.problems(stuck=True) == []
        await soon(lambda: supervisor.problems(stuck=True))
        assert supervisor.failures["work"] >= supervised.STUCK_AFTER
        await task.stop()

    asyncio.run(main())


def test_the_process_ends_with_a_task_that_cannot_be_started_again():
    async def main():
        supervisor = Supervisor()

        async def work():
            raise OSError("no more")

        supervisor.start("http", work, restart=False)
        with pytest.raises(VFBanditsError, match="background task 'http' died: OSError"):
            await supervisor.until(asyncio.Event().wait())
        assert supervisor.problems() == ["background task 'http' died: OSError"]

        async def asked():
            pass

        await supervisor.until(asked())

    asyncio.run(main())


def test_an_end_that_is_expected_is_no_death():
    async def main():
        supervisor, go = Supervisor(), asyncio.Event()
        task = supervisor.start("http", go.wait, restart=False)
        task.is_expected = True
        go.set()
        await task.finish()
        assert (supervisor.problems(), supervisor.failures) == ([], {"http": 0})

    asyncio.run(main())


def test_two_tasks_cannot_share_a_name():
    async def main():
        supervisor = Supervisor()
        task = supervisor.start("tail", asyncio.Event().wait)
        with pytest.raises(RuntimeError, match="got 'tail' twice"):
            supervisor.start("tail", asyncio.Event().wait)
        await task.stop()
        await supervisor.start("tail", asyncio.Event().wait).stop()

    asyncio.run(main())


def test_callbacks_and_threads_that_fail_are_counted():
    before = threading.excepthook

    async def main():
        supervisor = Supervisor()
        supervisor.watch_loop()
        with capture_logs() as lines:
            asyncio.get_running_loop().call_soon(divide, 0)
            thread = threading.Thread(target=divide, args=(None,), name="watchdog")
            thread.start()
            await asyncio.to_thread(thread.join)
            await soon(lambda: supervisor.failures.get(UNNAMED) == 2)
        assert {line["error"] for line in lines} == {"ZeroDivisionError", "TypeError"}

    try:
        asyncio.run(main())
    finally:
        threading.excepthook = before
