"""``vfb federation init``: from approved members to folders, each with a file that loads."""

import json
from zipfile import ZipFile

import pytest
from members import GENERATOR, join
from typer.testing import CliRunner

from vfbandits.cli.main import app
from vfbandits.errors import ConfigError
from vfbandits.pki import Identity, approve, create_authority, create_request, load_roster
from vfbandits.protocol.roster import SharesRules, Terms
from vfbandits.settings.services import load_active, load_client, load_helper, load_passive

MEMBERS = [
    {"name": "shop", "role": "active", "width": 4},
    {"name": "bank", "role": "passive", "width": 3},
    {"name": "news", "role": "passive", "width": 2, "scaling": "ab" * 32},
    {"name": "web", "role": "application"},
    {"name": "chief", "role": "operator"},
]
SHARED = ("--protection", "shares", "--helper", "bank")


@pytest.fixture
def ca(tmp_path):
    create_authority(tmp_path / "ca", "shops")
    for terms in MEMBERS:
        join(tmp_path, tmp_path / "ca", {"federation": "shops", **terms})
    return tmp_path / "ca"


def run(*words, **environment):
    words = ["federation", "init", *(str(word) for word in words)]
    return CliRunner().invoke(app, words, env={"COLUMNS": "200", **environment})


def init(ca, *more, **environment):
    flags = ["--authority", ca, "--address", "ap.example:7443", "--out", ca.parent / "out"]
    return run(*flags, *more, **environment)


def text_of(ca, name):
    return (ca.parent / "out" / name / f"{name}.toml").read_text(encoding="utf-8")


def roster_of(ca, name):
    return load_roster(ca.parent / "out" / name / "roster.signed", ca / "authority.crt")


def test_each_member_gets_the_same_signed_roster_and_a_table_says_who_is_in_it(ca):
    done = init(ca)
    assert done.exit_code == 0, done.output
    roster = roster_of(ca, "shop")
    assert (roster.federation, roster.number, roster.terms) == (
        "shops",
        1,
        Terms(users="pseudonyms"),
    )
    assert [member.name for member in roster] == ["shop", "bank", "news", "web", "chief"]
    assert all(roster_of(ca, member.name) == roster for member in roster)
    for member in roster:
        assert str(ca.parent / "out" / member.name) in done.stdout
    assert "vfb serve active --config shop.toml" in done.stdout
    assert "masks deal" not in done.stdout


def test_the_active_participants_file_loads_as_it_is(ca):
    assert init(ca, "--listen", "0.0.0.0:7443").exit_code == 0
    settings = load_active(ca.parent / "out" / "shop" / "shop.toml")
    assert settings.address == "0.0.0.0:7443"
    assert settings.roster == ca.parent / "out" / "shop" / "roster.signed"
    assert settings.features is None
    assert settings.journal
    assert settings.envelopes is None


@pytest.mark.parametrize("layout", ["per_arm", "disjoint"])
def test_a_passive_participants_file_loads_once_its_columns_are_named(ca, layout):
    assert init(ca, "--layout", layout).exit_code == 0
    path = ca.parent / "out" / "bank" / "bank.toml"
    assert "names of the 3 columns" in text_of(ca, "bank")
    path.write_text(text_of(ca, "bank").replace("columns = []", 'columns = ["a", "b", "c"]'))
    settings = load_passive(path)
    assert settings.address == "ap.example:7443"
    assert settings.features.key == (("user", "arm") if layout == "per_arm" else ("user",))
    assert settings.features.columns == ("a", "b", "c")


def test_a_participant_that_pinned_its_scaling_finds_it_in_its_file(ca):
    assert init(ca).exit_code == 0
    settings = load_passive(ca.parent / "out" / "news" / "news.toml")
    assert settings.features.scaling == ca.parent / "out" / "news" / "scaling.json"
    assert "ab" * 8 in text_of(ca, "news")


def test_the_active_participants_own_features_load_without_their_comment_signs(ca):
    assert init(ca).exit_code == 0
    head, tail = text_of(ca, "shop").split("#\n# [features]\n")
    lines = ["[features]", *(line.removeprefix("# ") for line in tail.splitlines())]
    text = "\n".join(lines).replace("columns = []", 'columns = ["a", "b", "c", "d"]')
    path = ca.parent / "out" / "shop" / "shop.toml"
    path.write_text(f"{head}\n{text}\n")
    assert load_active(path).features.columns == ("a", "b", "c", "d")


@pytest.mark.parametrize("name", ["web", "chief"])
def test_files_of_programs_load_as_they_are(ca, name):
    assert init(ca).exit_code == 0
    place = load_client(ca.parent / "out" / name / f"{name}.toml")
    assert (place.name, place.address, place.insecure) == (name, "ap.example:7443", False)


