"""``vfb pki``: from nothing to approved members, and refusals in one line."""

import json
import logging
import tomllib

import numpy as np
import pytest
from members import mode
from typer.testing import CliRunner

from vfbandits.cli.pki import pki_app
from vfbandits.features.scaling import Scaling
from vfbandits.pki import Identity, load_approved
from vfbandits.protocol.roster import Member


def run(*words, answers="", **environment):
    done = CliRunner().invoke(
        pki_app,
        [str(word) for word in words],
        input=answers,
        env={"COLUMNS": "200", **environment},
    )
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def works(*words, **environment):
    done = run(*words, **environment)
    assert done.exit_code == 0, done.output
    return done.stdout


def fails(*words, **environment):
    """The one line on stderr."""
    done = run(*words, **environment)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("error: ")
    return done.stderr


@pytest.fixture
def ca(tmp_path):
    works("init", "--federation", "shops", "--dir", tmp_path / "ca")
    return tmp_path / "ca"


def ask(tmp_path, name="bank", role="passive", *more):
    works("request", "--federation", "shops", "--name", name, "--role", role,
          "--dir", tmp_path / name, *more)  # fmt: skip
    return tmp_path / name / f"{name}.request.json"


def fingerprint(text):
    """What the table shows, as one word."""
    (line,) = [line for line in text.splitlines() if line.strip().startswith("fingerprint")]
    return "".join(line.split()[1:])


def test_from_nothing_to_an_identity(tmp_path, ca):
    request = ask(tmp_path, "bank", "passive", "--width", "3")
    flags = ["--dir", ca, "--out", tmp_path / "bank" / "bank.crt"]
    said = works("approve", request, *flags, answers="y\n")
    for word in ("bank.shops.vfb", "passive", "364 days left"):
        assert word in said
    for name in ("bank.crt", "bank.member.json", "authority.crt"):
        assert str(tmp_path / "bank" / name) in said
    identity = Identity.load(tmp_path / "bank", "bank")
    member = load_approved(tmp_path / "bank" / "bank.member.json").member
    assert fingerprint(said) == identity.digest == member.certificate
    assert fingerprint(works("show", request)) == member.certificate
    assert mode(tmp_path / "bank" / "bank.key") == 0o600
    assert member == Member(
        "bank", "passive", identity.digest, 3,
        identity.sealing_key.public_key().public_bytes_raw().hex(),
    )  # fmt: skip


@pytest.mark.parametrize("role", ["application", "operator", "generator"])
def test_programs_and_generators_need_no_width(tmp_path, ca, role):
    request = ask(tmp_path, "x", role)
    works("approve", request, "--dir", ca, answers="y\n")
    assert Identity.load(tmp_path / "x", "x").subject.role == role
    assert ("generator key" in works("show", request)) == (role == "generator")


def test_a_scaling_gives_its_digest_and_its_width(tmp_path):
    scaling = Scaling("standard", ("age", "income"), np.zeros(2), np.ones(2), {})
    file = scaling.save(tmp_path / "scaling.json")
    claim = json.loads(ask(tmp_path, "a", "passive", "--scaling", file).read_bytes())
    assert (claim["width"], claim["scaling"]) == (2, scaling.digest)
    by_digest = ask(tmp_path, "b", "passive", "--scaling", scaling.digest, "--width", "2")
    assert json.loads(by_digest.read_bytes())["scaling"] == scaling.digest
    words = ("request", "--federation", "shops", "--name", "c", "--role", "passive",
             "--dir", tmp_path / "c")  # fmt: skip
    assert "--width must be 2, the number of features of --scaling, got 3" in fails(
        *words, "--scaling", file, "--width", 3
    )
    assert "cannot read the scaling" in fails(*words, "--scaling", tmp_path / "none")
    assert "must have a width from 1, got 0" in fails(*words, "--scaling", scaling.digest)
    assert not (tmp_path / "c").exists()


def source_words(tmp_path, *more):
    (tmp_path / "bank.csv").write_text("user,age,pay\na,1,2\nb,3,4\nc,4,4.5\n")
    words = ("request", "--federation", "shops", "--name", "bank", "--role", "passive")
    return (*words, "--dir", tmp_path / "identity", *more)


def test_a_request_fits_the_scaling_of_a_table_and_writes_features(tmp_path):
    words = source_words(tmp_path, "--source", tmp_path / "bank.csv", "--columns", "age,pay")
    works(*words)
    scaling = Scaling.load(tmp_path / "scaling.json")
    claim = json.loads((tmp_path / "identity" / "bank.request.json").read_bytes())
    assert (claim["width"], claim["scaling"]) == (2, scaling.digest)
    table = tomllib.loads((tmp_path / "features.toml").read_text())["features"]
    assert table == {"kind": "file", "path": "bank.csv", "key": ["user"], "scaling": "scaling.json"}
    assert (mode(tmp_path / "scaling.json"), mode(tmp_path / "features.toml")) == (0o600, 0o600)


