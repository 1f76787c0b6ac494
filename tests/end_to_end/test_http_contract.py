"""The server does what its OpenAPI document says, asked by somebody who knows nothing else.

Requests are made from the document: its examples, the borders of its schemas and what lies beyond
them, and anything at random.  Every answer must have a status, a body and header fields that the
document allows, and none may be a 500.
"""

import json
from importlib.metadata import version

import httpx2
import pytest
import schemathesis
from http_world import HttpWorld
from hypothesis import settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from vfbandits.http.access.key_file import add_key
from vfbandits.http.access.keys import make_key
from vfbandits.http.openapi.document import openapi_document
from vfbandits.http.openapi.examples import CAMPAIGN, EVENT_ID

KEY = make_key("inspector", scopes=["admin"])
BEARER = f"Bearer {KEY.text}"
RAW = openapi_document(version("vfbandits"))
MALFORMED = "/problems/invalid-request"
SECOND_CAMPAIGN = f"""
[campaigns.{CAMPAIGN}]
aggregation = "sum"
[campaigns.{CAMPAIGN}.model]
policy = "linucb"
"""
# Their twins without a campaign in the path have the same bodies and the same handlers.
LATER = [f"{name}_in_campaign" for name in ("rank", "rank_batch", "reward_batch", "change_config")]
document = schemathesis.openapi.from_dict(RAW)


@document.auth()
class Inspector:
    """Shows the key, unless a case is about showing none."""

    def get(self, case, context):
        del case, context
        return BEARER

    def set(self, case, data, context):
        del context
        case.headers["Authorization"] = data


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """With the campaign and the event that the document's examples name."""
    folder = tmp_path_factory.mktemp("contract")
    add_key(folder / "keys", KEY.record)
    keys = f'keys = "{folder / "keys"}"\n'
    with HttpWorld(folder, tables=SECOND_CAMPAIGN, http=keys) as world:
        with world.client(headers={"Authorization": BEARER}) as client:
            for path in ("/v1/rank", f"/v1/campaigns/{CAMPAIGN}/rank"):
                body = {"user": "u-17", "arms": ["tea", "coffee"], "event_id": EVENT_ID}
                assert client.post(path, json=body).status_code == 200
        yield world


def what_fits_the_schema_is_not_malformed(context, response, case):
    """A 422 of a request that fits the schema is about what no schema can say."""
    del context
    if case.meta.generation.mode.is_positive and response.status_code == 422:
        problem = json.loads(response.content)
        assert problem["type"] != MALFORMED, f"the schema allows this: {problem['detail']}"


def ask(case, world):
    case.call_and_validate(
        base_url=world.url,
        additional_checks=[what_fits_the_schema_is_not_malformed],
        # That features go with the layout, or parameters with the policy, no schema says.
        excluded_checks=[positive_data_acceptance],
    )


@document.exclude(operation_id=LATER).parametrize()
@settings(max_examples=4)
def test_every_operation_keeps_the_document(case, world):
    ask(case, world)


@pytest.mark.long
@pytest.mark.timeout(3600)
@document.parametrize()
@settings(max_examples=400, derandomize=False)
def test_every_operation_keeps_the_document_for_long(case, world):
    ask(case, world)


def test_the_document_that_is_served_is_the_one_that_is_tested(world):
    assert httpx2.get(f"{world.url}/openapi.json").json() == json.loads(json.dumps(RAW))


def test_every_example_of_the_document_succeeds(world):
    """So the tests above have seen answers of each kind, not refusals only."""
    with world.client(headers={"Authorization": BEARER}) as client:
        for where in ("/v1/config", f"/v1/campaigns/{CAMPAIGN}/config"):
            # The tests above have changed settings at random.
            known = {"reward_min": -1e6, "reward_max": 1e6, "default_reward": 0.0}
            known |= {"mode": "learn", "aggregation": "earliest", "reward_wait_s": 600.0}
            assert client.patch(where, json=known).status_code == 200
        for path, operations in RAW["paths"].items():
            where = path.replace("{campaign}", CAMPAIGN).replace("{event_id}", "new")
            for method, operation in operations.items():
                body = None
                if "requestBody" in operation:
                    content = operation["requestBody"]["content"]["application/json"]
                    body = content["examples"]["example"]["value"]
                    body = json.loads(json.dumps(body).replace(EVENT_ID, "new"))
                answer = client.request(method.upper(), where, json=body)
                assert answer.status_code == 200, (path, answer.text)
                document[path][method].validate_response(answer)
