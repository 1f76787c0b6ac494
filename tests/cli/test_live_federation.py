"""The operator's commands against running federations with blockwise masks."""

import asyncio
import json

import pytest
from live_commands import (
    WIDTHS,
    changing,
    decides_as_a_central_bandit,
    fails,
    newcomer,
    operators_roster,
    running,
    status,
    vfb,
    wait_for,
    works,
)
from live_world import Session

from vfbandits import LinTS
from vfbandits.pki import approve, create_authority, create_request, load_roster
from vfbandits.protocol.application import DecideRequest, RewardRequest
from vfbandits.settings.services import load_passive

LINTS = 'policy = "lints"\nposterior_scale = 0.1\nseed = 7\n'


@pytest.fixture(scope="module")
def blockwise(tmp_path_factory):
    with running(tmp_path_factory.mktemp("blockwise"), model=LINTS) as federation:
        yield federation


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Without TLS, and with the fewest participants."""
    options = {
        "terms": {"layout": "disjoint", "intercept": True},
        "widths": {"shop": 2, "bank": 2},
        "insecure": True,
        "journal": False,
        "model": 'policy = "lingreedy"\nepsilon = 0.2\nridge = 2.0\ndiscount = 0.9\nfloor = 0.1\n',
    }
    with running(tmp_path_factory.mktemp("plain"), **options) as federation:
        yield federation


# --- how it is --------------------------------------------------------------------------------


def test_status_tells_who_is_there_and_what_they_did(blockwise):
    works("parity", "--config", blockwise.config("app"), "--rounds", 3)
    text = works("federation", "status", "--config", blockwise.config("operator"))
    assert "local: roster number" in text
    assert "blockwise masks, plain sums, layout per_arm, 9 features" in text
    (row,) = [line.split() for line in text.splitlines() if line.split()[:1] == ["bank"]]
    assert row[1:4] == ["3", "connected", "1"]
    assert int(row[4]) >= 3
    assert "decisions pending" in text
    document = status(blockwise)
    assert document["participants"]["news"]["connected"] is True
    protocols = {name: facts["protocol"] for name, facts in document["participants"].items()}
    assert protocols == {"shop": None, "bank": 1, "news": 1}
    assert document["model"]["policy"]["name"] == "lints"


def test_a_passive_participant_sees_the_links_of_all_and_counts_of_its_own(blockwise):
    """How much others are asked, and what is decided and learnt, is no business of its owner."""
    works("parity", "--config", blockwise.config("app"), "--rounds", 3)
    asking = ["federation", "status", "--config", blockwise.config("bank")]
    document = json.loads(works(*asking, "--json"))
    shown = {"federation", "roster", "epoch", "terms", "at", "seconds_up", "participants"}
    assert document.keys() == shown
    own, other = (document["participants"][name] for name in ("bank", "news"))
    assert own["asks"] >= 3
    assert other.keys() == {"width", "connected", "circuit", "protocol", "since"}
    rows = {
        line.split()[0]: line.split()[1:] for line in works(*asking).splitlines() if line.split()
    }
    assert rows["news"] == ["2", "connected", "1", "–", "–", "–", "–"]
    assert int(rows["bank"][3]) >= 3
    assert "decisions are not shown to you" in works(*asking)


def test_the_active_participant_sees_what_an_operator_sees(blockwise):
    document = json.loads(
        works("federation", "status", "--config", blockwise.config("shop"), "--json")
    )
    assert document.keys() == status(blockwise).keys()


def test_only_an_operator_may_change_anything(blockwise):
    said = fails("masks", "rotate", "--config", blockwise.config("app"))
    assert "wanted the file of role operator, got 'application'" in said


def test_nobody_at_the_address_is_one_line(blockwise, tmp_path):
    text = blockwise.config("app").read_text().replace(blockwise.address, "127.0.0.1:1")
    path = blockwise.folder / "app" / "nobody.toml"
    path.write_text(text)
    said = fails("federation", "status", "--config", path)
    assert "no connection to 127.0.0.1:1: nobody listens there" in said


# --- parity -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["blockwise", "plain"])
def test_a_running_federation_decides_as_a_central_bandit(request, name):
    decides_as_a_central_bandit(request.getfixturevalue(name))


def test_a_trial_is_run_once(blockwise):
    flags = ["parity", "--config", blockwise.config("app"), "--rounds", 2, "--trial", 77]
    works(*flags)
    assert "was trial 77 run before?" in fails(*flags)


def test_a_federation_that_is_not_what_it_says_ends_with_1(blockwise):
    """Somebody else has taught the trial's model something, which the central one never saw."""
    flags = ["parity", "--config", blockwise.config("app"), "--trial", 4_000_000_000]
    asyncio.run(teach(blockwise, 4_000_000_000))
    done = vfb(*flags, "--rounds", 40)
    assert done.exit_code == 1
    assert "40 of 40" not in done.stdout
    assert "counted from 0" in done.stdout


