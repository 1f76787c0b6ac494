"""HTTP on secret shares in layouts with one row of a user for all arms: a plain bandit's arms."""

import pytest
from http_world import WIDTHS, HttpWorld

from vfbandits import Bandit, LinGreedy
from vfbandits.protocol.roster import SharesRules, Terms

RULES = SharesRules(helper="notary", max_arms=5, window=4, decisions=6, reads="means")
MODEL = 'policy = "lingreedy"\nepsilon = 0.0\nseed = 0\n'
ARM_DIM = 2


def arms_of(world, layout):
    """The arms as requests have them, with features in layout "outer"."""
    if layout == "disjoint":
        return list(world.town.arms)
    return [
        {"id": arm, "features": [0.1 + 0.2 * number, 0.6 - 0.2 * number]}
        for number, arm in enumerate(world.town.arms)
    ]


@pytest.mark.parametrize("layout", ["disjoint", "outer"])
def test_ranks_and_rewards_over_http_are_those_of_a_plain_bandit(tmp_path, layout):
    arm_dim = ARM_DIM if layout == "outer" else 0
    terms = Terms(bound=1.0, layout=layout, arm_dim=arm_dim, intercept=True, shares=RULES)
    options = {"arm_dim": arm_dim} if arm_dim else {}
    dim = sum(WIDTHS.values())
    twin = Bandit(LinGreedy(0.0), dim=dim, layout=layout, intercept=True, **options)
    with HttpWorld(tmp_path, terms=terms, model=MODEL) as world, world.client() as client:
        arms, names = arms_of(world, layout), tuple(WIDTHS)
        chosen = set()
        for number in range(18):
            user = number % len(world.town.users)
            offered = arms[number % 2 :]
            body = {"user": world.town.users[user], "arms": offered, "event_id": f"e{number}"}
            ranked = client.post("/v1/rank", json=body).json()
            assert (ranked["contributors"], ranked["degraded"]) == ([*names], False)
            ids = [one if layout == "disjoint" else one["id"] for one in offered]
            known = {}
            if layout == "outer":
                known = {"arm_features": [one["features"] for one in offered]}
            row = world.town.contexts(user, names)[0]
            decision = twin.decide(row, arms=ids, **known)
            assert (number, ranked["arm"]) == (number, decision.arm)
            assert {one["score"] for one in ranked["ranking"]} == {None}
            value = round(float(world.town.expected[user, world.town.arms.index(decision.arm)]), 3)
            answer = client.post(f"/v1/events/e{number}/reward", json={"value": value})
            assert answer.json()["status"] == "learnt"
            twin.reward(decision, value)
            chosen.add(decision.arm)
        assert len(chosen) > 1
        assert client.get("/v1/model").json()["layout"] == layout
        refused = client.post("/v1/rank", json={"user": "user-0", "arms": too_many(arms, layout)})
        assert refused.status_code == 422
        metrics = client.get("/metrics").text
        assert 'vfb_shares_decisions_total{outcome="released"} 18.0' in metrics
        assert "vfb_shares_helper_away 0.0" in metrics
        assert client.get("/readyz").json()["status"] == "ok"


def too_many(arms, layout):
    """An arm that has no block, or one whose features are too long."""
    if layout == "disjoint":
        return [*arms[1:], "another"]
    return [{"id": "long", "features": [0.9, 0.9]}]
