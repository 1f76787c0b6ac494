"""The operator's commands against a running federation on secret shares."""

import shutil
from dataclasses import replace

import pytest
from live_commands import (
    changing,
    fails,
    newcomer,
    operators_roster,
    running,
    status,
    vfb,
    wait_for,
    works,
)

from vfbandits.protocol.roster import SharesRules

RULES = SharesRules(helper="bank", max_arms=3, window=2, decisions=3, posterior_scale=0.1)


READ = replace(
    RULES, posterior_scale=0.0, reads="widths", beta=0.5, accept_leak=("bank", "news"), max_arms=6
)
JUDGE = replace(RULES, helper="judge")
FORMS = {
    "per_arm": ({"shares": RULES}, 'policy = "lints"\nposterior_scale = 0.1\n'),
    "disjoint": ({"shares": READ, "layout": "disjoint"}, 'policy = "linucb"\nbeta = 0.5\n'),
    "no participant": ({"shares": JUDGE}, 'policy = "lints"\nposterior_scale = 0.1\n'),
}


@pytest.fixture(scope="module", params=FORMS)
def shared(request, tmp_path_factory):
    terms, model = FORMS[request.param]
    options = {"terms": {"bound": 8.0, **terms}, "model": model, "windows": 4}
    with running(tmp_path_factory.mktemp("shared"), **options) as federation:
        yield federation


def others(federation):
    """The members with a stream that stay."""
    return {"bank", "news", federation.roster.terms.shares.helper}


def deal(federation, roster, epoch, out, *options):
    """As the generator and the active participant do: windows go to the latter's folder."""
    keys = federation.folder / "generator" / "identity"
    works("masks", "deal", "--roster", roster, "--authority", federation.authority.certificate_path,
          "--key-dir", keys, "--epoch", epoch, "--out", out, "--windows", 4, *options)  # fmt: skip
    for path in out.glob("shop.*.deal"):
        shutil.copy(path, federation.folder / "shop" / "dealt")
    return out


def test_new_secrets_come_into_force_with_one_command(shared, tmp_path):
    rotate = ["masks", "rotate", "--config", shared.config("operator")]
    epoch = status(shared)["epoch"]
    roster = shared.folder / "operator" / "roster.signed"
    assert f"secret shares need envelopes that were dealt for epoch {epoch + 1}" in fails(*rotate)
    dealt = deal(shared, roster, epoch + 1, tmp_path / "dealt")
    helper = shared.roster.terms.shares.helper
    lost = dealt / f"{helper}.epoch-{epoch + 1}.secrets"
    kept = lost.read_bytes()
    lost.unlink()
    said = fails(*rotate, "--envelopes", dealt)
    assert f"{dealt} has no {lost.name}, the secrets of the helper {helper!r}" in said
    assert f"vfb masks deal --epoch {epoch + 1} writes them" in said
    lost.write_bytes(kept[:-1])
    assert f"the secrets of {helper!r}: " in fails(*rotate, "--envelopes", dealt)
    assert status(shared)["epoch"] == epoch
    lost.write_bytes(kept)
    assert works(*rotate, "--envelopes", dealt) == f"mask epoch {epoch + 1} is in force\n"
    assert status(shared)["epoch"] == epoch + 1
    assert "epoch" in works("preflight", "--config", shared.config("bank"))


def test_a_participant_comes_and_goes_in_three_steps(shared, tmp_path):
    add = ["federation", "add", newcomer(shared, "gym"), *changing(shared)]
    if shared.roster.terms.layout == "disjoint":
        said = fails(*add, "--roster-out", tmp_path / "next.signed")
        assert "'gym' has 3 features: its rows can be read" in said
        add.append("--accept-leak")
    dealt = in_three_steps(shared, add, tmp_path / "in")
    home = shared.folder / "gym"
    sent = shared.folder / "operator" / "gym" / "roster.signed"
    (home / "roster.signed").write_bytes(sent.read_bytes())
    problem = vfb("preflight", "--config", shared.config("gym"))
    assert problem.exit_code == 1
    assert "no gym.epoch-EPOCH.secrets" in " ".join(problem.stdout.split())
    (home / "dealt").mkdir()
    for path in dealt.glob("gym.*.secrets"):
        shutil.copy(path, home / "dealt")
    shared.start("gym")
    wait_for(shared, *others(shared), "gym")
    in_three_steps(shared, ["federation", "remove", "gym", *changing(shared)], tmp_path / "out")
    wait_for(shared, *others(shared))
    shared.stop("gym")
    helper = shared.roster.terms.shares.helper
    refused = fails("federation", "remove", helper, *changing(shared))
    assert f"got {helper!r}" in refused
    number = operators_roster(shared).number
    assert f"number {number} in " in works("preflight", "--config", shared.config(helper))


def in_three_steps(federation, command, folder):
    epoch, number = status(federation)["epoch"], operators_roster(federation).number
    before = federation.folder / "operator" / "roster.signed"
    said = works(*command, "--roster-out", folder / "next.signed")
    assert f"--epoch {epoch + 1}" in said
    assert f"--from {before}" in said
    dealt = deal(federation, folder / "next.signed", epoch + 1, folder / "dealt", "--from", before)
    said = works(*command, "--envelopes", dealt)
    assert f"roster number {number + 1} is in force, mask epoch {epoch + 1}" in said
    if "add" in command:
        assert f"send it gym.epoch-{epoch + 1}.secrets too" in said
    return dealt
