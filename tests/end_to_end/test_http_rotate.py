"""A change of masks under a serving federation moves every campaign, also one that missed it."""

import json
import sys

import fork_server
from http_world import HttpWorld

NEWS = "[campaigns.news]\n[campaigns.news.model]\nseed = 1\n"


def test_all_campaigns_move_to_new_masks_and_keep_what_they_learnt(tmp_path):
    with HttpWorld(tmp_path, tables=NEWS) as world, world.client() as client:
        learn(client, world, "before")
        known = {name: model(client, name) for name in ("default", "news")}
        rotate(world)
        for name, before in known.items():
            after = model(client, name)
            assert (after["epoch"], after["version"]) == (2, before["version"])
            assert abs(after["norm"] - before["norm"]) < 1e-9
        learn(client, world, "after")
        world.local.kill("shop")
        world.local.start("shop")
        world.wait_until_all_contribute()
        for name in known:
            seen = model(client, name)
            assert (seen["epoch"], seen["version"]) == (2, 2 * known[name]["version"])


def test_status_counts_what_came_over_http_in_every_campaign(tmp_path):
    with HttpWorld(tmp_path, tables=NEWS) as world, world.client() as client:
        learn(client, world, "first")
        world.rank(client)
        seen = status(world)
        assert (seen["counts"]["decisions"], seen["counts"]["rewards"]) == (11, 10)
        assert seen["waiting_for_reward"] == 1
        assert seen["campaigns"] == {
            "default": {"decisions": 6, "rewards": 5, "waiting_for_reward": 1},
            "news": {"decisions": 5, "rewards": 5, "waiting_for_reward": 0},
        }
        world.local.kill("shop")
        world.local.start("shop")
        world.wait_until_all_contribute()
        world.rank(client)
        seen = status(world)
        assert (seen["counts"]["decisions"], seen["counts"]["rewards"]) == (1, 0)
        assert seen["waiting_for_reward"] == 2


def status(world):
    config = str(world.local.config("app"))
    command = [sys.executable, "-m", "vfbandits.cli.main", "federation", "status", "--json"]
    asked = fork_server.run([*command, "--config", config], capture_output=True, check=True)
    return json.loads(asked.stdout)


def learn(client, world, prefix):
    for name in ("default", "news"):
        for number in range(5):
            event_id = f"{prefix}-{number}"
            body = {"user": world.town.users[number], "arms": list(world.town.arms)}
            path = f"/v1/campaigns/{name}"
            answer = client.post(f"{path}/rank", json={**body, "event_id": event_id})
            assert answer.status_code == 200, answer.text
            answer = client.post(f"{path}/events/{event_id}/reward", json={"value": 0.5})
            assert answer.json()["status"] == "learnt"


def model(client, campaign):
    return client.get(f"/v1/campaigns/{campaign}/model").json()


def rotate(world):
    command = [sys.executable, "-m", "vfbandits.cli.main", "masks", "rotate", "--config"]
    done = fork_server.run(
        [*command, str(world.local.config("operator"))], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
