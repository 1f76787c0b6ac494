"""The operator's commands against a running federation with dense masks and secure sums."""

import asyncio
import json

import pytest
from live_commands import (
    changing,
    decides_as_a_central_bandit,
    fails,
    newcomer,
    operators_roster,
    running,
    status,
    wait_for,
    works,
)

from vfbandits.admin.session import connect
from vfbandits.errors import IdentityError
from vfbandits.protocol.application import DecideRequest


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    terms = {"mask": "dense", "aggregation": "secure", "layout": "outer", "arm_dim": 2}
    with running(tmp_path_factory.mktemp("dense"), terms=terms, journal=False) as federation:
        yield federation


def test_a_running_federation_decides_as_a_central_bandit(dense):
    decides_as_a_central_bandit(dense)


def test_the_table_of_a_live_run_has_what_people_want_to_know(dense):
    text = works("parity", "--config", dense.config("app"), "--rounds", 12, "--trial", 5)
    for wanted in ("12 of 12", "first difference", "none", "score difference", "latency p99",
                   "bytes per decision", "missing participant", "trial 5, mask epoch",
                   "outer, dense mask, secure aggregation"):  # fmt: skip
        assert wanted in text


def test_the_real_model_is_left_alone(dense):
    before = status(dense)["waiting_for_reward"]
    works("parity", "--config", dense.config("app"), "--rounds", 5)
    assert status(dense)["waiting_for_reward"] == before


def test_the_mask_generator_sees_the_epoch_that_it_deals_after_and_no_counts(dense):
    config = dense.config("generator")
    document = json.loads(works("federation", "status", "--config", config, "--json"))
    assert document["epoch"] == status(dense)["epoch"]
    assert not {"counts", "campaigns", "model", "link_changes"} & document.keys()
    assert not any("asks" in facts for facts in document["participants"].values())
    assert "ready: " in works("preflight", "--config", config)


def test_the_mask_generator_may_look_and_nothing_else(dense):
    async def decide():
        async with connect(dense.config("generator"), roles=["generator"]) as session:
            request = DecideRequest(dense.world.users[0], ("tea", "mate"))
            await session.client.decide(request, timeout_s=60.0)

    with pytest.raises(IdentityError, match="who is not in it"):
        asyncio.run(decide())


def deal(federation, roster, epoch, out):
    keys = federation.folder / "generator" / "identity"
    works("masks", "deal", "--roster", roster, "--authority", federation.authority.certificate_path,
          "--key-dir", keys, "--epoch", epoch, "--out", out)  # fmt: skip
    return out


def test_dense_masks_are_rotated_with_envelopes_of_the_next_epoch(dense, tmp_path):
    rotate = ["masks", "rotate", "--config", dense.config("operator")]
    epoch = status(dense)["epoch"]
    roster = dense.folder / "operator" / "roster.signed"
    assert f"dealt for epoch {epoch + 1}" in fails(*rotate)
    assert "missing: shop, bank, news" in fails(*rotate, "--envelopes", tmp_path)
    early = deal(dense, roster, epoch + 2, tmp_path / "early")
    assert "missing: shop, bank, news" in fails(*rotate, "--envelopes", early)
    dealt = deal(dense, roster, epoch + 1, tmp_path / "dealt")
    assert works(*rotate, "--envelopes", dealt) == f"mask epoch {epoch + 1} is in force\n"
    assert status(dense)["epoch"] == epoch + 1
    works("parity", "--config", dense.config("app"), "--rounds", 10)


def test_envelopes_of_another_roster_are_refused_before_anything_is_asked(dense, tmp_path):
    file = newcomer(dense, "zoo")
    epoch = status(dense)["epoch"]
    add = ["federation", "add", file, *changing(dense)]
    assert "vfb masks deal, then --envelopes" in fails(*add)
    roster = dense.folder / "operator" / "roster.signed"
    dealt = deal(dense, roster, epoch + 1, tmp_path / "dealt")
    assert "missing: zoo" in fails(*add, "--envelopes", dealt)
    said = fails(*add, "--envelopes", dealt, "--roster-out", tmp_path / "next")
    assert "wanted --roster-out (before masks are dealt) or --envelopes (after), got both" in said
    (dealt / f"zoo.epoch-{epoch + 1}.envelope").write_bytes(
        (dealt / f"bank.epoch-{epoch + 1}.envelope").read_bytes()
    )
    assert "this envelope has another roster" in fails(*add, "--envelopes", dealt)
    assert status(dense)["epoch"] == epoch


def test_with_dense_masks_a_participant_comes_and_goes_in_three_steps(dense, tmp_path):
    file = newcomer(dense, "gym")
    in_three_steps(dense, ["federation", "add", file, *changing(dense)], tmp_path / "in")
    sent = dense.folder / "operator" / "gym" / "roster.signed"
    (dense.folder / "gym" / "roster.signed").write_bytes(sent.read_bytes())
    dense.start("gym")
    wait_for(dense, "bank", "news", "gym")
    report = json.loads(works("parity", "--config", dense.config("app"), "--rounds", 20, "--json"))
    assert (report["dim"], report["decisions_equal"], report["incomplete_rounds"]) == (12, 20, 0)
    in_three_steps(dense, ["federation", "remove", "gym", *changing(dense)], tmp_path / "out")
    wait_for(dense, "bank", "news")
    dense.stop("gym")
    works("parity", "--config", dense.config("app"), "--rounds", 10)


def in_three_steps(federation, command, folder):
    epoch, number = status(federation)["epoch"], operators_roster(federation).number
    said = works(*command, "--roster-out", folder / "next.signed")
    assert f"--epoch {epoch + 1}" in said
    assert operators_roster(federation).number == number
    dealt = deal(federation, folder / "next.signed", epoch + 1, folder / "dealt")
    said = works(*command, "--envelopes", dealt)
    assert f"roster number {number + 1} is in force, mask epoch {epoch + 1}" in said
    assert operators_roster(federation).number == number + 1
