"""``vfb`` against running federations: real processes over mutual TLS."""

import asyncio
import json
import re
import time
from contextlib import contextmanager

from live_world import LiveWorld, Session, wait_until_connected
from typer.testing import CliRunner

from vfbandits.cli.main import app
from vfbandits.pki import load_roster
from vfbandits.protocol.roster import Terms

WIDTHS = {"shop": 4, "bank": 3, "news": 2}


def vfb(*words):
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})


def works(*words):
    done = vfb(*words)
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def fails(*words):
    done = vfb(*words)
    assert done.exit_code == 2, (done.output, done.exception)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    return done.stderr


def status(federation):
    return json.loads(works("federation", "status", "--config", federation.config("app"), "--json"))


def wait_for(federation, *names):
    """Until exactly these passive participants are connected."""
    limit = time.monotonic() + 60.0
    while time.monotonic() < limit:
        facts = status(federation)["participants"]
        if {name for name in list(facts)[1:] if facts[name]["connected"]} == set(names):
            return
        time.sleep(0.05)
    raise AssertionError(f"wanted {names}, got {facts}")


@contextmanager
def running(folder, **options):
    terms = Terms(**options.pop("terms", {}))
    widths = options.pop("widths", WIDTHS)
    world = LiveWorld(folder, widths=widths, terms=terms, n_users=3, n_arms=3)
    with world.federation(**options) as federation:

        async def all_there():
            async with Session(world, federation, None) as session:
                await wait_until_connected(session)

        asyncio.run(all_there())
        federation.world = world
        yield federation
        for name in list(federation.processes):
            federation.kill(name)  # nothing here depends on how they end


def changing(federation):
    organiser = federation.authority.folder
    return ["--config", federation.config("operator"), "--authority", organiser]


def operators_roster(federation):
    path = federation.folder / "operator" / "roster.signed"
    return load_roster(path, federation.authority.certificate_path)


def newcomer(federation, name):
    """A participant that was approved, with the features of the bank; returns its member file."""
    features = federation.plan.features["bank"]
    federation.admit_passive(name, 3, features)
    return federation.folder / name / "identity" / f"{name}.member.json"


# On a busy machine it takes long enough for a line of progress.
PROGRESS = r"(\d+ of 40 rounds?, \d+ %.*\n)*"


def decides_as_a_central_bandit(federation):
    done = vfb("parity", "--config", federation.config("app"), "--rounds", 40, "--json")
    report = json.loads(done.stdout)
    assert done.exit_code == 0
    assert re.fullmatch(PROGRESS, done.stderr)
    assert (report["decisions_equal"], report["decisions_total"]) == (40, 40)
    assert report["largest_score_difference"] < 1e-9
    assert report["incomplete_rounds"] == 0
    terms = federation.plan.terms
    assert (report["layout"], report["mask"]) == (terms.layout, terms.mask)
    rows = report["arms"] if terms.layout == "per_arm" else 1
    columns = sum(federation.roster.rows_width[name] for name in federation.roster.split.passive)
    assert report["bytes_per_decision"] == 8 * rows * columns
    assert 0.0 < report["latency_p50_ms"] <= report["latency_p99_ms"]
