"""Whether traffic may come: for the campaigns, and for what else the process must do."""

import asyncio
import json

import pytest
from structlog.testing import capture_logs

from vfbandits.http.access.caller import CALLER, Caller
from vfbandits.http.access.guard import Guard
from vfbandits.http.access.key_file import add_key
from vfbandits.http.access.keys import KeyRing, make_key
from vfbandits.http.access.limits import Limits
from vfbandits.http.handlers import NOT_READY, Handlers
from vfbandits.http.request import BufferedRequest

READER = Caller("grafana", frozenset({"read"}))
BROKEN = "campaign 'default': cannot write /srv/shop/state/journal.db: disk full"


class Campaigns:
    def __init__(self, *problems):
        self._problems = list(problems)

    def problems(self):
        return self._problems


def handlers_of(campaigns, **more):
    return Handlers(campaigns, model_facts=lambda: None, limits=None, **more)


def readiness(handlers, caller=READER):
    scope = {"type": "http"} | ({} if caller is None else {CALLER: caller})
    answer = asyncio.run(handlers.readyz(BufferedRequest(scope)))
    return answer.status_code, json.loads(answer.body).get("reasons", [])


@pytest.mark.parametrize("problems", [(), ("the journal is broken",)])
def test_campaigns_alone_say_whether_traffic_may_come(problems):
    handlers = handlers_of(Campaigns(*problems))
    assert readiness(handlers) == (503 if problems else 200, list(problems))


def test_a_process_with_more_to_do_is_not_ready_when_that_fails():
    reason = "what rankers send is not taken in: ValueError"
    assert readiness(handlers_of(Campaigns(), problems=lambda: [reason])) == (503, [reason])


@pytest.mark.parametrize(
    "caller",
    [
        None,
        Caller("web", frozenset({"rank", "reward"})),
        Caller("part", frozenset({"read"}), frozenset({"default"})),
    ],
)
def test_a_stranger_is_not_told_where_files_are_and_the_log_is_once(caller):
    handlers = handlers_of(Campaigns(BROKEN, BROKEN + "!", "the server is stopping"))
    with capture_logs() as lines:
        answers = [readiness(handlers, caller) for _ in range(5)]
    assert answers == [(503, [NOT_READY, "the server is stopping"])] * 5
    assert [line["reason"] for line in lines] == [BROKEN, BROKEN + "!", "the server is stopping"]


@pytest.mark.parametrize(
    ("scopes", "is_told"), [(["read"], True), (["admin"], True), (["rank"], False), (None, False)]
)
def test_a_probe_may_show_a_key_and_need_not(tmp_path, scopes, is_told):
    key = make_key("probe", scopes=scopes or ["read"])
    add_key(tmp_path / "keys", key.record)
    shown = key.text if scopes else "vfb_wrong"
    handlers, sent = handlers_of(Campaigns(BROKEN)), []

    async def app(scope, receive, send):
        await (await handlers.readyz(BufferedRequest(scope)))(scope, receive, send)

    async def send(message):
        sent.append(message)

    guard = Guard(app, KeyRing.load(tmp_path / "keys"), Limits.standard())
    headers = [(b"authorization", f"Bearer {shown}".encode())]
    scope = {"type": "http", "method": "GET", "path": "/readyz", "headers": headers}
    asyncio.run(guard(scope, None, send))
    assert sent[0]["status"] == 503
    assert json.loads(sent[1]["body"])["reasons"] == [BROKEN if is_told else NOT_READY]
