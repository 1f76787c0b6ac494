"""The retired service's own client, unchanged, against a real server: it ranks and rewards."""

import contextlib
import importlib.util
import json
import subprocess
import sys

import pytest
from fresh_environment import FreshEnvironment
from http_world import HttpWorld

from vfbandits.features.fit import hash_scaling
from vfbandits.http.access.key_file import add_key
from vfbandits.http.access.keys import make_key
from vfbandits.protocol.roster import Terms

PACKAGE = "azure-cognitiveservices-personalizer"
MODULE = "azure.cognitiveservices.personalizer"
CHILD_S = 240.0
WIDTHS = {"shop": 16, "bank": 3}
ARM_DIM = 8

# What an application does with the client, as that service's own quickstart has it.
APPLICATION = """
import json, sys
from azure.cognitiveservices.personalizer import PersonalizerClient
from azure.cognitiveservices.personalizer.models import (
    ErrorResponseException, RankableAction, RankRequest)
from msrest.authentication import CognitiveServicesCredentials

endpoint, key, user = sys.argv[1:]
client = PersonalizerClient(endpoint, CognitiveServicesCredentials(key))
actions = [
    RankableAction(id="pasta", features=[{"taste": "salty"}, {"nutrition": {"kcal": 5}}]),
    RankableAction(id="salad", features=[{"taste": "fresh"}, {"nutrition": {"kcal": 2}}]),
    RankableAction(id="cake", features=[]),
]
best = {"morning": "cake", "noon": "salad", "evening": "pasta"}

def rank(time, **more):
    context = [{"timeOfDay": time}, {"user": {"id": user, "tags": ["new", None, {"x": [1, 2]}]}}]
    return client.rank(RankRequest(actions=actions, context_features=context, **more))

hits = []
for round in range(90):
    time = list(best)[round % 3]
    answer = rank(time, event_id=f"visit/{round}")
    hits.append(float(answer.reward_action_id == best[time]))
    client.events.reward(event_id=answer.event_id, value=hits[-1])

excluded = rank("noon", excluded_actions=["salad"])
deferred = rank("noon", event_id="deferred", defer_activation=True)
client.events.activate("deferred")
client.events.reward("deferred", 1.0)
early = rank("noon", event_id="early", defer_activation=True)
client.events.reward("early", 1.0)
client.events.activate("early")
errors = []
for wrong in (lambda: client.rank(RankRequest(actions=[])),
              lambda: PersonalizerClient(endpoint, CognitiveServicesCredentials("no")).rank(
                  RankRequest(actions=actions))):
    try:
        wrong()
    except ErrorResponseException as error:
        errors.append([error.response.status_code, error.error.error.code])
print(json.dumps({
    "hits": hits,
    "last": answer.as_dict(),
    "excluded": [[one.id, one.probability] for one in excluded.ranking],
    "chosen": excluded.reward_action_id,
    "errors": errors,
}))
"""


@pytest.fixture
def python(tmp_path):
    """An interpreter that has the client: ours, or one of an environment that is made for it."""
    with contextlib.suppress(ModuleNotFoundError):
        if importlib.util.find_spec(MODULE) is not None:
            return sys.executable
    environment = FreshEnvironment(tmp_path / "client")
    environment.install(PACKAGE)
    return str(environment.binaries / "python")


@pytest.mark.timeout(600)
def test_its_own_client_ranks_activates_and_rewards_unchanged(tmp_path, python):
    key = make_key("web", scopes=["rank", "reward", "read"])
    add_key(tmp_path / "keys", key.record)
    scaling = hash_scaling(rest=WIDTHS["shop"]).save(tmp_path / "scaling.json")
    of_arms = hash_scaling(rest=ARM_DIM).save(tmp_path / "arms.json")
    world = HttpWorld(
        tmp_path,
        terms=Terms("blockwise", "plain", "outer", arm_dim=ARM_DIM, intercept=True),
        widths=WIDTHS,
        own=f'kind = "request"\nscaling = "{scaling}"\narm_scaling = "{of_arms}"\n',
        http=f'keys = "{tmp_path / "keys"}"\n',
        tables='[http.personalizer]\nuser = "user.id"\n',
    )
    with world:
        done = subprocess.run(
            [python, "-c", APPLICATION, world.url, key.text, world.town.users[0]],
            capture_output=True,
            text=True,
            timeout=CHILD_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        with world.client(headers={"authorization": f"Bearer {key.text}"}) as client:
            visits = [client.get(f"/v1/events/visit%2F{n}").json() for n in range(60, 90)]
            deferred, early = (client.get(f"/v1/events/{n}").json() for n in ("deferred", "early"))
    told = json.loads(done.stdout)
    assert told["last"]["event_id"] == "visit/89"
    assert told["last"]["reward_action_id"] == told["last"]["ranking"][0]["id"]
    assert sum(told["hits"][45:]) > 35  # by chance it would be 15
    assert told["excluded"][1] == ["salad", 0.0]
    assert told["chosen"] in ("pasta", "cake")
    assert told["errors"] == [[400, "BadRequest"], [401, "Unauthorized"]]
    assert {(one["user"], one["status"]) for one in visits} == {(world.town.users[0], "learnt")}
    # Not each of them: on a busy machine an answer may miss its deadline.
    assert ["shop", "bank"] in [one["answer"]["contributors"] for one in visits]
    assert (deferred["status"], deferred["reward"]) == ("learnt", 1.0)
    assert [one["value"] for one in early["rewards"]] == [1.0]
