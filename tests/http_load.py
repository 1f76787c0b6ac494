"""Applications that call a server without pause and remember what it acknowledged.

What a visitor does next is drawn; what the server said is kept in a ledger that all visitors share,
to be held against the log of events afterwards (``check_against_log``).
"""

import contextlib
import http.client
import json
import random
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec

from vfbandits.campaign.events import Activated, Configured, Decided, Reported, Rewarded

DEFAULT, SUMS = "default", "sums"
SUM_WAIT_S = 1.5
# A second campaign that sums, draws at random and ends its waits while the test goes on.
SECOND_CAMPAIGN = f"""
[campaigns.{SUMS}]
aggregation = "sum"
reward_wait_s = {SUM_WAIT_S}
holdback = 0.1
[campaigns.{SUMS}.model]
policy = "lints"
posterior_scale = 0.5
seed = 3
"""


class RankedOne(msgspec.Struct):
    """One result of a batch, its answer as the bytes that came."""

    answer: msgspec.Raw


class Ranked(msgspec.Struct):
    """The answer to a batch of decisions."""

    results: list[RankedOne]


class LostError(Exception):
    """No answer came: the deed may be done or not."""


class Wire:
    """One connection, made again when it was cut."""

    def __init__(self, port=0, *, headers=(), timeout_s=30.0, link=None):
        self._headers = {"content-type": "application/json", **dict(headers)}
        self._link = link or http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)

    def call(self, method, path, body=None):
        """The status and the body of the answer."""
        self.send(method, path, body)
        return self.receive()

    def send(self, method, path, body=None):
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        with self._lost():
            self._link.request(method, path, data, self._headers)

    def receive(self):
        with self._lost():
            answer = self._link.getresponse()
            return answer.status, answer.read()

    @contextlib.contextmanager
    def _lost(self):
        try:
            yield
        except (OSError, http.client.HTTPException) as error:
            self._link.close()
            raise LostError(str(error)) from error

    def post(self, path, body=None):
        return self.call("POST", path, body)

    def get(self, path):
        return self.call("GET", path)

    def close(self):
        self._link.close()


def prefix(campaign):
    return "/v1" if campaign == DEFAULT else f"/v1/campaigns/{campaign}"


@dataclass
class Ledger:
    """What the server acknowledged.  Events are (campaign, id), rewards (campaign, id, reward id).

    ``intended`` has the one value with which each reward is sent, however often.
    """

    answers: dict[tuple[str, str], bytes] = field(default_factory=dict)
    shown: list[tuple[str, str]] = field(default_factory=list)
    held: list[tuple[str, str]] = field(default_factory=list)
    activated: set[tuple[str, str]] = field(default_factory=set)
    intended: dict[tuple[str, str, str], float] = field(default_factory=dict)
    rewards: dict[tuple[str, str, str], set[str]] = field(default_factory=dict)
    configured: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def expect(self, fact, sentence):
        if not fact:
            self.wrong.append(sentence)

    def answered(self, campaign, answer, *, activate=True):
        """A decision was acknowledged; one that was before must be the same."""
        event = (campaign, json.loads(answer)["event_id"])
        before = self.answers.setdefault(event, answer)
        self.expect(before == answer, f"{event}: {before!r} became {answer!r}")
        (self.shown if activate else self.held).append(event)


