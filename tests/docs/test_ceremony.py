"""The set-up of docs/operations.md, run as it stands: its commands, files and trips are counted."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from command_words import PROMPT, all_commands, parse
from three_tables import write_tables
from typer.testing import CliRunner

from vfbandits.admin.preflight import preflight
from vfbandits.cli.main import app
from vfbandits.pki import Identity
from vfbandits.settings.services import load_active, load_passive

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
SECTION = PAGE.split("\n## Set up: ")[1].split("\n## ")[0]
ROOT = "/srv/vfb"
MAX_COMMANDS, MAX_FILES, TRIPS = 12, 8, 2
OWNERS = {"shop": "shop.csv", "bank": "bank.csv", "news": "news.parquet"}


def typed():
    """Organisation and command of every line with a prompt, in the order of the page."""
    for block in re.findall(r"^```console\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            if PROMPT.match(line):
                who, _, command = line.partition("$ ")
                yield who, command


TYPED = list(typed())
COMMANDS = [(who, line) for who, line in TYPED if line.startswith("vfb ")]
JOINS = next(place for place, (_, line) in enumerate(TYPED) if "federation join" in line)
COPIES = [(who, *shlex.split(line)[1:]) for who, line in TYPED if line.startswith("cp ")]


def test_three_organisations_take_twelve_commands_six_files_and_two_trips():
    assert len(COMMANDS) <= MAX_COMMANDS
    assert len(COPIES) <= MAX_FILES
    directions = ["out" if who == "organiser" else "in" for who, _, _ in COPIES]
    trips = [way for place, way in enumerate(directions) if directions[place - 1 : place] != [way]]
    assert len(trips) == TRIPS == len(set(directions))


def test_the_headline_says_what_is_counted():
    numbers = {12: "twelve", 6: "six", 2: "two"}
    wanted = f"{numbers[len(COMMANDS)]} commands, {numbers[len(COPIES)]} files, two trips\n"
    assert SECTION.startswith(wanted)


def test_every_command_is_one_that_vfb_accepts():
    assert {parse(shlex.split(line)[1:]) for _, line in COMMANDS} <= set(all_commands())


def run(root, who, line, environment):
    words = shlex.split(line.replace(ROOT, str(root)))
    home = root / who
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        if words[0] == "cp":
            shutil.copy(home / words[1], words[2])
        elif words[0] == "export":
            name, _, value = words[1].partition("=")
            environment[name] = value
        elif words[0] == "vfb" and words[1] != "serve":  # the other tests start processes
            done = CliRunner().invoke(app, words[1:], input="y\n" * 3, env=environment)
            assert done.exit_code == 0, (line, done.output, done.exception)
            return done
    return None


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """Folders of the organisations when the kits have come."""
    root = tmp_path_factory.mktemp("before")
    write_tables(root / "data")
    (root / "organiser" / "inbox").mkdir(parents=True)
    for name, table in OWNERS.items():
        (root / name).mkdir()
        shutil.move(root / "data" / table, root / name)
    environment = {"COLUMNS": "120"}
    for who, line in TYPED[:JOINS]:
        run(root, who, line, environment)
    return root


@pytest.fixture(scope="module")
def root(before, tmp_path_factory):
    """The same when all commands were run."""
    root = shutil.copytree(before, tmp_path_factory.mktemp("after") / "root")
    for who, line in TYPED[JOINS:]:
        run(root, who, line, {"COLUMNS": "120"})
    return root


def test_the_commands_make_three_participants_that_are_ready_to_start(root):
    assert {path.stem for path in (root / "organiser" / "folders").glob("*.zip")} == {*OWNERS}
    for name in OWNERS:
        folder = root / name
        assert Identity.load(folder / "identity", name).subject.federation == "fair"
        report = preflight(folder / f"{name}.toml", timeout_s=0.2)
        amiss = [(finding.what, finding.says) for finding in report.problems]
        # Nobody listens yet; the page says which command starts the shop.
        assert [what for what, _ in amiss] in ([], ["connection"], ["port"]), amiss
    assert load_active(root / "shop" / "shop.toml").features.path == root / "shop" / "shop.csv"
    assert load_passive(root / "bank" / "bank.toml").access.accept == ()


def test_private_keys_and_scalings_stay_where_they_were_made(root):
    files = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    for name in OWNERS:
        secrets = [*(root / name).rglob("*.key"), root / name / "scaling.json"]
        assert len(secrets) == 3
        for secret in secrets:
            assert [path for path, data in files.items() if files[secret] in data] == [secret]


def test_the_authority_is_confirmed_or_nothing_is_taken_in(before):
    home = before / "bank"
    words = ["federation", "join", str(home / "bank.zip"), "--dir", str(home)]
    for more, answers, says in [
        ([], "n\n", "the authority was not confirmed; nothing was changed"),
        ([], "", "got none; nothing was changed"),
        (["--fingerprint", "ab" * 32], "", "--fingerprint must be that of the authority, "),
    ]:
        done = CliRunner().invoke(app, [*words, *more], input=answers)
        assert done.exit_code == 2
        assert says in done.stderr
        assert not (home / "bank.toml").exists()
    right = re.search(r"of the authority, ([0-9a-f ]+),", done.stderr)[1]
    done = CliRunner().invoke(app, [*words, "--fingerprint", right, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["config"] == str(home / "bank.toml")
