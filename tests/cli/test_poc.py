"""``vfb poc --kits`` and ``vfb new``: folders that load, and mistakes in one line."""

import json
import shlex
import socket
import stat

import pytest
from three_tables import write_tables
from typer.testing import CliRunner

from vfbandits.cli.main import app
from vfbandits.demo.kits import Kits
from vfbandits.pki import load_roster
from vfbandits.settings.services import load_active, load_client, load_passive

KITS = ("--kits", "--reward", "clicked")


@pytest.fixture
def tables(tmp_path):
    return write_tables(tmp_path / "data")


def vfb(*words):
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})


def poc(tables, out, *more):
    return vfb("poc", *tables, "--out", out, *more)


def fails(done, says):
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert says in done.stderr


@pytest.fixture
def made(tables, tmp_path):
    done = poc(tables, tmp_path / "out", *KITS)
    assert done.exit_code == 0, done.output
    return tmp_path / "out", done.stdout


def test_kits_are_folders_in_the_form_that_organisations_have(made):
    out, said = made
    shop = load_active(out / "shop" / "shop.toml")
    assert shop.features.path == out.resolve() / "shop" / "shop.csv"
    assert shop.http.keys == out.resolve() / "shop" / "keys.json"
    for name in ("bank", "news"):
        settings = load_passive(out / name / f"{name}.toml")
        assert settings.features.scaling == out.resolve() / name / "scaling.json"
        assert settings.access.accept == ()  # nothing is accepted in an owner's name
        assert f"vfb serve passive --config {out / name / name}.toml" in said
    assert load_client(out / "operator" / "operator.toml").role == "operator"
    roster = load_roster(
        out / "bank" / "roster.signed", out / "bank" / "identity" / "authority.crt"
    )
    assert [(m.name, m.role, m.width) for m in roster] == [
        ("shop", "active", 5), ("bank", "passive", 3), ("news", "passive", 3),
        ("operator", "operator", 0),
    ]  # fmt: skip
    assert (roster.terms.layout, roster.terms.intercept) == ("disjoint", True)
    assert roster.terms.users == "pseudonyms"


def test_no_path_in_a_kit_is_absolute(made):
    out, _ = made
    for config in out.glob("*/*.toml"):
        assert str(out) not in config.read_text()
        assert '= "/' not in config.read_text()


def test_private_files_are_their_owners_alone(made):
    out, _ = made
    private = [
        *out.rglob("*.key"),
        *out.glob("*/scaling.json"),
        out / "app" / "api-key.txt",
        out / "shop" / "keys.json",
        out / "shop" / "shop.csv",
        out / "bank" / "bank.csv",
    ]
    assert len(private) > 10
    assert {stat.S_IMODE(path.stat().st_mode) for path in private} == {0o600}


def test_kits_that_are_there_are_found_again(made):
    out, said = made
    found = Kits.find(out)
    assert found.participants == ("shop", "bank", "news")
    assert found.rank_command in said


def test_the_curl_line_is_a_request_for_a_user_of_all_tables(made):
    words = shlex.split(next(line for line in made[1].splitlines() if line.startswith("  curl ")))
    body = json.loads(words[words.index("-d") + 1])
    assert body["arms"] == ["cake", "coffee", "tea"]
    assert (made[0] / "bank" / "bank.csv").read_text().count(f"{body['user']},") == 1


def test_people_are_told_of_missing_users_and_columns_that_masks_do_not_hide(tables, tmp_path):
    text = tables[1].read_text().splitlines()
    lines = [f"{line},{'member' if not n else n % 2}" for n, line in enumerate(text)]
    tables[1].write_text("\n".join(lines) + "\n")
    said = poc(tables, tmp_path / "out", *KITS).stdout
    assert "bank.csv: 20 of 200 users of shop.csv are not in it" in said
    assert "bank.csv: member can be read back from masked rows" in said
    assert "accept" not in (tmp_path / "out" / "bank" / "bank.toml").read_text()


def test_json_is_one_object(tables, tmp_path):
    done = poc(tables, tmp_path / "out", *KITS, "--json")
    document = json.loads(done.stdout)
    assert document["layout"] == "disjoint"
    assert [one["width"] for one in document["participants"]] == [5, 3, 3]
    assert document["key"] == (tmp_path / "out" / "app" / "api-key.txt").read_text().strip()


def test_layout_outer_is_refused_with_the_command_that_has_it(tables, tmp_path):
    said = "got outer, whose features of arms come with each request: `vfb new --layout outer`"
    fails(poc(tables, tmp_path / "out", *KITS, "--layout", "outer"), said)
    fails(new(tmp_path, "--table", tables[0], "--layout", "outer", "--arm-dim", 2), said)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def test_a_long_request_to_try_is_read_from_its_file(tmp_path):
    done = new(tmp_path, "--width", 30, "--layout", "outer", "--arm-dim", 9)
    (line,) = [line for line in done.stdout.splitlines() if "curl" in line]
    file = tmp_path / "mine" / "app" / "rank.json"
    assert line.endswith(f"-d @{file}")
    assert len(json.loads(file.read_text())["features"]) == 30


