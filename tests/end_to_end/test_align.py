"""``vfb align`` by real processes over mutual TLS."""

import asyncio
import json
import subprocess
import sys

import fork_server
import pytest
from live_world import LiveWorld
from typer.testing import CliRunner

from vfbandits import extras
from vfbandits.admin.align.run import Place, align_as_active
from vfbandits.admin.align.users import read_users
from vfbandits.admin.federation_files import without_member, write_roster
from vfbandits.cli.main import app
from vfbandits.errors import LinkError
from vfbandits.protocol.roster import Terms

WIDTHS = {"shop": 2, "bank": 2, "news": 2}
LIMIT_S = 100


def vfb_align(federation, name, *flags):
    out = federation.folder / name / "aligned"
    words = ["align", "--config", federation.config(name), "--out", out, "--wait", LIMIT_S, *flags]
    return fork_server.Popen(
        [sys.executable, "-m", "vfbandits.cli.main", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process, *, code=0):
    said, error = process.communicate(timeout=LIMIT_S + 20)
    assert process.returncode == code, (said, error)
    return said if code == 0 else " ".join(error.split())


def lists(federation, name):
    folder = federation.folder / name / "aligned"
    return {path.name: set(read_users(path).users) for path in folder.iterdir()}


def test_participants_find_their_common_users_over_mutual_tls(tmp_path):
    world = LiveWorld(tmp_path, widths=WIDTHS, terms=Terms(users="pseudonyms"), n_users=6)
    federation = world.federation()
    # The bank takes part with the users of its [features].
    (tmp_path / "shop.txt").write_text("\n".join(["", *"abcdeeg", "user-1", "user-4"]))
    (tmp_path / "news.txt").write_text("\n".join("cdexyz"))
    processes = {
        "news": vfb_align(federation, "news", "--users", tmp_path / "news.txt"),
        "bank": vfb_align(federation, "bank", "--json"),
        "shop": vfb_align(federation, "shop", "--users", tmp_path / "shop.txt", "--json"),
    }
    said = {name: finished(process) for name, process in processes.items()}
    assert lists(federation, "bank") == {"common-with-shop.txt": {"user-1", "user-4"}}
    assert lists(federation, "news") == {"common-with-shop.txt": {"c", "d", "e"}}
    # With no user in common to all, that list is empty: there is a file all the same.
    everybody = federation.folder / "shop" / "aligned" / "common-with-all-participants.txt"
    assert everybody.read_text() == ""
    everybody.unlink()
    assert lists(federation, "shop") == {
        "common-with-bank.txt": {"user-1", "user-4"},
        "common-with-news.txt": {"c", "d", "e"},
    }
    shop, bank = json.loads(said["shop"]), json.loads(said["bank"])
    assert (shop["users"], shop["repeated"], shop["empty"]) == (8, 1, 1)
    assert (bank["users"], bank["with"]["shop"]["users"]) == (6, 8)
    assert shop["with"]["bank"]["digest"] == bank["with"]["shop"]["digest"]
    assert shop["with"]["news"]["digest"][:16] in said["news"]


def test_a_member_that_was_taken_out_of_the_roster_is_refused(tmp_path):
    world = LiveWorld(tmp_path, widths=WIDTHS, terms=Terms(users="pseudonyms"), n_users=3)
    federation = world.federation()
    later = without_member(federation.roster, "news")
    write_roster(later, federation.authority, federation.folder / "shop" / "roster.signed")
    shop = vfb_align(federation, "shop")
    try:
        assert "is not in it" in finished(vfb_align(federation, "news"), code=2)
        # The bank is in it, and has another one in hand.
        said = finished(vfb_align(federation, "bank"), code=2)
        assert "roster: the active participant has" in said
    finally:
        shop.kill()
        shop.communicate()


def test_one_that_does_not_come_is_named(tmp_path):
    federation = LiveWorld(tmp_path, widths=WIDTHS, n_users=3).federation()
    place = Place.load(federation.config("shop"), users=None)
    ports = []
    with pytest.raises(LinkError, match=r"within 0\.1 s, got no result with bank, news"):
        asyncio.run(align_as_active(place, wait_s=0.1, on_ready=ports.append, on_step=print))
    assert len(ports) == 1


def test_without_the_extra_the_error_names_it(tmp_path, monkeypatch):
    monkeypatch.setattr(extras, "_is_installed", lambda module: "intersection" not in module)
    words = ["align", "--config", str(tmp_path / "x.toml"), "--out", str(tmp_path)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert "pip install 'vfbandits[align]'" in " ".join(result.output.split())


@pytest.mark.parametrize("role", ["app", "operator"])
def test_only_participants_align(tmp_path, role):
    world = LiveWorld(tmp_path, widths=WIDTHS, n_users=2)
    config = world.federation().config(role)
    result = CliRunner().invoke(app, ["align", "--config", str(config), "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "wanted the file of a participant" in " ".join(result.output.split())