def test_a_request_that_is_refused_leaves_the_scaling_of_an_earlier_one_alone(tmp_path):
    words = source_words(tmp_path, "--source", tmp_path / "bank.csv", "--columns", "age,pay")
    works(*words)
    before = (tmp_path / "scaling.json").read_bytes()
    assert "'bank' has keys" in fails(*words)
    assert (tmp_path / "scaling.json").read_bytes() == before
    works(*words, "--reuse-keys")
    claim = json.loads((tmp_path / "identity" / "bank.request.json").read_bytes())
    assert claim["scaling"] == Scaling.load(tmp_path / "scaling.json").digest


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--columns", "age"], "name columns of --source, got no --source"),
        (["--source", "bank.csv"], "wanted --columns or --one-hot, got none"),
        (["--source", "bank.csv", "--columns", "agge"], "got none called agge"),
        (["--source", "bank.csv", "--columns", "age", "--width", "2"], "--width must be 1"),
    ],
)
def test_a_wrong_table_is_refused_before_keys_are_made(tmp_path, flags, says):
    flags = [tmp_path / flag if flag.endswith(".csv") else flag for flag in flags]
    assert says in fails(*source_words(tmp_path, *flags))
    assert [path.name for path in tmp_path.iterdir()] == ["bank.csv"]


def test_the_fingerprint_from_the_telephone_is_compared(tmp_path, ca):
    request = ask(tmp_path, "bank", "passive", "--width", "3")
    said = fails("approve", request, "--dir", ca, "--fingerprint", "ab" * 32)
    assert f"--fingerprint must be that of {request}, " in said
    assert said.endswith(f", got '{'ab' * 32}'\n")
    assert not (tmp_path / "bank" / "bank.crt").exists()
    right = fingerprint(works("show", request))
    spelt = ":".join([right[:32].upper(), " " + right[32:]])
    done = run("approve", request, "--dir", ca, "--fingerprint", spelt)
    assert (done.exit_code, done.stderr) == (0, "")  # nothing was asked


def ask_three(tmp_path):
    return [ask(tmp_path, name, "application") for name in ("a", "b", "c")]


def test_several_requests_are_approved_with_one_question_for_each(tmp_path, ca):
    requests = ask_three(tmp_path)
    done = run("approve", *requests, "--dir", ca, answers="y\nn\ny\n")
    assert done.exit_code == 1, "one was declined"
    assert done.stderr.count("Did its owner read out this fingerprint") == 3
    for request in requests:
        shown = " ".join(works("show", request).split("fingerprint")[1].split())
        assert f"fingerprint {shown}" in done.stderr
    assert f"declined {requests[1]}" in done.stdout
    assert [(tmp_path / name / f"{name}.crt").exists() for name in "abc"] == [True, False, True]


def test_several_requests_are_approved_by_fingerprints_alone(tmp_path, ca):
    requests = ask_three(tmp_path)
    spelt = [fingerprint(works("show", request)) for request in requests]
    flags = [word for one in spelt for word in ("--fingerprint", one)]
    assert f"--fingerprint must be that of {requests[2]}, " in fails(
        "approve", *requests, "--dir", ca, *flags[:4]
    )
    assert "which none has" in fails("approve", *requests[:2], "--dir", ca, *flags)
    assert not (ca / "issued").exists()
    works("approve", *requests, "--dir", ca, *flags)
    assert all((tmp_path / name / f"{name}.crt").exists() for name in "abc")


def test_an_approval_without_an_answer_changes_nothing(tmp_path, ca):
    requests = ask_three(tmp_path)
    done = run("approve", *requests, "--dir", ca, answers="y\ny\n")
    assert done.exit_code == 2
    assert "or --fingerprint, got none; nothing was changed" in done.stderr
    assert not (ca / "issued").exists()


def test_flags_of_one_member_are_refused_for_several(tmp_path, ca):
    requests = ask_three(tmp_path)
    said = fails("approve", *requests, "--dir", ca, "--dns", "ap.example")
    assert "--dns and --ip go with a single request, got 3 requests" in said
    said = fails("approve", *requests, "--dir", ca, "--out", tmp_path / "x.crt")
    assert "--out must be a folder for 3 requests" in said
    assert "each request must be named once" in fails(
        "approve", requests[0], requests[0], "--dir", ca
    )
    assert not (ca / "issued").exists()


def test_hosts_days_and_renewal_reach_the_certificate(tmp_path, ca):
    request = ask(tmp_path, "shop", "active", "--width", "3")
    works("approve", request, "--dir", ca, "--days", 10, "--dns", "ap.example",
          "--dns", "ap2.example", "--ip", "::1", answers="y\n")  # fmt: skip
    said = works("show", tmp_path / "shop" / "shop.crt")
    assert "shop.shops.vfb, ap.example, ap2.example, ::1" in said
    assert "9 days left" in said
    known = fingerprint(works("show", request))
    again = fails("approve", request, "--dir", ca, "--fingerprint", known)
    assert "--renew gives it another" in again
    renewed = works("approve", request, "--dir", ca, "--renew")
    assert "364 days left" in renewed
    assert "wanted an IP address" in fails("approve", request, "--dir", ca, "--renew", "--ip", "x")