def test_dense_masks_take_the_generator_in_and_say_how_to_deal(ca):
    join(ca.parent, ca, GENERATOR)
    done = init(ca, "--mask", "dense", "--aggregation", "secure", "--bound", "8")
    assert done.exit_code == 0, done.output
    roster = roster_of(ca, "pmg")
    member = json.loads((ca / "issued" / "pmg.member.json").read_text())
    assert roster.generator_key == member["generator_key"]
    assert roster.terms == Terms("dense", "secure", bound=8.0, users="pseudonyms")
    assert "pmg" not in [member.name for member in roster]
    place = load_client(ca.parent / "out" / "pmg" / "pmg.toml")
    assert (place.name, place.role, place.address) == ("pmg", "generator", "ap.example:7443")
    assert "--epoch 1" in done.stdout
    assert str(ca.parent / "out" / "pmg") in done.stdout
    folder = ca.parent / "out" / "shop"
    assert load_active(folder / "shop.toml").envelopes == folder / "envelopes"


def test_outer_layout_and_intercept_are_terms_of_the_roster(ca):
    assert init(ca, "--layout", "outer", "--arm-dim", "6", "--intercept").exit_code == 0
    terms = roster_of(ca, "bank").terms
    assert (terms.layout, terms.arm_dim, terms.intercept) == ("outer", 6, True)


def test_named_members_only_are_taken(ca):
    files = [ca.parent / name / f"{name}.member.json" for name in ("bank", "shop", "web")]
    flags = [word for path in files for word in ("--member", path)]
    assert init(ca, *flags).exit_code == 0
    folders = [path.name for path in (ca.parent / "out").iterdir() if path.is_dir()]
    assert sorted(folders) == ["bank", "shop", "web"]


def test_a_key_with_a_passphrase_signs_when_the_environment_has_it(tmp_path):
    ca = tmp_path / "ca"
    create_authority(ca, "shops", passphrase=b"open sesame")
    for terms in MEMBERS[:2]:
        request = create_request(tmp_path / terms["name"], federation="shops", **terms)
        approve(request, ca, passphrase=b"open sesame")
    refused = init(ca)
    assert refused.exit_code == 2
    assert "needs a passphrase" in refused.stderr
    done = init(ca, "--passphrase-env", "WORD", WORD="open sesame")
    assert done.exit_code == 0, done.output


REFUSALS = [
    (["--mask", "dense"], "dense masks need a mask generator among the members"),
    (["--aggregation", "secure"], "secure aggregation needs mask='dense'"),
    (["--layout", "outer"], "arm_dim goes with layout 'outer', got 0"),
    (["--arm-dim", "3"], "arm_dim goes with layout 'outer', got 3"),
    (["--intercept"], "an intercept goes with layouts outer and disjoint, got per_arm"),
    (["--bound", "0.5"], "bound must be a number from 1 to 2^40, got 0.5"),
    (["--federation", "fair"], "--federation must be the authority's, 'shops', got 'fair'"),
    (["--listen", "nowhere"], "an address is written host:port, or [ipv6]:port, got 'nowhere'"),
    (["--listen", "ap:70000"], "a port is at most 65535, got 70000"),
    (["--listen", 'a"b:1'], "an address is written host:port"),
    (
        ["--passphrase-env", "NO_SUCH"],
        "wanted a passphrase in environment variable NO_SUCH, got none",
    ),
]


@pytest.mark.parametrize(("flags", "says"), REFUSALS)
def test_what_cannot_be_is_one_line_and_nothing_is_written(ca, flags, says):
    refused(init(ca, *flags), says)
    assert not (ca.parent / "out").exists()


def refused(done, says):
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_member_file_that_was_changed_is_refused(ca):
    path = ca.parent / "bank" / "bank.member.json"
    path.write_text(path.read_text().replace('"width": 3', '"width": 4'))
    refused(init(ca, "--member", path), "must say what was approved")


def test_a_member_of_another_authority_is_refused(ca, tmp_path):
    create_authority(tmp_path / "other", "shops")
    terms = {"federation": "shops", "name": "spy", "role": "passive", "width": 3}
    path = join(tmp_path, tmp_path / "other", terms) / "spy.member.json"
    refused(init(ca, "--member", path), "approved, got")


def test_two_generators_are_refused(ca):
    join(ca.parent, ca, GENERATOR)
    join(ca.parent, ca, {**GENERATOR, "name": "pmg2"})
    refused(init(ca, "--mask", "dense"), "a federation has one mask generator, got 'pmg2' too")


