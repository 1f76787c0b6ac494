"""The loop, closed: served, exported, tuned from, and applied to the server that still runs."""

import json
import shlex

from http_world import HttpWorld
from typer.testing import CliRunner

from vfbandits.cli.main import app

TABLES = '[campaigns.default]\nlog_contexts = "all"\n'
N_EVENTS = 120


def vfb(*words):
    done = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_campaign_is_tuned_from_its_own_journal_while_it_runs(tmp_path):
    log = tmp_path / "log.parquet"
    with HttpWorld(tmp_path, tables=TABLES) as world, world.client() as client:
        journal = world.local.folder / "shop" / "state" / "journal.db"
        assert client.patch("/v1/config", json={"floor": 0.6}).json()["log_contexts"] == "all"
        serve(client, world, range(N_EVENTS))
        changed = client.patch("/v1/config", json={"log_contexts": "chosen"})
        assert changed.json()["log_contexts"] == "chosen"
        serve(client, world, range(N_EVENTS, N_EVENTS + 10))
        said = vfb("journal", "export", journal, "--out", log)
        assert f"wrote {N_EVENTS + 10} decisions" in said
        assert f"{N_EVENTS} of {N_EVENTS + 10} rows have the contexts of all arms" in said
        found = json.loads(vfb("evaluate", log, "--resamples", 50, "--json"))
        assert (found["layout"], found["rounds"], found["arms"]) == ("per_arm", N_EVENTS, 5)
        flags = ("--train", 0.15, "--policy", "lingreedy", "--policy", "linucb", "--processes", 1)
        said = vfb("tune", log, *flags, "--out", tmp_path / "out", "--url", world.url)
        curl = shlex.split(next(line for line in said.splitlines() if line.startswith("curl")))
        assert curl[3].startswith(world.url)
        body = curl[curl.index("-d") + 1]
        sent = client.patch(
            curl[3].removeprefix(world.url),
            content=body,
            headers={"content-type": "application/json"},
        )
        assert sent.status_code == 200, sent.text
        config = client.get("/v1/config").json()
        assert config["policy"] == json.loads(body)["policy"]
        assert (config["floor"], config["version"]) == (0.6, 3)
        assert world.rank(client).json()["config_version"] == 3
        world.local.kill("shop")
        world.local.start("shop")
        world.wait_until_all_contribute()
        assert client.get("/v1/config").json() == config


def serve(client, world, numbers):
    users = world.town.users
    for number in numbers:
        user = users[number % len(users)]
        answer = world.rank(client, user=user, event_id=f"e{number}").json()
        value = float(answer["arm"] == world.town.arms[number % 2])
        sent = client.post(f"/v1/events/e{number}/reward", json={"value": value})
        assert sent.status_code == 200, sent.text
