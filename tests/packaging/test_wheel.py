"""The wheel in fresh environments: every row of the extras table, without constraints."""

import re
import tomllib

import pytest
from command_words import all_commands, commands_in
from extras_table import ROOT, ROWS

from vfbandits.extras import MODULES

ALWAYS = ("bare", "rpc,http")  # the others run for minutes
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
# What a command needs, where a bare install is not enough for it.
NEEDS = {
    ("align",): "rpc,align",
    ("audit",): "experiments",
    ("demo",): "rpc,experiments",
    ("evaluate",): "experiments",
    ("features", "fit", "--source"): "rpc",
    ("federation", "add"): "rpc",
    ("federation", "remove"): "rpc",
    ("federation", "status"): "rpc",
    ("journal", "export"): "experiments",
    ("journal", "import"): "experiments",
    ("journal", "retract"): "http",
    ("masks", "rotate"): "rpc",
    ("new",): "rpc,http",
    ("parity", "--config"): "rpc",
    ("poc",): "rpc,http",
    ("preflight",): "rpc",
    ("reproduce",): "experiments",
    ("serve", "active"): "rpc",
    ("serve", "helper"): "rpc",
    ("serve", "passive"): "rpc",
    ("simulate",): "experiments",
    ("tune",): "experiments",
}

pytestmark = pytest.mark.timeout(900)


def by_length(names):
    return [pytest.param(name, marks=() if name in ALWAYS else pytest.mark.long) for name in names]


@pytest.mark.parametrize(
    "is_lowest",
    [pytest.param(False, id="newest"), pytest.param(True, id="lowest", marks=pytest.mark.long)],
)
@pytest.mark.parametrize("name", by_length(ROWS))
def test_the_first_commands_of_a_row_run(name, is_lowest, environment):
    fresh = environment(name, is_lowest=is_lowest)
    for words in ROWS[name].commands:
        done = fresh.run(*words)
        assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-500:]}\n{done.stderr}"


def test_every_command_shows_its_help_on_a_bare_install(environment):
    for names, ended in environment("bare").run_vfb([*names, "--help"] for names in all_commands()):
        assert (ended.code, ended.stderr) == (0, ""), names
        assert "Usage: vfb" in ended.stdout


def test_a_command_on_a_bare_install_works_or_names_the_extra(environment):
    fresh = environment("bare")
    for config in ("app", "shop", "bank", "operator/operator", "my-study"):
        (fresh.home / config).parent.mkdir(exist_ok=True)
        (fresh.home / f"{config}.toml").touch()  # empty: extras come first
    page = (ROOT / "docs" / "cli.md").read_text("utf-8")
    typed = [words[: words.index("…")] if "…" in words else words for words in commands_in(page)]
    seen = set()
    for words, ended in fresh.run_vfb(typed):
        text = ended.stdout + ended.stderr
        assert "Traceback" not in text, words
        assert "No module named" not in text, words
        names = next((names for names in NEEDS if words[: len(names)] == [*names]), None)
        if names is None:
            assert "pip install" not in text, words
        else:
            assert ended.code == 2
            assert re.fullmatch(r"error: .*\n", ended.stderr), words
            named = re.search(r"pip install 'vfbandits\[([a-z,]+)\]'", ended.stderr)
            assert set(NEEDS[names].split(",")) <= set(named[1].split(",")), words
            seen.add(names)
    assert seen == set(NEEDS)


@pytest.mark.long
def test_a_figure_that_needs_another_extra_says_so_before_it_runs(environment):
    done = environment("fast,experiments").run("vfb", "reproduce", "all", "--quick")
    assert done.returncode == 2
    assert "pip install 'vfbandits[rpc]'" in done.stderr
    done = environment("fast,experiments").run("vfb", "demo", "--quick")
    assert done.stderr.endswith("pip install 'vfbandits[rpc]'\n")


def test_the_table_has_every_extra_and_every_install_line_of_the_docs():
    in_table = {extra for row in ROWS.values() for extra in row.extras}
    assert in_table == set(PROJECT["optional-dependencies"]) == set(MODULES)
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        shown = re.findall(r"pip install '?(?:\.|vfbandits)\[([a-z,]+)\]", page.read_text("utf-8"))
        assert {",".join(sorted(extras.split(","))) for extras in shown} <= {
            ",".join(sorted(row.extras)) for row in ROWS.values()
        }, page.name


def test_an_extra_is_known_by_modules_that_it_brings():
    """Installed here are all but ray, and each module is one of its extra's own packages."""
    for extra, modules in MODULES.items():
        wanted = {
            re.split(r"[^a-z0-9-]", one)[0] for one in PROJECT["optional-dependencies"][extra]
        }
        for module in modules:
            distribution = {
                "google.protobuf": "protobuf", "grpc": "grpcio", "prometheus_client":
                "prometheus-client", "sklearn": "scikit-learn", "opentelemetry":
                "opentelemetry-sdk", "private_set_intersection": "openmined-psi",
                "dp_accounting": "dp-accounting",
            }.get(module, module)  # fmt: skip
            assert any(distribution == name for name in wanted), (extra, module)