def test_nothing_is_overwritten(ca):
    assert init(ca).exit_code == 0
    before = text_of(ca, "shop")
    refused(init(ca, "--layout", "disjoint"), "wanted no folder there yet, got")
    assert text_of(ca, "shop") == before
    assert roster_of(ca, "bank").terms.layout == "per_arm"


def test_each_folder_has_the_certificates_and_a_kit_has_the_same_files(ca):
    assert init(ca).exit_code == 0
    for name in ("shop", "bank", "news", "web", "chief"):
        folder = ca.parent / "out" / name
        with ZipFile(folder.with_suffix(".zip")) as kit:
            packed = {place: kit.read(place) for place in kit.namelist()}
        there = {path.relative_to(folder).as_posix(): path.read_bytes()
                 for path in folder.rglob("*") if path.is_file()}  # fmt: skip
        assert packed == there
        assert packed[f"identity/{name}.crt"] == (ca / "issued" / f"{name}.crt").read_bytes()
        assert packed["identity/authority.crt"] == (ca / "authority.crt").read_bytes()


def test_the_organisers_operator_has_its_keys_in_its_folder_and_no_kit(ca):
    done = init(ca, "--operator", "ops")
    assert done.exit_code == 0, done.output
    folder = ca.parent / "out" / "ops"
    assert f"stays here: {folder}" in done.stdout
    assert Identity.load(folder / "identity", "ops").subject.role == "operator"
    assert roster_of(ca, "bank").find("ops").role == "operator"
    assert not folder.with_suffix(".zip").exists()
    assert list((ca.parent / "out").rglob("*.key")) == [folder / "identity" / "ops.key"]


def test_an_operator_is_not_made_where_something_else_is_wrong(ca):
    refused(init(ca, "--operator", "ops", "--mask", "dense"), "dense masks need a mask generator")
    refused(init(ca, "--operator", "bank"), "must be a new one, got 'bank', which was approved")
    assert not (ca.parent / "out").exists()
    assert not (ca / "issued" / "ops.crt").exists()


def test_no_active_participant_is_refused(ca):
    path = ca.parent / "bank" / "bank.member.json"
    refused(init(ca, "--member", path), "a roster has one active participant, named first")


def test_secret_shares_are_terms_of_the_roster_and_the_file_has_the_model_that_they_fit(ca):
    join(ca.parent, ca, {"federation": "shops", **GENERATOR})
    done = init(ca, "--protection", "shares", "--helper", "bank", "--max-arms", 8)
    assert done.exit_code == 0, done.output
    terms = roster_of(ca, "shop").terms
    assert terms.protection == "shares"
    assert (terms.bound, terms.shares) == (
        1.0,
        SharesRules(helper="bank", max_arms=8, posterior_scale=0.1),
    )
    assert "vfb masks deal" in done.output
    settings = load_active(ca.parent / "out" / "shop" / "shop.toml")
    assert settings.model.build(roster_of(ca, "shop")).slots.terms.max_arms == 8
    assert settings.dealt.name == "dealt"
    passive = (ca.parent / "out" / "bank" / "bank.toml").read_text()
    assert "\nclip_norm = 1.0 " in passive  # longer rows are refused


def test_a_helper_without_features_is_a_member_with_a_file_and_a_command_of_its_own(ca):
    join(ca.parent, ca, {"federation": "shops", **GENERATOR})
    join(ca.parent, ca, {"federation": "shops", "name": "notary", "role": "helper"})
    refused(init(ca), "'notary' has the role helper, which only protection 'shares' has")
    done = init(ca, "--protection", "shares", "--helper", "notary")
    assert done.exit_code == 0, done.output
    roster = roster_of(ca, "notary")
    assert (roster.terms.shares.helper, roster.find("notary").width) == ("notary", 0)
    assert "notary" not in roster.split.names
    settings = load_helper(ca.parent / "out" / "notary" / "notary.toml")
    assert (settings.role, settings.dealt.name, settings.status) == ("helper", "dealt", None)
    with pytest.raises(ConfigError, match="role must be passive, got 'helper'"):
        load_passive(ca.parent / "out" / "notary" / "notary.toml")
    assert (
        "then vfb serve helper by notary, vfb serve passive by the others"
        in done.output.replace("\n", " ")
    )


def test_linucb_on_secret_shares_has_its_beta_in_the_terms(ca):
    join(ca.parent, ca, {"federation": "shops", **GENERATOR})
    done = init(
        ca, "--protection", "shares", "--helper", "bank", "--policy", "linucb", "--beta", 0.3
    )
    assert done.exit_code == 0, done.output
    rules = roster_of(ca, "shop").terms.shares
    assert (rules.reads, rules.beta, rules.posterior_scale) == ("widths", 0.3, 0.0)
    load_active(ca.parent / "out" / "shop" / "shop.toml").model.build(roster_of(ca, "shop"))