async def teach(federation, trial):
    async with Session(federation.world, federation, None) as session:
        request = DecideRequest("somebody", ("arm-0", "arm-1"), trial=trial)
        reply = await session.client.decide(request, timeout_s=60.0)
        reward = RewardRequest(reply.event_id, 9.0, trial)
        await session.client.reward(reward, timeout_s=60.0)


def test_lints_is_not_compared_where_it_draws_in_parameter_space(blockwise):
    said = fails("parity", "--config", blockwise.config("app"), "--arms", 10)
    assert "agree in distribution only" in said
    assert "Wanted at most 9 arms, got 10" in said


# --- preflight --------------------------------------------------------------------------------


def test_preflight_of_those_that_dial_finds_the_active_participant(blockwise, plain):
    for federation in (blockwise, plain):
        for name in ("bank", "app", "operator"):
            done = vfb("preflight", "--config", federation.config(name))
            assert done.exit_code == 0, done.stdout
            assert "ready: " in done.stdout
            assert "0 problems" in done.stdout


def test_preflight_of_a_running_active_participant_says_that_it_is_running(blockwise):
    done = vfb("preflight", "--config", blockwise.config("shop"), "--json")
    report = json.loads(done.stdout)
    assert (done.exit_code, report["ready"]) == (1, False)
    problems = {f["what"]: f["says"] for f in report["findings"] if f["state"] == "problem"}
    assert set(problems) == {"journal", "port"}
    assert all("vfb serve active" in text for text in problems.values())
    assert (vfb("preflight", "--config", blockwise.config("shop"))).stdout.count("problem ") == 2


# --- changes ----------------------------------------------------------------------------------


def test_rotation_keeps_what_was_learnt(blockwise):
    world, policy = blockwise.world, LinTS(posterior_scale=0.1)

    async def play(session, rounds):
        async with session:
            await session.play(rounds)

    session = Session(world, blockwise, world.central(policy, seed=7))
    asyncio.run(play(session, 10))
    epoch = status(blockwise)["epoch"]
    said = works("masks", "rotate", "--config", blockwise.config("operator"))
    assert said == f"mask epoch {epoch + 1} is in force\n"
    assert status(blockwise)["epoch"] == epoch + 1
    asyncio.run(play(session, 10))
    assert session.is_lossless
    assert set(session.contributors[-1]) == set(WIDTHS)


def test_a_participant_that_is_away_holds_a_rotation_up(blockwise):
    epoch = status(blockwise)["epoch"]
    blockwise.stop("news")
    try:
        said = fails("masks", "rotate", "--config", blockwise.config("operator"))
    finally:
        blockwise.start("news")
    assert "disconnected: news" in said
    wait_for(blockwise, "bank", "news")
    assert status(blockwise)["epoch"] == epoch


