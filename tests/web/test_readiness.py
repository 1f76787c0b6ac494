"""Whether traffic may come: for the campaigns, and for what else the process must do."""

import asyncio
import json

import pytest

from vfbandits.web.handlers import Handlers


class Campaigns:
    def __init__(self, *problems):
        self._problems = list(problems)

    def problems(self):
        return self._problems


def readiness(campaigns, **more):
    handlers = Handlers(campaigns, model_facts=lambda: None, limits=None, **more)
    answer = asyncio.run(handlers.readyz(None))
    return answer.status_code, json.loads(answer.body).get("reasons", [])


@pytest.mark.parametrize("problems", [(), ("the log is broken",)])
def test_campaigns_alone_say_whether_traffic_may_come(problems):
    assert readiness(Campaigns(*problems)) == (503 if problems else 200, list(problems))


def test_a_process_with_more_to_do_is_not_ready_when_that_fails():
    reason = "what rankers send is not taken in: ValueError"
    assert readiness(Campaigns(), problems=lambda: [reason]) == (503, [reason])