def test_layouts_on_secret_shares_are_terms_with_those_whose_rows_may_be_read(ca):
    join(ca.parent, ca, {"federation": "shops", **GENERATOR})
    layout = ("--layout", "outer", "--arm-dim", 2, "--arm-bound", 3, "--bound", 2, "--intercept")
    accepted = ("--accept-leak", "bank", "--accept-leak", "news", "--release", "statistics")
    done = init(ca, *SHARED, *layout, *accepted, "--policy", "linucb")
    assert done.exit_code == 0, done.output
    terms = roster_of(ca, "shop").terms
    assert (terms.shares.reads, terms.shares.arm_bound) == ("covariance", 3.0)
    assert terms.learns.endswith("from which rows of bank, news can be read")
    settings = load_active(ca.parent / "out" / "shop" / "shop.toml")
    assert settings.model.policy.beta == 0.5
    built = settings.model.build(roster_of(ca, "shop")).slots.terms
    assert (built.layout, built.arm_dim, built.intercept) == ("outer", 2, True)


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--helper", "bank"], "--helper goes with --protection shares"),
        (["--max-arms", "4"], "--max-arms goes with --protection shares"),
        (["--protection", "shares"], "needs --helper, a passive participant"),
        (["--protection", "shares", "--helper", "shop"], "would hold both shares"),
        (["--protection", "shares", "--helper", "nobody"], "one of bank, news, got 'nobody'"),
        (
            [*SHARED, "--layout", "disjoint", "--policy", "linucb"],
            "opens numbers of 16 arms on secret shares",
        ),
        ([*SHARED, "--accept-leak", "bank"], "--accept-leak goes with --layout disjoint and outer"),
        (["--accept-leak", "bank"], "--accept-leak goes with --protection shares"),
        (
            [*SHARED, "--layout", "disjoint", "--accept-leak", "bnak"],
            "accept_leak names passive participants, bank, news, got 'bnak'",
        ),
        ([*SHARED, "--arm-bound", "2"], "--arm-bound goes with --layout outer"),
        (
            [*SHARED, "--release", "statistics", "--policy", "linucb", "--beta", "0.3"],
            "--beta goes with --release arm, got statistics",
        ),
        (["--protection", "shares", "--helper", "bank", "--bound", "64"], "must be at most 16"),
        (
            ["--protection", "shares", "--helper", "bank", "--ridge", "0"],
            "ridge must be a positive",
        ),
        (
            [
                "--protection",
                "shares",
                "--helper",
                "bank",
                "--policy",
                "lingreedy",
                "--posterior-scale",
                "1",
            ],
            "--posterior-scale goes with --policy lints, got --policy lingreedy",
        ),
        (["--protection", "sum"], "--aggregation plain is protection 'mask'"),
    ],
)
def test_terms_of_secret_shares_that_do_not_go_together_are_refused(ca, flags, reason):
    join(ca.parent, ca, {"federation": "shops", **GENERATOR})
    done = init(ca, *flags)
    assert done.exit_code != 0
    assert reason in " ".join(f"{done.output}{done.exception}".split())
    assert not (ca.parent / "out").exists()


def test_what_comes_next_names_the_files_where_the_generator_has_them_after_it_joined(ca):
    join(ca.parent, ca, {"federation": "shops", **GENERATOR})
    flags = {
        "shares": ["--protection", "shares", "--helper", "bank"],
        "dense": ["--mask", "dense"],
    }
    for what, words in flags.items():
        done = init(ca, *words, "--out", ca.parent / what)
        assert "--authority identity/authority.crt --key-dir identity --epoch 1" in " ".join(
            done.output.split()
        )


def test_what_the_file_suggests_for_a_campaign_is_not_refused_on_secret_shares(ca):
    join(ca.parent, ca, {"federation": "shops", **GENERATOR})
    assert init(ca, "--protection", "shares", "--helper", "bank").exit_code == 0
    path = ca.parent / "out" / "shop" / "shop.toml"
    text = path.read_text()
    assert "log_contexts" not in text
    section = text.split("# [campaigns.default]\n")[1].split("#\n")[0]
    suggested = "\n".join(line.removeprefix("# ") for line in section.splitlines())
    path.write_text(f"{text}\n[campaigns.default]\n{suggested}\n")
    (plan,) = load_active(path).campaigns
    assert (plan.settings.reward_min, plan.settings.reward_max) == (-16.0, 16.0)
