"""compose.yaml and Containerfile, which nobody runs here: what can be checked without that."""

import json
import re
import shlex
import tomllib
from pathlib import Path, PurePosixPath

import pytest
import yaml
from command_words import parse
from members import join

from vfbandits.admin.federation_files import find_approved, make_roster
from vfbandits.pki.authority import Authority, create_authority
from vfbandits.protocol.roster import Terms
from vfbandits.settings.template import config_text

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
CONTAINER = (ROOT / "Containerfile").read_text("utf-8")
ROLES = {"shop": "active", "bank": "passive", "news": "passive"}
FOLDERS = "${VFB_FOLDERS:-.}"


def steps(word):
    """The instructions of the Containerfile that begin so, each in one line."""
    lines = re.sub(r"\\\n", " ", CONTAINER).splitlines()
    return [line.removeprefix(word).strip() for line in lines if line.startswith(f"{word} ")]


def mounts(name):
    """What is mounted in a service: target to (source, is read only)."""
    found = {}
    for text in COMPOSE["services"][name]["volumes"]:
        source, target, *mode = text.replace(FOLDERS, ".").split(":")
        found[target] = source, mode == ["ro"]
    return found


def test_there_is_one_active_participant_and_two_passive_ones():
    services = COMPOSE["services"]
    assert {name: service["command"][1] for name, service in services.items()} == ROLES


@pytest.mark.parametrize("name", ROLES)
def test_a_service_runs_and_checks_itself_with_commands_that_vfb_accepts(name):
    service = COMPOSE["services"][name]
    kind, program, *check = service["healthcheck"]["test"]
    assert (kind, program) == ("CMD", "vfb")
    assert parse(service["command"]) == ("serve", ROLES[name])
    assert parse(check) in [("federation", "status"), ("preflight",)]
    for words in (service["command"], check):
        assert words[-2:] == ["--config", f"/vfb/{name}.toml"]


@pytest.mark.parametrize("name", ROLES)
def test_only_the_state_can_be_written(name):
    service, mounted = COMPOSE["services"][name], mounts(name)
    assert service["read_only"] is True
    assert {target for target, (_, is_fixed) in mounted.items() if not is_fixed} == {"/vfb/state"}
    assert mounted["/vfb/state"][0] in COMPOSE["volumes"]
    assert service["stop_grace_period"] == "15s"  # longer than the 5 s that decisions may take


@pytest.mark.parametrize("name", ROLES)
def test_what_a_configuration_names_is_where_the_service_mounts_it(name, tmp_path):
    create_authority(tmp_path / "ca", "fair")
    for member, role in ROLES.items():
        terms = {"federation": "fair", "name": member, "role": role, "width": 3}
        join(tmp_path, tmp_path / "ca", terms)
    authority = Authority.load(tmp_path / "ca")
    roster = make_roster(find_approved(authority), Terms(), federation="fair")
    text = config_text(roster.find(name), roster, address="shop:7443", roster_file="roster.signed")
    config, mounted = tomllib.loads(text), mounts(name)
    for key in ("identity", "roster", "state"):
        assert str(PurePosixPath("/vfb") / config[key]) in mounted
    folder = f"./{name}/"
    assert all(source.startswith(folder) for source, is_fixed in mounted.values() if is_fixed)


def test_only_the_active_participant_has_a_port():
    ports = {name: service.get("ports", []) for name, service in COMPOSE["services"].items()}
    assert ports == {"shop": ["7443:7443"], "bank": [], "news": []}


def test_the_image_is_built_from_files_of_the_repository():
    for service in COMPOSE["services"].values():
        assert (ROOT / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    copied = [line.split()[:-1] for line in steps("COPY") if not line.startswith("--from")]
    assert [path for paths in copied for path in paths if not (ROOT / path).exists()] == []


def test_the_image_has_extras_that_there_are_and_what_the_package_is_built_from():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    (install,) = [line for line in steps("RUN") if "pip install" in line]
    extras = re.search(r"\.\[([a-z,]+)\]", install)[1].split(",")
    assert set(extras) <= set(project["project"]["optional-dependencies"])
    assert {"rpc", "http", "otel", "sql", "redis", "fast"} <= set(extras)
    copied = {path for line in steps("COPY") for path in line.split()[:-1]}
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert {"pyproject.toml", "constraints.txt", project["project"]["readme"]} <= copied
    assert {"src", *wheel["force-include"]} <= copied
    assert set(project["project"]["license-files"]) <= copied


def test_the_image_runs_vfb_as_a_user_that_is_not_root_and_holds_no_secret():
    assert [json.loads(line) for line in steps("ENTRYPOINT")] == [["vfb"]]
    assert steps("USER") == ["10001:10001"]
    assert not any(re.search(r"\.(key|signed|toml)\b", line) for line in steps("COPY")
                   if "pyproject.toml" not in line)  # fmt: skip
    assert not any(word in CONTAINER.lower() for word in ("password", "passphrase", "secret="))
    for line in steps("RUN"):
        assert shlex.split(line)  # quotes are closed


def test_both_files_say_that_nobody_runs_them_here():
    for name in ("compose.yaml", "Containerfile"):
        head = (ROOT / name).read_text("utf-8").split("\n\n")[0]
        assert "NOT RUN" in head
