"""``--json`` on every command that prints a table: one object on stdout, and nothing else."""

import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from command_words import VFB, all_commands
from journals import OnSqlite
from logged_runs import Run
from typer.core import TyperGroup
from typer.testing import CliRunner

import vfbandits.cli
from vfbandits.cli import journal_flags, parity
from vfbandits.cli.evaluate import ALL_ESTIMATORS
from vfbandits.cli.main import app
from vfbandits.cli.pki import RoleName
from vfbandits.cli.reproduce import COLOURS
from vfbandits.evaluate.evaluation import ESTIMATORS
from vfbandits.journal.open import DEFAULT_NAME
from vfbandits.protocol.identity import CERTIFIED_ROLES
from vfbandits.reproduce.claim import Verdict
from vfbandits.simulate.world import ARM_DIM

SOURCE = Path(vfbandits.cli.__file__).parent
MEMBERS = {"shop": "active", "bank": "passive", "app": "application", "gen": "generator"}
# `vfb federation status` and `vfb parity --config` want a federation: test_live_federation.py.
ELSEWHERE = {
    ("federation", "status"),
    ("federation", "join"),  # docs/test_ceremony.py
    ("align",),  # end_to_end/test_align.py
    ("tune",),  # test_tune.py: it wants a longer log
    *(("access", name) for name in ("verify", "report", "forget")),  # test_access_served.py
}


def vfb(*words, code=0, answers=""):
    words = [str(word) for word in words]
    done = CliRunner().invoke(app, words, input=answers, env={"COLUMNS": "80"})
    assert done.exit_code == code, (done.output, done.exception)
    return done.stdout


