"""Replicas and trainers as processes on a real PostgreSQL, over mutual TLS, killed on the way."""

import asyncio
import json
import re
import secrets
import signal
import threading
import time
from collections import Counter

import httpx2
import psycopg
import pytest
from live_world import client_of
from scale_world import ScaleWorld

from vfbandits.campaign.events import LEADERSHIP, Administered, Decided, Reported, Rewarded
from vfbandits.errors import ConfigError, IdentityError
from vfbandits.protocol.application import (
    ChangeRequest,
    DecideRequest,
    GatherRequest,
    StatusRequest,
)
from vfbandits.serving.build import run_process
from vfbandits.settings.role import Role
from vfbandits.settings.services import load_active

CAMPAIGN = """
[campaigns.sums]
aggregation = "sum"
reward_wait_s = 5.0

[campaigns.sums.model]
policy = "lints"
posterior_scale = 0.2
"""
TAKEOVER_S = 20.0  # of a machine that is busy; alone it takes one or two


class Visitor(threading.Thread):
    """Ranks and rewards at one ranker after the other, and remembers what was acknowledged."""

    def __init__(self, world, number, names, n_visits=1_000_000):
        super().__init__(daemon=True)
        self.world, self.number, self.n_visits = world, number, n_visits
        self.clients = [world.client_of(name) for name in names]
        self.answers, self.rewards, self.refusals = {}, {}, Counter()
        self.is_over = threading.Event()
        self.error = None

    def run(self):
        try:
            for visit in range(self.n_visits):
                if self.is_over.is_set():
                    return
                self.visit(f"v{self.number}-{visit}", visit)
        except BaseException as error:
            self.error = error
            raise

    def visit(self, event_id, visit):
        user = self.world.town.users[visit % len(self.world.town.users)]
        body = {"user": user, "arms": list(self.world.town.arms), "event_id": event_id}
        answer = self.post(visit, "/v1/rank", body)
        if answer is None:
            return
        self.answers[event_id] = answer.text
        value = (visit % 7) / 7.0
        reward = self.post(visit + 1, f"/v1/events/{event_id}/reward", {"value": value})
        if reward is not None:
            assert reward.json()["status"] in ("queued", "repeated")
            self.rewards[event_id] = value

    def post(self, visit, path, body):
        """The answer; asked for again, at another ranker, while there is none."""
        for again in range(2_000):
            client = self.clients[(visit + again) % len(self.clients)]
            try:
                answer = client.post(path, json=body)
            except httpx2.TransportError:
                self.refusals["gone"] += 1
                time.sleep(0.05)
                continue
            if answer.status_code == 200:
                return answer
            assert answer.status_code == 503, answer.text
            self.refusals[503] += 1
            if self.is_over.is_set():
                return None
            time.sleep(0.05)
        raise TimeoutError(path)

    def stop(self):
        self.is_over.set()
        self.join(timeout=60.0)
        assert self.error is None
        for client in self.clients:
            client.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A passive participant, two trainers of which one leads, and two rankers."""
    with ScaleWorld(tmp_path_factory.mktemp("scale"), key=True, tables=CAMPAIGN) as world:
        world.start(("t1", "trainer"), ("t2", "trainer"), ("r1", "ranker"), ("r2", "ranker"))
        world.local.start("bank")
        world.wait_ready("r1", "r2")
        world.wait_connected("r1", "bank")
        yield world


def compare(world, visitors):
    """Every answer once in the log; the trainer's and the rankers' model are its fold."""
    world.wait(lambda: world.waiting() == 0, "inbox empty")
    events = [event for _, event in world.events()]
    decided = {event.event_id: event for event in events if isinstance(event, Decided)}
    assert len(decided) == sum(isinstance(event, Decided) for event in events)
    learnt = {event.event_id: event.value for event in events if isinstance(event, Rewarded)}
    assert len(learnt) == sum(isinstance(event, Rewarded) for event in events)
    for visitor in visitors:
        for event_id, answer in visitor.answers.items():
            assert decided[event_id].answer.decode() == answer
        assert visitor.rewards.items() <= learnt.items()
    assert [event for event in events if isinstance(event, Reported)] == []
    folded = world.folded()
    figures = {"version": folded.n_learnt, "log_position": folded.position,
               "norm": folded.bandit.estimate_norm()}  # fmt: skip
    for name in world.processes:
        if world.is_ready(name):
            with world.client_of(name) as client:

                def is_level(client=client):
                    return figures.items() <= client.get("/v1/model").json().items()

                world.wait(is_level, f"{name} at the end of the journal")
    return learnt


def test_what_rankers_acknowledged_survives_a_killed_trainer_exactly_once(world):
    """Exact: each answer and reward once in the log, and every model equal to its fold."""
    visitors = [Visitor(world, number, ("r1", "r2")) for number in range(3)]
    leads, stands_by = world.leads_and_stands_by("t1", "t2")
    world.wait(lambda: world.readiness(stands_by) == (503, ["standing by"]), "a standby")
    for visitor in visitors:
        visitor.start()
    world.wait(lambda: all(len(v.rewards) > 10 for v in visitors), "traffic")
    world.kill(leads)
    killed = time.monotonic()
    world.wait_ready(stands_by)
    assert time.monotonic() - killed < TAKEOVER_S
    before = [len(v.rewards) for v in visitors]
    world.start((leads, "trainer"))  # stands by from now on
    world.wait(
        lambda: all(len(v.rewards) > n + 10 for v, n in zip(visitors, before, strict=True)),
        "traffic after the takeover",
    )
    for visitor in visitors:
        visitor.stop()
    led = [e for _, e in world.events() if isinstance(e, Administered) and e.what == LEADERSHIP]
    assert len(led) == 2
    assert {one.by.split("@")[0] for one in led} == {"shop"}
    learnt = compare(world, visitors)
    assert len(learnt) > 60
    assert '"event": "inbox_record_refused"' not in world.log_path(stands_by).read_text()


def test_masks_may_change_while_rankers_decide(world):
    async def change():
        client = client_of(world.local, "operator")
        try:
            return await client.change(ChangeRequest(), timeout_s=20.0)
        finally:
            await client.close()

    visitors = [Visitor(world, f"m{number}", ("r1", "r2")) for number in range(2)]
    for visitor in visitors:
        visitor.start()
    world.wait(lambda: all(len(v.rewards) > 5 for v in visitors), "traffic")
    epoch = asyncio.run(change()).epoch
    for name in ("r1", "r2"):
        with world.client_of(name) as client:
            world.wait(lambda c=client: world.rank(c).json().get("epoch") == epoch, "new masks")
    for visitor in visitors:
        visitor.stop()
    compare(world, visitors)
    epochs = [event.epoch for _, event in world.events() if isinstance(event, Decided)]
    assert epochs == sorted(epochs)
    assert {epoch - 1, epoch} <= set(epochs)


def test_campaigns_stay_apart(world):
    name = f"sum-{secrets.token_hex(4)}"
    with world.client_of("r1") as r1, world.client_of("r2") as r2:
        body = {"user": world.town.users[0], "arms": list(world.town.arms), "event_id": name}
        first = r1.post("/v1/campaigns/sums/rank", json=body)
        assert first.status_code == 200
        assert r2.get(f"/v1/events/{name}").status_code == 404
        path = f"/v1/campaigns/sums/events/{name}"
        for number, client in enumerate((r1, r2, r1)):
            reward = {"value": 0.5, "reward_id": f"part-{number}"}
            assert client.post(f"{path}/reward", json=reward).json()["status"] == "queued"
        world.wait(lambda: r2.get(path).json()["reward"] == 1.5, "the sum")


def test_the_same_event_has_one_answer_and_one_reward_at_all_rankers(world):
    name = f"once-{secrets.token_hex(4)}"
    with world.client_of("r1") as r1, world.client_of("r2") as r2:
        first = world.rank(r1, event_id=name)
        again = world.rank(r2, event_id=name, user=world.town.users[1])
        assert (first.status_code, first.text) == (200, again.text)
        path = f"/v1/events/{name}/reward"
        assert r2.post(path, json={"value": 1.0}).json()["status"] == "queued"
        assert r1.post(path, json={"value": 1.0}).json()["status"] == "repeated"
        refused = r1.post(path, json={"value": 0.0})
        assert refused.status_code == 409
        assert "is 1.0 already, got 0.0" in refused.json()["detail"]
        world.wait(lambda: r1.get(f"/v1/events/{name}").json()["reward"] == 1.0, "learnt")
        assert r2.post(path, json={"value": 0.0}).status_code == 409
        assert r1.post("/v1/events/nobody/reward", json={"value": 0.0}).status_code == 404


def test_decisions_that_come_together_share_rounds_and_one_bad_request_fails_alone(world):
    """Over HTTP, gRPC and TLS: 64 that are asked for together make a round or two."""
    leads, _ = world.leads_and_stands_by("t1", "t2")
    n_batches, tag = 4, secrets.token_hex(4)
    users, arms = world.town.users, list(world.town.arms)

    def body(number):
        event_id, user = f"{tag}-{number}", users[number % len(users)]
        shown = arms[: 1 + number % 5]
        if number % 64 == 7:  # not the width of shop's own block, which the leader finds out
            shown = [{"id": arm, "features": [1.0]} for arm in shown]
        return {"user": user, "arms": shown, "event_id": event_id}

    before = n_asks(world)
    answers = []
    with world.client_of("r1") as client:
        for batch in range(n_batches):
            requests = [body(number) for number in range(64 * batch, 64 * batch + 64)]
            answer = client.post("/v1/rank/batch", json={"requests": requests}, timeout=60.0)
            assert answer.status_code == 200, answer.text
            answers += answer.json()["results"]
    n_rounds = n_asks(world) - before
    assert len(answers) == 64 * n_batches
    for number, told in enumerate(answers):
        if number % 64 == 7:
            assert told["problem"]["status"] == 422
            n_arms = 1 + number % 5
            rows = f" in each of {n_arms} rows" if n_arms > 1 else ""
            said = f"features of 'shop': wanted 3 numbers{rows}, got {n_arms} numbers"
            assert told["problem"]["detail"] == said
        else:
            response = told["answer"]
            assert response["event_id"] == f"{tag}-{number}"
            assert len(response["ranking"]) == 1 + number % 5
            assert response["contributors"] == ["shop", "bank"]
    assert n_rounds <= len(answers) / 10
    world.wait(lambda: world.waiting() == 0, "inbox empty")
    logged = {e.event_id for _, e in world.events() if isinstance(e, Decided)}
    assert {f"{tag}-{n}" for n in range(len(answers)) if n % 64 != 7} <= logged
    assert '"event": "inbox_record_refused"' not in world.log_path(leads).read_text()


def n_asks(world):
    """How many rounds bank was asked in."""
    return asyncio.run(status_of(world))["participants"]["bank"]["asks"]


async def status_of(world):
    client = client_of(world.local, "operator")
    try:
        return json.loads((await client.status(StatusRequest(), timeout_s=20.0)).document)
    finally:
        await client.close()


def test_a_ranker_that_is_killed_and_started_again_has_lost_nothing(world):
    name = f"kept-{secrets.token_hex(4)}"
    with world.client_of("r1") as r1:
        first = world.rank(r1, event_id=name)
        r1.post(f"/v1/events/{name}/reward", json={"value": 0.5})
    world.kill("r1")
    world.start(("r1", "ranker"))
    world.wait_ready("r1")
    with world.client_of("r1") as r1:
        assert world.rank(r1, event_id=name).text == first.text
        repeated = r1.post(f"/v1/events/{name}/reward", json={"value": 0.5})
        assert repeated.json()["status"] == "repeated"


def test_settings_changed_at_a_ranker_hold_everywhere(world):
    with world.client_of("r1") as r1, world.client_of("r2") as r2:
        changed = r1.patch("/v1/config", json={"holdback": 0.5})
        assert changed.json()["holdback"] == 0.5
        world.wait(lambda: r2.get("/v1/config").json() == r1.get("/v1/config").json(), "the same")
        assert r2.get("/v1/config").json()["version"] == 1
        assert r2.patch("/v1/config", json={"holdback": 0.0}).json()["holdback"] == 0.0


def test_pages_of_rankers_and_of_the_leader_show_latency_rewards_and_versions(world):
    """Decisions of both rankers, wherever one looks; they come by way of the journal."""
    leads, _ = world.leads_and_stands_by("t1", "t2")
    with world.client_of("r1") as client:
        for holdback in (0.5, 0.0):
            assert client.patch("/v1/config", json={"holdback": holdback}).status_code == 200
    name = f"page-{secrets.token_hex(4)}"
    for ranker in ("r1", "r2"):
        with world.client_of(ranker) as client:
            assert world.rank(client, event_id=f"{name}-{ranker}").status_code == 200
            path = f"/v1/events/{name}-{ranker}/reward"
            assert client.post(path, json={"value": 0.5}).status_code == 200
    for process in ("r1", "r2", leads):
        with world.client_of(process) as client:
            assert "<!doctype html>" in client.get("/").text

            def shown(client=client):
                view = client.get("/v1/dashboard?minutes=60").json()
                mine = [one for one in view["last"] if one["event_id"].startswith(name)]
                return view, [one for one in mine if one["status"] == "learnt"]

            world.wait(lambda shown=shown: len(shown()[1]) == 2, f"rewards on {process}'s page")
            view, mine = shown()
            assert all(one["latency_ms"] > 0.0 for one in mine)
            assert view["totals"]["p99_ms"] > 0.0
            facts = view["facts"]
            assert facts["process"] == ("trainer" if process == leads else "ranker")
            assert facts["journal_lag_s"] < 10.0
            assert facts["model_version"] == client.get("/v1/model").json()["version"]
            texts = [mark["text"] for mark in view["marks"]]
            assert "bank connected" in texts
            assert {"holdback: 0.0 → 0.5", "holdback: 0.5 → 0.0"} & {*texts}
            assert "vfb_journal_lag_seconds" in client.get("/metrics").text


def test_contexts_are_for_the_active_participants_own_processes_only(world):
    async def main():
        client = client_of(world.local, "app")
        try:
            requests = (DecideRequest("user-0", ("arm-0",)),)
            await client.gather(GatherRequest(requests), timeout_s=30.0)
        finally:
            await client.close()

    with pytest.raises(IdentityError, match="wanted role active"):
        asyncio.run(main())


def test_a_trainer_sends_those_who_rank_to_others_and_shows_the_rest(world):
    leads, stands_by = world.leads_and_stands_by("t1", "t2")
    with world.client_of(leads) as client:
        refused = world.rank(client)
        assert (refused.status_code, "ask a ranker" in refused.text) == (503, True)
        assert client.get("/v1/model").status_code == 200
        assert client.get("/v1/dashboard").status_code == 200
    world.wait(lambda: world.readiness(stands_by) is not None, "its port")
    with world.client_of(stands_by) as client:
        assert client.get("/healthz").status_code == 200
        assert "vfb_ready 0.0" in client.get("/metrics").text
        assert client.get("/readyz").json() == {"status": "unavailable", "reasons": ["standing by"]}
        assert client.get("/v1/model").status_code == 503
        assert client.get("/v1/campaigns").status_code == 503


def test_a_leader_that_was_cut_off_stands_by_and_another_leads(world):
    leads, _ = world.leads_and_stands_by("t1", "t2")
    with psycopg.connect(world.target, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
    world.wait(lambda: "leadership_lost" in world.log_path(leads).read_text(), "it noticed")
    with world.client_of("r2") as client:
        world.wait(lambda: world.rank(client).status_code == 200, "a decision")
    world.leads_and_stands_by("t1", "t2")
    assert world.processes[leads].poll() is None


def test_a_trainer_with_another_state_folder_does_not_lead(world):
    world.start(("t3", "trainer"), state="elsewhere")
    assert world.processes["t3"].wait(timeout=60.0) == 2
    del world.processes["t3"]
    assert re.search(
        r"share of mask epoch \d+, which all trainers share",
        world.log_path("t3").read_text(),
    )


def test_a_stopped_ranker_and_trainer_end_in_peace(world):
    for name in ("r1", "t1", "t2"):
        assert world.kill(name, signal.SIGTERM) == 0
        lines = world.log_path(name).read_text().strip().splitlines()
        events = [json.loads(line) for line in lines if line.startswith("{")]
        # Only the numbers of lines that were held back may come after it.
        while "unlogged" in events[-1]:
            events.pop()
        assert events[-1]["event"] == "process_stopped"


def test_one_process_that_does_both_takes_in_what_rankers_promise(world):
    for trainer in {"t1", "t2"} & world.processes.keys():  # the journal has one writer
        assert world.kill(trainer, signal.SIGTERM) == 0
    world.start(("b1", "both"))
    world.wait_ready("b1")
    names = [f"mixed-{secrets.token_hex(4)}" for _ in range(2)]
    with world.client_of("b1") as both, world.client_of("r2") as ranker:
        for name, (one, other) in zip(names, [(ranker, both), (both, ranker)], strict=True):
            world.wait(lambda o=one, n=name: world.rank(o, event_id=n).status_code == 200, "rank")
            first = world.rank(one, event_id=name)
            assert world.rank(other, event_id=name, user=world.town.users[2]).text == first.text
            path = f"/v1/events/{name}/reward"
            status = one.post(path, json={"value": 1.0}).json()["status"]
            assert status == ("queued" if one is ranker else "learnt")
            assert other.post(path, json={"value": 0.0}).status_code == 409
            assert other.post(path, json={"value": 1.0}).json()["status"] == "repeated"
    assert world.kill("b1", signal.SIGTERM) == 0


@pytest.mark.parametrize("role", [Role.RANKER, Role.TRAINER])
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "wanted a table [http], got none"),
        ('[http]\naddress = "127.0.0.1:0"\n', "wanted a journal_target in PostgreSQL"),
        (
            'journal_target = "state/log.db"\n[http]\naddress = "127.0.0.1:0"\n',
            "wanted a journal_target in PostgreSQL",
        ),
        (
            'journal_target = "postgresql://h/d"\n[http]\naddress = "127.0.0.1:0"\n',
            "wanted keys",
        ),
    ],
)
def test_a_role_needs_http_and_a_log_in_postgresql(tmp_path, role, text, sentence):
    config = tmp_path / "shop.toml"
    config.write_text(f'name = "shop"\nrole = "active"\naddress = "127.0.0.1:1"\n{text}')
    process = run_process(load_active(config), role=role, on_ready=print)
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        asyncio.run(process)


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_forty_kills_of_trainers_and_rankers_lose_and_double_nothing(tmp_path):
    names = ("t1", "t2", "r1", "r2")
    with ScaleWorld(tmp_path, top="snapshot_every = 300\n") as world:
        roles = {"t1": "trainer", "t2": "trainer", "r1": "ranker", "r2": "ranker"}
        world.start(*roles.items())
        world.local.start("bank")
        world.wait_ready("r1", "r2")
        visitors = [Visitor(world, number, ("r1", "r2")) for number in range(4)]
        for visitor in visitors:
            visitor.start()
        for kill in range(40):
            name = names[secrets.randbelow(4)]
            before = sum(len(visitor.rewards) for visitor in visitors)
            time.sleep(secrets.randbelow(1_000) / 1_000)
            world.kill(name)
            world.start((name, roles[name]))
            if kill % 4 == 3:
                world.wait(
                    lambda before=before: sum(len(v.rewards) for v in visitors) > before + 40,
                    "traffic",
                )
        for visitor in visitors:
            visitor.stop()
        world.wait_ready("r1", "r2")
        compare(world, visitors)