def test_a_folder_that_is_there_is_left_alone(tables, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("")
    fails(poc(tables, tmp_path / "out", *KITS), "wanted a folder that does not exist yet")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]


def test_a_mistake_leaves_nothing_behind(tables, tmp_path):
    fails(poc(tables, tmp_path / "out", "--kits", "--key", "usr"), "did you mean 'user'?")
    fails(poc([*tables, tmp_path / "no.csv"], tmp_path / "out", *KITS), "must exist, got none at")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def test_a_port_in_use_is_told_before_anything_is_written(tables, tmp_path):
    out = tmp_path / "out"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = poc(tables, out, "--port", port, "--address", "127.0.0.1:0")
        fails(done, f"--port must be a free port, got {port}")
        done = poc(tables, out, "--port", 0, "--address", f"127.0.0.1:{port}")
        fails(done, "--address must be a free port")
        done = poc(tables, out, "--port", port, "--address", f"127.0.0.1:{port}")
        fails(done, "--address and --port must be different ports")
    assert not out.exists()


def test_kits_of_other_machines_are_written_but_not_started(tables, tmp_path):
    address = ("--address", "shop.example:7443")
    fails(poc(tables, tmp_path / "out", *address), "--address must be on loopback")
    assert poc(tables, tmp_path / "out", *KITS, *address).exit_code == 0
    assert load_passive(tmp_path / "out" / "bank" / "bank.toml").address == "shop.example:7443"


def test_without_tables_there_must_be_folders(tmp_path):
    fails(vfb("poc", "--out", tmp_path), "wanted tables, or a folder that vfb poc wrote before")
    fails(vfb("poc", "--kits"), "--kits and --reward need tables, got none")


def new(tmp_path, *more):
    return vfb("new", "shop", "--out", tmp_path / "mine", *more)


@pytest.mark.parametrize(
    ("flags", "layout", "arms"),
    [
        ((), "disjoint", ["tea", "coffee"]),
        (("--layout", "per_arm"), "per_arm", [{"id": arm, "features": [0.1, 0.2]}
                                              for arm in ("tea", "coffee")]),
        (("--layout", "outer", "--arm-dim", 1), "outer", [{"id": arm, "features": [0.1]}
                                                          for arm in ("tea", "coffee")]),
    ],
)  # fmt: skip
def test_a_server_of_one_company_needs_a_width_only(tmp_path, flags, layout, arms):
    done = new(tmp_path, "--width", 2, *flags)
    assert done.exit_code == 0, done.output
    folder = tmp_path / "mine"
    settings = load_active(folder / "shop.toml")
    assert settings.features is None
    roster = load_roster(settings.roster, settings.identity / "authority.crt")
    assert (roster.terms.layout, roster.passive) == (layout, ())
    assert json.loads((folder / "app" / "rank.json").read_text())["arms"] == arms
    assert f"vfb serve active --config {folder / 'shop.toml'}" in done.stdout
    assert load_client(folder / "operator" / "operator.toml").roster.is_file()


def test_a_server_of_one_company_takes_its_users_features_from_a_table(tables, tmp_path):
    done = new(tmp_path, "--table", tables[0], "--exclude", "clicked", "--json")
    assert done.exit_code == 0, done.output
    settings = load_active(tmp_path / "mine" / "shop.toml")
    assert settings.features.path == (tmp_path / "mine" / "shop.csv").resolve()
    assert json.loads(done.stdout)["config"] == str(tmp_path / "mine" / "shop.toml")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ((), "wanted --width or --table, got neither"),
        (("--width", 2, "--table", "x.csv"), "wanted --width or --table, got both"),
        (("--width", 2, "--layout", "outer"), "arm_dim goes with layout 'outer', got 0"),
        (("--width", 2, "--address", "nowhere"), "an address is written host:port"),
        (("--table", "no.csv"), "must exist, got none at no.csv"),
        (("--table", "no.csv", "--layout", "outer", "--arm-dim", 1), "disjoint and per_arm"),
    ],
)
def test_a_mistake_of_a_new_server_leaves_nothing_behind(tmp_path, flags, says):
    fails(new(tmp_path, *flags), says)
    assert not any(tmp_path.iterdir())


def test_the_name_of_a_new_server_is_checked(tmp_path):
    fails(vfb("new", "a b", "--width", 1, "--out", tmp_path / "x"), "NAME has letters, digits")