def accepts_json():
    """Commands with the flag."""
    found = set()
    for names in all_commands():
        command = VFB
        for name in names:
            assert isinstance(command, TyperGroup)
            command = command.commands[name]
        if any("--json" in parameter.opts for parameter in command.params):
            found.add(names)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A federation on paper, a log, a journal and features."""
    folder = tmp_path_factory.mktemp("json")
    authority = folder / "authority"
    vfb("pki", "init", "--federation", "fair", "--dir", authority)
    for name, role in MEMBERS.items():
        width = ["--width", 2] if role in ("active", "passive") else []
        words = ["--federation", "fair", "--name", name, "--role", role, *width]
        vfb("pki", "request", *words, "--dir", folder / name)
    requests = [folder / name / f"{name}.request.json" for name in MEMBERS]
    vfb("pki", "approve", *requests, "--dir", authority, answers="y\n" * len(requests))
    vfb(*federation_init(folder, "members"))
    vfb("keys", "create", "--file", folder / "keys.json", "--name", "web", "--scope", "rank")
    rng = np.random.default_rng(0)
    log = {"arm": ["tea", "milk"] * 50, "reward": rng.random(100), "probability": [0.5] * 100}
    pl.DataFrame({**log, "x_a": rng.standard_normal(100)}).write_csv(folder / "log.csv")
    table = {"user": [f"u{n}" for n in range(9)], "age": rng.random(9)}
    pl.DataFrame(table).write_csv(folder / "features.csv")
    pl.DataFrame({"a": rng.random(60), "b": rng.random(60)}).write_csv(folder / "audit.csv")
    (folder / "second").mkdir()
    for place in (folder, folder / "second"):
        Run(OnSqlite(place)).visit(10)
    return folder


def federation_init(folder, out):
    words = ["--authority", folder / "authority", "--address", "127.0.0.1:7443", "--mask", "dense"]
    return ["federation", "init", *words, "--out", folder / out]


SMALL = ("--dim", 6, "--arms", 3, "--rounds", 5)
# Words after the command, where {} is the folder; the exit code; a key of the document.
DEMO = ("demo",)  # five processes, which another test starts too
CASES = {
    ("parity",): ([*SMALL], 0, "decisions_equal"),
    ("simulate",): ([*SMALL, "--seeds", 1, "--processes", 1, "--out", "{}/sim"], 0, "contestants"),
    ("reproduce",): (["list"], 0, "figures"),
    ("evaluate",): (["{}/log.csv", "--resamples", 20, "--out", "{}/eval"], 0, "estimates"),
    DEMO: (["--quick", "--out", "{}/demo"], 0, "decisions_total"),
    ("poc",): (["{}/features.csv", "--kits", "--out", "{}/poc"], 0, "participants"),
    ("new",): (["shop", "--width", 2, "--out", "{}/new"], 0, "rank"),
    ("pki", "init"): (["--federation", "other", "--dir", "{}/other"], 0, "facts"),
    ("pki", "request"): (
        ["--federation", "fair", "--name", "gym", "--role", "application", "--dir", "{}/gym"],
        0,
        "facts",
    ),
    ("pki", "approve"): (
        ["{}/app/app.request.json", "--dir", "{}/authority", "--renew"],
        0,
        "approved",
    ),
    ("pki", "show"): (["{}/members/shop/roster.signed"], 0, "facts"),
    ("pki", "approvals"): (["--dir", "{}/authority"], 0, "approvals"),
    ("audit",): (
        ["{}/audit.csv", "--level", "statistics", "--out", "{}/audit"],
        0,
        "findings",
    ),
    ("features", "fit"): (
        ["--source", "{}/features.csv", "--key", "user", "--columns", "age", "--out", "{}/s.json"],
        0,
        "digest",
    ),
    ("federation", "init"): (
        ["--authority", "{}/authority", "--address", "127.0.0.1:7443", "--out", "{}/again"],
        0,
        "members",
    ),
    ("masks", "deal"): (
        [
            *("--roster", "{}/members/shop/roster.signed", "--key-dir", "{}/gen"),
            *("--authority", "{}/authority/authority.crt", "--epoch", 1, "--out", "{}/envelopes"),
        ],
        0,
        "envelopes",
    ),
    ("preflight",): (["--config", "{}/members/shop/shop.toml"], 1, "findings"),
    ("keys", "list"): (["--file", "{}/keys.json"], 0, "keys"),
    ("journal", "verify"): (["{}/log.db"], 0, "is_whole"),
    ("journal", "repair"): (["{}/log.db"], 0, "faults"),
    ("journal", "copy"): (["{}/log.db", "{}/copy.db"], 0, "digest"),
    ("journal", "migrate"): (["{}/log.db"], 0, "tables"),
    ("journal", "audit"): (["{}/log.db", "--keys", "{}/keys.json"], 0, "changes"),
    ("journal", "forget"): (
        ["{}/second/log.db", "--user", "nobody", "--reason", "asked"],
        0,
        "decisions",
    ),
    ("model", "export"): (["{}/log.db", "--out", "{}/model.vfb"], 0, "position"),
    ("model", "restore"): (["{}/log.db", "--at", 1, "--reason", "asked"], 0, "restored"),
    ("journal", "retract"): (["order-1", "--journal", "{}/second/log.db"], 0, "reward"),
}


def test_every_command_with_the_flag_is_tried():
    assert set(CASES) | ELSEWHERE == accepts_json()


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(names, id=" ".join(names), marks=pytest.mark.long if names == DEMO else ())
        for names in CASES
    ],
)
def test_the_output_is_one_object_and_nothing_else(names, folder):
    words, code, key = CASES[names]
    text = vfb(*names, *(str(word).format(folder) for word in words), "--json", code=code)
    assert text.count("\n") == 1
    document = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert key in document


def test_tables_are_printed_in_one_place_only():
    """Where each goes with a document: ``Output.show``.  Others write to stderr, or no tables."""
    printing = re.compile(r"Console\((?!stderr=True)")
    found = [path.name for path in sorted(SOURCE.glob("*.py")) if printing.search(path.read_text())]
    assert found == ["output.py"]


def test_every_command_that_shows_a_result_has_the_flag():
    for path in SOURCE.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        if re.search(r"\bTable\(", text) and path.name != "status_table.py":
            assert "Output" in text, path.name


def test_what_flags_repeat_of_the_library_is_what_it_says():
    assert ALL_ESTIMATORS.split(",") == list(ESTIMATORS)
    assert parity.ARM_DIM == ARM_DIM
    assert journal_flags.DEFAULT_NAME == DEFAULT_NAME
    assert set(COLOURS) == set(Verdict)
    assert [role.value for role in RoleName] == list(CERTIFIED_ROLES)


def test_a_demo_that_goes_on_cannot_end_with_an_object():
    done = CliRunner().invoke(app, ["demo", "--keep", "--json"])
    assert (done.exit_code, done.stdout) == (2, "")
