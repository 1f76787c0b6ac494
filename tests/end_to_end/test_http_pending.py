"""A server that keeps three pending events in memory: no reward is lost, not even by a kill."""

import re

import pytest
from http_world import HttpWorld

from vfbandits.errors import ConfigError
from vfbandits.settings.decode import decode
from vfbandits.settings.model import MAX_PENDING, ModelSettings

N_EVENTS = 12


def metric(client, name):
    found = re.search(rf'^{name}{{campaign="default"}} (\S+)$', client.get("/metrics").text, re.M)
    return float(found[1])


def test_rewards_for_events_out_of_memory_are_learnt_over_http_also_after_a_kill(tmp_path):
    world = HttpWorld(tmp_path)
    config = world.local.config("shop")
    config.write_text(config.read_text().replace("[model]\n", "[model]\nmax_pending = 3\n"))
    with world:
        with world.client() as client:
            for number in range(N_EVENTS):
                assert world.rank(client, event_id=f"e{number}").status_code == 200
            waiting = [
                metric(client, name)
                for name in (
                    *("vfb_events_waiting", "vfb_events_waiting_in_memory"),
                    *("vfb_events_max_pending", "vfb_events_recalled_total"),
                )
            ]
            assert waiting == [N_EVENTS, 3, 3, 0]
            told = client.post("/v1/events/e0/reward", json={"value": 1.0})
            assert (told.status_code, told.json()["status"]) == (200, "learnt")
            assert metric(client, "vfb_events_recalled_total") == 1
        world.local.kill("shop")
        world.local.start("shop")
        world.wait_until_all_contribute()
        with world.client() as client:
            told = [
                client.post(f"/v1/events/e{number}/reward", json={"value": 1.0}).json()["status"]
                for number in range(N_EVENTS)
            ]
            assert told == ["repeated", *["learnt"] * (N_EVENTS - 1)]
            assert metric(client, "vfb_events_waiting") == 0
            assert metric(client, "vfb_events_recalled_total") == N_EVENTS - 4
            assert client.get("/v1/model").json()["version"] == N_EVENTS


def test_max_pending_is_a_whole_number_from_1():
    assert decode({}, ModelSettings).max_pending == MAX_PENDING
    assert decode({"max_pending": 7}, ModelSettings).max_pending == 7
    for value in (0, -1, 1.5, "many"):
        with pytest.raises(ConfigError, match="max_pending must be a whole number of at least 1"):
            decode({"max_pending": value}, ModelSettings)