def test_a_participant_comes_and_goes(blockwise):
    file = newcomer(blockwise, "gym")
    number, epoch = operators_roster(blockwise).number, status(blockwise)["epoch"]
    before = (blockwise.folder / "operator" / "roster.signed").read_bytes()
    said = works("federation", "add", file, *changing(blockwise))
    assert f"roster number {number + 1} is in force, mask epoch {epoch + 1}" in said
    assert status(blockwise)["roster"]["digest"] == operators_roster(blockwise).digest

    sent = blockwise.folder / "operator" / "gym"
    assert str(sent) in said
    text = (sent / "gym.toml").read_text().replace("columns = []", 'columns = ["f0", "f1", "f2"]')
    (sent / "gym.toml").write_text(text)
    assert load_passive(sent / "gym.toml").address == blockwise.address
    (sent / "roster.signed").rename(blockwise.folder / "gym" / "roster.signed")
    blockwise.start("gym")
    wait_for(blockwise, "bank", "news", "gym")
    assert vfb("preflight", "--config", blockwise.config("gym")).exit_code == 0
    report = json.loads(
        works("parity", "--config", blockwise.config("app"), "--rounds", 20, "--json")
    )
    assert (report["dim"], report["decisions_equal"], report["incomplete_rounds"]) == (12, 20, 0)
    assert vfb("preflight", "--config", blockwise.config("app")).stdout.count("warning ") == 1

    assert "'gym' is in the roster already" in fails(
        "federation", "add", file, *changing(blockwise)
    )
    answer_was_lost(blockwise, file, before)

    said = works("federation", "remove", "gym", *changing(blockwise))
    assert f"roster number {number + 2} is in force, mask epoch {epoch + 2}" in said
    wait_for(blockwise, "bank", "news")
    assert "gym" not in status(blockwise)["participants"]
    blockwise.stop("gym")
    stale(blockwise, before)


def answer_was_lost(federation, file, older):
    """The operator still has the older roster: asking again brings the newer one."""
    path = federation.folder / "operator" / "roster.signed"
    number = operators_roster(federation).number
    path.write_bytes(older)
    said = works("federation", "add", file, *changing(federation))
    assert f"roster number {number} was already in force" in said
    assert operators_roster(federation).number == number


def stale(federation, older):
    path = federation.folder / "operator" / "roster.signed"
    newest = path.read_bytes()
    path.write_bytes(older)
    said = fails("federation", "remove", "bank", *changing(federation))
    assert "roster: the active participant has number" in said
    assert path.read_bytes() == older
    path.write_bytes(newest)


def test_who_is_not_there_cannot_be_removed(blockwise):
    said = fails("federation", "remove", "nobody", *changing(blockwise))
    assert "wanted one of the passive participants bank, news, got 'nobody'" in said


def test_only_passive_participants_are_added(blockwise):
    request = create_request(
        blockwise.folder / "web" / "identity", federation="local", name="web", role="application"
    )
    approval = approve(request, blockwise.authority.folder)
    said = fails("federation", "add", approval.member_path, *changing(blockwise))
    assert "wanted a passive participant, got application 'web'" in said


def test_another_authority_cannot_change_anything(blockwise, tmp_path):
    create_authority(tmp_path / "ca", "local")
    flags = ["--config", blockwise.config("operator"), "--authority", tmp_path / "ca"]
    said = fails("federation", "remove", "bank", *flags)
    assert "wanted the authority of 'operator', with the key " in said
    assert f"got {tmp_path / 'ca'} with the key " in said


def test_with_blockwise_masks_a_roster_can_be_looked_at_first(blockwise, tmp_path):
    out = tmp_path / "next.signed"
    said = works("federation", "remove", "news", *changing(blockwise), "--roster-out", out)
    assert "run this command again without --roster-out" in said
    after = load_roster(out, blockwise.authority.certificate_path)
    assert after.number == operators_roster(blockwise).number + 1
    assert status(blockwise)["roster"]["number"] == after.number - 1
