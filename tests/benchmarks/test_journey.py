import asyncio
import importlib
import sys
import threading

import pytest
from benchmarks import journey
from benchmarks.journey_trace import Call, Journey, Tracer

TOY = {
    "__init__.py": "",
    "shop/__init__.py": "",
    "shop/till.py": """
from toy_package.bank.vault import Coin, Vault

VAULT = Vault()

class Till:
    async def pay(self):
        coin = VAULT.take()
        for _ in range(3):
            await pause()
        return [self.count(each) for each in [coin]]

    def count(self, coin):
        return coin.value

async def pause():
    from asyncio import sleep
    await sleep(0)
""",
    "bank/__init__.py": "",
    "bank/vault.py": """
from dataclasses import dataclass

@dataclass
class Coin:
    value: int

class Vault:
    def take(self):
        self.note(Slip())
        return Coin(2)

    def note(self, slip):
        return None

class Slip:
    pass

def at_import():
    return 1

LIMIT = at_import()
""",
}


@pytest.fixture
def toy(tmp_path, monkeypatch):
    folder = tmp_path / "toy_package"
    for name, text in TOY.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "toy_package"]:
        del sys.modules[name]


def traced(tracer, deed):
    tracer.begin()
    sys.setprofile(tracer)
    try:
        deed()
    finally:
        sys.setprofile(None)
    return tracer.end()


def test_calls_of_each_thread_are_a_sequence_of_their_own():
    calls = [
        Call(1, "http/app.py", "app"),
        Call(2, "journal/commit.py", "commit"),
        Call(1, "http/app.py", "route"),
        Call(1, "serving/leader.py", "rank"),
        Call(2, "journal/commit.py", "sync"),
        Call(1, "http/app.py", "route"),
        Call(1, "http/answer.py", "encode"),
    ]
    rooms = {"Asked": ["http", "serving"], "Route": ["http"]}
    seen = Journey(calls, rooms)
    assert (seen.functions, seen.files, seen.changes_of_package) == (6, 4, 2)
    assert seen.shapes == ["Asked", "Route"]
    assert seen.shapes_between_packages == ["Asked"]
    assert seen.entries_by_file()["http/app.py"] == 2
    assert seen.calls_by_file()["http/app.py"] == 3


def test_a_coroutine_is_one_call_however_often_it_goes_on(toy):
    till = importlib.import_module("toy_package.shop.till")
    tracer = Tracer(toy, "toy_package")
    counter = till.Till()
    seen = traced(tracer, lambda: asyncio.run(counter.pay()))
    names = [(call.room, call.function) for call in seen.calls]
    assert names == [
        ("shop", "Till.pay"),
        ("bank", "Vault.take"),
        ("bank", "Vault.note"),
        ("shop", "pause"),
        ("shop", "pause"),
        ("shop", "pause"),
        ("shop", "Till.count"),
    ]
    assert (seen.functions, seen.files, seen.changes_of_package) == (5, 2, 2)


def test_a_shape_is_a_class_with_an_instance_that_the_journey_made_and_handed_over(toy):
    till = importlib.import_module("toy_package.shop.till")
    vault = "toy_package.bank.vault"
    counter = till.Till()  # made before, as the vault was: neither is a shape
    seen = traced(Tracer(toy, "toy_package"), lambda: asyncio.run(counter.pay()))
    assert seen.shapes == [f"{vault}.Coin", f"{vault}.Slip"]
    assert seen.shapes_between_packages == [f"{vault}.Coin"]


def test_what_runs_because_a_module_is_imported_is_not_counted(toy):
    seen = traced(
        Tracer(toy, "toy_package"), lambda: importlib.import_module("toy_package.shop.till")
    )
    assert seen.calls == ()


def test_threads_are_traced_and_nothing_is_kept_between_journeys(toy):
    vault = importlib.import_module("toy_package.bank.vault").Vault()
    tracer = Tracer(toy, "toy_package")

    def take_elsewhere():
        before = threading.getprofile()
        threading.setprofile(tracer)
        try:
            thread = threading.Thread(target=vault.take)
            thread.start()
            thread.join()
        finally:
            threading.setprofile(before)

    tracer.begin()
    take_elsewhere()
    assert len(tracer.end().calls) == 2
    take_elsewhere()
    tracer.begin()
    assert tracer.end().calls == ()


def test_the_bars_are_those_of_a_rank_request():
    calls = [Call(1, f"{room}/{number}.py", "f") for number in range(30) for room in ("a", "b")]
    files, changes = journey.bars_of({journey.RANK: Journey(calls, {})})
    assert (files.measured, files.verdict) == (60, "FAIL")
    assert (changes.measured, changes.verdict) == (59, "FAIL")
    files, changes = journey.bars_of({journey.RANK: Journey(calls[:46], {})})
    assert (files.verdict, changes.measured, changes.verdict) == ("pass", 45, "pass")


def test_a_decision_in_one_process_stays_in_the_core():
    seen = journey.in_this_process()
    assert {call.room for each in seen.values() for call in each.calls} == {"core"}
    assert "core/round.py" in seen[journey.DECIDE].calls_by_file()


def test_the_journey_that_background_work_disturbed_least_counts():
    call = Call(1, "http/app.py", "app")
    quiet, busy = Journey([call], {}), Journey([call, call], {})
    assert journey.fewest_calls([busy, quiet]) is quiet
