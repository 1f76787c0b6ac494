"""A Unix time sent as a feature is refused with 422 that names it; the campaign goes on."""

import pytest
from http_world import HttpWorld

from vfbandits.protocol.roster import Terms

NOW = 1_790_000_000.0
OUTER = Terms("blockwise", "plain", "outer", 2)


def test_features_of_arms_and_of_the_user_are_held_to_the_terms_bound(tmp_path):
    with HttpWorld(tmp_path, terms=OUTER) as world, world.client() as client:

        def arms(first, *, second=0.5):
            return [
                {"id": "tea", "features": [1.0, 0.0]},
                {"id": "milk", "features": [first, second]},
            ]

        def rank(**more):
            return client.post("/v1/rank", json={"user": world.town.users[0], **more})

        said = [
            (rank(arms=arms(1.0), features=[0.1, NOW, 0.2]), "own block", "feature 1 of row 0"),
            (rank(arms=arms(NOW)), "arm features", "feature 0 of row 1"),
            (rank(arms=arms(1.0, second=-1e99)), "arm features", "feature 1 of row 1"),
        ]
        for answer, what, where in said:
            assert answer.status_code == 422, answer.text
            assert answer.json()["type"].endswith("invalid-context")
            detail = answer.json()["detail"]
            assert detail.startswith(f"{what}: features must be at most 64 in size")
            assert where in detail
            assert "1790000000" not in detail
        too_few = [
            (
                rank(arms=arms(1.0), features=[0.1, 0.2]),
                "features of 'shop': wanted 3 numbers, got 2",
            ),
            (rank(arms=["tea", "milk"]), "arm features: wanted 2 numbers in each of 2 rows, got 0"),
        ]
        for answer, text in too_few:
            assert answer.status_code == 422, answer.text
            assert answer.json()["detail"] == f"{text} numbers"
        good = {"user": world.town.users[0], "arms": arms(1.0)}
        body = {"requests": [good, {**good, "features": [NOW, 0.0, 0.0]}, good]}
        results = client.post("/v1/rank/batch", json=body).json()["results"]
        assert [one.get("problem") is None for one in results] == [True, False, True]
        assert rank(arms=arms(1.0), features=[64.0, -64.0, 0.0]).status_code == 200
        scraped = client.get("/metrics").text
        assert 'vfb_model_repairs_total{campaign="default"} 0.0' in scraped


@pytest.mark.parametrize("value", [1e9, 65.0])
def test_own_rows_of_arms_are_held_to_it_as_well(tmp_path, value):
    with HttpWorld(tmp_path) as world, world.client() as client:
        rows = [{"id": arm, "features": [0.0, 0.0, value]} for arm in world.town.arms]
        answer = world.rank(client, arms=rows)
        assert answer.status_code == 422, answer.text
        assert "at feature 2 of row 0" in answer.json()["detail"]
        assert world.rank(client).status_code == 200