class Visitor(threading.Thread):
    """One application: calls until it is told to stop."""

    def __init__(self, number, port, town, ledger, stop, *, headers=(), seed=0):
        super().__init__(name=f"visitor-{number}", daemon=True)
        self._wire = Wire(port, headers=headers)
        self._town = town
        self._ledger = ledger
        self._stopped = stop
        self._rng = random.Random(f"{seed}-{number}")  # noqa: S311  (which call comes next)
        self._n_own = 0
        self._unsure: list[tuple[str, dict[str, object]]] = []

    def run(self):
        deeds = [self.rank] * 6 + [self.reward] * 6 + [self.repeat_reward, self.ask_again] * 2
        deeds += [self.activate, self.contradict, self.batch, self.configure]
        while not self._stopped.is_set():
            deed = self._rng.choice(deeds)
            try:
                deed()
            except LostError:
                self._ledger.lost[deed.__name__] += 1
                time.sleep(0.1)
            else:
                self._ledger.calls[deed.__name__] += 1
        self._wire.close()

    def rank(self):
        """Something new, or again what was not answered."""
        if self._unsure:
            campaign, body = self._unsure.pop()
        else:
            campaign, body = self._rng.choice((DEFAULT, SUMS)), self._request()
        if "event_id" in body:
            self._unsure.append((campaign, body))
        status, answer = self._wire.post(f"{prefix(campaign)}/rank", body)
        if "event_id" in body:
            self._unsure.pop()
        self._take(status, answer, campaign, body)

    def ask_again(self):
        """The same id gets the same bytes, whoever asks."""
        event = self._any(self._ledger.shown)
        if event is not None:
            body = {**self._request(), "event_id": event[1], "activate": True}
            status, answer = self._wire.post(f"{prefix(event[0])}/rank", body)
            self._take(status, answer, event[0], body)

    def reward(self):
        event = self._any(self._ledger.shown)
        if event is not None:
            name = self._rng.choice(("", "", f"r-{self._rng.randrange(3)}"))
            self._send_reward((*event, name))

    def repeat_reward(self):
        key = self._any(list(self._ledger.rewards))
        if key is not None:
            self._send_reward(key)

    def contradict(self):
        """Another value under the same name is refused."""
        key = self._any(list(self._ledger.rewards))
        if key is not None:
            value = self._ledger.intended[key] + 1.0
            status, answer = self._wire.post(*_reward_call(key, value))
            self._ledger.expect(status == 409, f"contradiction of {key}: {status} {answer!r}")

    def activate(self):
        event = self._any(self._ledger.held)
        if event is not None:
            campaign, event_id = event
            status, answer = self._wire.post(f"{prefix(campaign)}/events/{event_id}/activate")
            self._ledger.expect(status == 200, f"activate {event}: {status} {answer!r}")
            self._ledger.activated.add(event)
            self._ledger.shown.append(event)

    def batch(self):
        """Decisions, then rewards for them."""
        campaign = self._rng.choice((DEFAULT, SUMS))
        bodies = [{**self._request(), "event_id": self._own_id(), "activate": True}
                  for _ in range(3)]  # fmt: skip
        status, answer = self._wire.post(f"{prefix(campaign)}/rank/batch", {"requests": bodies})
        self._ledger.expect(status == 200, f"batch: {status} {answer!r}")
        for result in msgspec.json.decode(answer, type=Ranked).results:
            self._ledger.answered(campaign, bytes(result.answer))
        rewards = [{"event_id": body["event_id"], "value": self._rng.random()} for body in bodies]
        for reward in rewards:
            key = (campaign, reward["event_id"], "")
            reward["value"] = self._ledger.intended.setdefault(key, reward["value"])
        status, answer = self._wire.post(f"{prefix(campaign)}/rewards/batch", {"rewards": rewards})
        self._ledger.expect(status == 200, f"batch: {status} {answer!r}")
        for result in json.loads(answer)["results"]:
            told = result["answer"]
            self._note_reward((campaign, told["event_id"], ""), told["status"])

    def configure(self):
        change = {"holdback": round(self._rng.random() / 5.0, 6)}
        status, answer = self._wire.call("PATCH", f"{prefix(SUMS)}/config", change)
        self._ledger.expect(status == 200, f"config: {status} {answer!r}")
        self._ledger.configured[SUMS] += 1

    def _request(self):
        arms = list(self._town.arms)
        body = {"user": self._rng.choice(self._town.users), "arms": arms}
        if self._rng.random() < 0.6:
            body["event_id"] = self._own_id()
        if self._rng.random() < 0.2:
            body["activate"] = False
        return body

    def _own_id(self):
        self._n_own += 1
        return f"{self.name}-{self._n_own}"

    def _take(self, status, answer, campaign, body):
        self._ledger.expect(status == 200, f"rank {body}: {status} {answer!r}")
        if status == 200:
            self._ledger.answered(campaign, answer, activate=body.get("activate", True))

    def _send_reward(self, key):
        value = self._ledger.intended.setdefault(key, round(self._rng.gauss(0.0, 1.0), 6))
        was_known = key in self._ledger.rewards
        status, answer = self._wire.post(*_reward_call(key, value))
        if status == 200:
            told = json.loads(answer)["status"]
            self._ledger.expect(not was_known or told == "repeated", f"{key} is {told} again")
            self._note_reward(key, told)
        else:
            self._ledger.wrong.append(f"reward {key}: {status} {answer!r}")

    def _note_reward(self, key, told):
        self._ledger.rewards.setdefault(key, set()).add(told)

    def _any(self, things):
        return self._rng.choice(things) if things else None


def _reward_call(key, value):
    campaign, event_id, name = key
    body = {"value": value, "reward_id": name} if name else {"value": value}
    return f"{prefix(campaign)}/events/{event_id}/reward", body


@contextmanager
def visitors(world, ledger, *, n=6, seed=0, headers=()):
    """So many visitors at work, until the block ends."""
    stop = threading.Event()
    many = [
        Visitor(k, world.http_port, world.town, ledger, stop, headers=headers, seed=seed)
        for k in range(n)
    ]
    for visitor in many:
        visitor.start()
    try:
        yield many
    finally:
        stop.set()
        for visitor in many:
            visitor.join(30.0)
            assert not visitor.is_alive()


def check_against_log(events, campaign, ledger):
    """Everything that was acknowledged is in the log, once; and nothing else is there twice."""
    decided = Counter(e.event_id for e in events if isinstance(e, Decided))
    rewards = Counter(
        (e.event_id, e.reward_id)
        for e in events
        if isinstance(e, Rewarded | Reported) and e.reward_id is not None
    )
    learnt = Counter(e.event_id for e in events if isinstance(e, Rewarded))
    activated = Counter(e.event_id for e in events if isinstance(e, Activated))
    for counted in (decided, rewards, learnt, activated):
        assert {key: n for key, n in counted.items() if n > 1} == {}
    answers = {e.event_id: e.answer for e in events if isinstance(e, Decided)}
    for (where, event_id), answer in ledger.answers.items():
        if where == campaign:
            assert answers[event_id] == answer
    values = {
        (e.event_id, e.reward_id): e.value for e in events if isinstance(e, Rewarded | Reported)
    }
    acknowledged = {key[1:]: ledger.intended[key] for key in ledger.rewards if key[0] == campaign}
    assert acknowledged == {key: values.get(key) for key in acknowledged}
    shown = {event_id for where, event_id in ledger.activated if where == campaign}
    assert shown <= set(activated)
    n_configured = sum(isinstance(e, Configured) for e in events)
    assert ledger.configured[campaign] <= n_configured
    assert n_configured <= ledger.configured[campaign] + ledger.lost["configure"]
    return len(acknowledged), sum(learnt.values())
