"""Features whose products float64 cannot hold are the caller's error: 422, never 500."""

import pytest
from http_world import HttpWorld

from vfbandits.protocol.roster import Terms

BOUND = 2.0**39  # the widest that terms allow
READY_S = 240.0


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vfbandits.demo.processes.READY_S", READY_S)
        patch.setattr("http_world.READY_S", READY_S)
        terms = Terms("blockwise", "plain", "outer", arm_dim=2, bound=BOUND)
        with HttpWorld(tmp_path_factory.mktemp("overflow"), terms=terms) as world:
            yield world


def body(world, size, **more):
    arms = [{"id": arm, "features": [size, -size]} for arm in world.town.arms]
    return {"user": world.town.users[0], "arms": arms, **more}


@pytest.mark.parametrize("size", [BOUND, 1e30, 1e100])
def test_features_of_arms_that_are_too_large_are_refused(world, size):
    with world.client() as client:
        asked = body(world, size)
        answers = [
            client.post("/v1/rank", json=asked),
            client.post("/v1/campaigns/default/rank", json=asked),
        ]
        assert [answer.status_code for answer in answers] == [422] * 2
        batch = client.post("/v1/rank/batch", json={"requests": [asked, body(world, 1.0)]}).json()
        assert [one.get("problem", {}).get("status", 200) for one in batch["results"]] == [422, 200]
        assert client.post("/v1/rank", json=body(world, 1.0)).status_code == 200
    assert not [one for one in world.local.events("shop") if one["event"] == "http_request_failed"]