def test_approvals_are_on_record_with_who_and_when(tmp_path, ca):
    assert works("approvals", "--dir", ca)  # none so far
    request = ask(tmp_path, "shop", "active", "--width", "3")
    known = fingerprint(works("show", request))
    works("approve", request, "--dir", ca, answers="y\n")
    works("approve", request, "--dir", ca, "--renew")
    works("approve", ask(tmp_path, "bank", "passive", "--width", "3"), "--dir", ca, answers="y\n")
    fails("approve", request, "--dir", ca, "--fingerprint", known)  # refused: not on record
    document = json.loads(works("approvals", "--dir", ca, "--json"))
    found = document["approvals"]
    assert [(one["what"], one["name"], one["role"]) for one in found] == [
        ("approved", "shop", "active"),
        ("renewed", "shop", "active"),
        ("approved", "bank", "passive"),
    ]
    assert document["problem"] == ""
    assert len({one["serial"] for one in found}) == 3
    assert all("@" in one["by"] for one in found)
    assert found[0]["key"] == known
    assert "there" in fails("approvals", "--dir", tmp_path / "nowhere")


@pytest.mark.parametrize("harm", ["changed", "removed", "torn"])
def test_an_approval_that_was_changed_or_removed_is_noticed(tmp_path, ca, harm):
    for name in ("shop", "bank", "news"):
        works("approve", ask(tmp_path, name, "passive", "--width", 3), "--dir", ca, answers="y\n")
    path = ca / "approvals.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    if harm == "changed":
        lines[1] = lines[1].replace(b'"bank"', b'"bink"')
    elif harm == "removed":
        del lines[1]
    else:
        lines[2] = lines[2][:40]
    path.write_bytes(b"".join(lines))
    done = run("approvals", "--dir", ca)
    assert (done.exit_code, "problem: line" in done.stdout) == (1, True)
    if harm == "torn":  # what comes later stands in a line of its own
        works("approve", ask(tmp_path, "post", "passive", "--width", 3), "--dir", ca, answers="y\n")
        assert "post" in run("approvals", "--dir", ca).stdout


def test_keys_are_reused_only_when_asked(tmp_path):
    before = fingerprint(works("show", ask(tmp_path, "bank", "passive", "--width", "3")))
    words = ("request", "--federation", "shops", "--name", "bank", "--role", "passive",
             "--dir", tmp_path / "bank", "--width", 4)  # fmt: skip
    assert "--reuse-keys" in fails(*words)
    assert fingerprint(works(*words, "--reuse-keys")) == before


def test_the_passphrase_comes_from_the_environment(tmp_path):
    words = ("init", "--federation", "shops", "--dir", tmp_path / "ca", "--passphrase-env", "WORD")
    assert "environment variable WORD, got none" in fails(*words)
    assert not (tmp_path / "ca").exists()
    assert "sesame" not in works(*words, WORD="sesame")
    request = ask(tmp_path, "bank", "passive", "--width", "3")
    known = fingerprint(works("show", request))
    approval = ("approve", request, "--dir", tmp_path / "ca", "--fingerprint", known)
    assert "needs a passphrase" in fails(*approval)
    assert "geheim" not in fails(*approval, "--passphrase-env", "WORD", WORD="geheim")
    works(*approval, "--passphrase-env", "WORD", WORD="sesame")


def test_an_authority_is_not_overwritten(ca):
    before = (ca / "authority.key").read_bytes()
    assert "never replaced" in fails("init", "--federation", "shops", "--dir", ca)
    assert (ca / "authority.key").read_bytes() == before


def test_show_refuses_a_private_key_and_any_other_file(tmp_path, ca):
    assert "a private key: keep it where it is" in fails("show", ca / "authority.key")
    (tmp_path / "file").write_text("hello")
    assert "which is none" in fails("show", tmp_path / "file")
    assert "No such file" in fails("show", tmp_path / "none")
    assert "authority" in works("show", ca / "authority.crt")


def test_an_unknown_role_is_a_usage_error(tmp_path):
    done = run("request", "--federation", "s", "--name", "a", "--role", "king", "--dir", tmp_path)
    assert done.exit_code == 2
    assert not list(tmp_path.iterdir())


def test_no_private_key_is_printed_or_logged(tmp_path, ca, caplog):
    caplog.set_level(logging.DEBUG)
    said = works("request", "--federation", "shops", "--name", "pmg", "--role", "generator",
                 "--dir", tmp_path / "pmg")  # fmt: skip
    said += works("approve", tmp_path / "pmg" / "pmg.request.json", "--dir", ca, answers="y\n")
    said += fails("approve", tmp_path / "pmg" / "pmg.signing.key", "--dir", ca)
    said += caplog.text
    assert "PRIVATE" not in said
    for path in (*ca.glob("*.key"), *(tmp_path / "pmg").glob("*.key")):
        body = path.read_text().splitlines()[1]
        assert body[:32] not in said
        assert body[-20:] not in said
