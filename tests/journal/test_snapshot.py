"""Saved and restored: bit for bit, in every layout and policy, or one clear error."""

import contextlib
import copy
import json
import os
import pickle
import signal
import stat
import subprocess
import sys
import zipfile

import fork_server
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journals import header_of
from worlds import MORE, cases

import vfbandits as vfb
from vfbandits.core.snapshot import LazyList, Snapshot
from vfbandits.errors import SnapshotError
from vfbandits.journal import snapshot as snapshot_module
from vfbandits.journal.snapshot import json_in_pieces, open_sealed, seal_snapshot


def lazily(items):
    return LazyList(len(items), lambda part: items[part])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("snapshots")


def play(federation, rounds, answers):
    for number, item in enumerate(rounds):
        decision = federation.decide(item.blocks, arms=item.arms, arm_features=item.arm_features)
        answers.append((decision.id, decision.arm, decision.scores.tobytes(), decision.probability))
        if number % 3 != 2:  # every third reward never comes
            federation.reward(decision, float(item.rewards[decision.index]))


@given(case=cases(max_rounds=9))
@settings(deadline=None, max_examples=60 * MORE)
def test_a_restored_federation_goes_on_bit_for_bit(folder, case):
    """Exact, for every policy, layout, mask and aggregation: arms, scores and probabilities."""
    federation = case.federation()
    play(federation, case.rounds, [])
    again = vfb.load(vfb.save(federation, folder / "federation.vfb"))
    assert repr(again) == repr(federation)
    assert again.bandit.open_decisions == federation.bandit.open_decisions
    for state, other in zip(
        federation.bandit.states.values(), again.bandit.states.values(), strict=True
    ):
        assert state.Lambda.tobytes() == other.Lambda.tobytes()
        assert state.u.tobytes() == other.u.tobytes()
    answers, others = [], []
    play(federation, case.rounds, answers)
    play(again, case.rounds, others)
    assert answers == others
    for key in federation.bandit.open_decisions:
        assert federation.reward(key, 1.0)
        assert again.reward(key, 1.0)
    assert federation.bandit.estimate_norm() == again.bandit.estimate_norm()


def taught_bandit(**options):
    bandit = vfb.Bandit(vfb.LinUCB(beta=vfb.OFUL(noise=0.2)), dim=2, seed=4, **options)
    decision = bandit.decide(np.eye(2), arms=["x", 3])
    bandit.reward(decision, 0.25)
    bandit.decide(np.eye(2), event_id="still-open")
    return bandit


def test_the_ledger_survives_so_that_rewards_stay_exactly_once(tmp_path):
    again = vfb.load(vfb.save(taught_bandit(), tmp_path / "b.vfb"))
    assert again.open_decisions == ("still-open",)
    assert not again.reward(0, 0.25)
    with pytest.raises(vfb.VFBanditsError, match="already has the reward"):
        again.reward(0, 1.0)
    assert again.reward("still-open", 1.0)
    assert again.policy == vfb.LinUCB(beta=vfb.OFUL(noise=0.2))


def test_an_old_file_is_replaced_whole(tmp_path):
    path = tmp_path / "b.vfb"
    vfb.save(taught_bandit(), path)
    vfb.save(vfb.Bandit(vfb.LinGreedy(), dim=7), path)
    assert vfb.load(path).dim == 7
    assert [item.name for item in tmp_path.iterdir()] == ["b.vfb"]


def test_a_federation_s_file_is_for_its_owner_only(tmp_path):
    secret = vfb.save(vfb.Federation(vfb.LinUCB(), widths={"a": 1, "b": 1}), tmp_path / "f.vfb")
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_the_file_is_a_zip_of_json_and_npy_without_pickle(tmp_path):
    path = vfb.save(taught_bandit(), tmp_path / "b.vfb")
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        header = json.loads(archive.read("header.json"))
        assert (header["format"], header["version"]) == ("vfbandits snapshot", 1)
        for name in archive.namelist()[1:]:
            assert name.startswith("arrays/")
            with archive.open(name) as member:
                assert np.lib.format.read_array(member, allow_pickle=False).dtype == np.float64


def rewrite(path, change):
    """The same archive with another header."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    header = json.loads(members["header.json"])
    change(header, members)
    members["header.json"] = json.dumps(header).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h, m: h.update(version=2), "must have version 1, got 2: it was written by a newer"),
        (lambda h, m: h.update(version=0), r"must have version 1, got 0$"),
        (lambda h, m: h.update(version="1"), "a whole number at 'version', got str"),
        (lambda h, m: h.update(format="zip"), "must be a vfbandits snapshot"),
        (lambda h, m: h.pop("object"), "a record at 'object', got nothing"),
        (lambda h, m: h["object"].update(kind="tree"), "a bandit or a federation, got 'tree'"),
        (lambda h, m: h["object"].update(dim="2"), "a whole number at 'dim', got str"),
        (lambda h, m: h["object"].update(rng={"bit_generator": "MT19937"}), "PCG64"),
        (lambda h, m: h["object"].update(open=[["x"]]), "a decision of a snapshot"),
        (lambda h, m: h["object"].update(open=[]), "0 decisions are open, got 1"),
        (lambda h, m: m.pop("arrays/learner/A.npy"), "'A' of shape .*got nothing"),
        (lambda h, m: m.update({"arrays/learner/b.npy": b"not an array"}), "not a whole snapshot"),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_refused(tmp_path, change, message):
    path = vfb.save(taught_bandit(), tmp_path / "b.vfb")
    rewrite(path, change)
    with pytest.raises(SnapshotError, match=message):
        vfb.load(path)


def test_a_snapshot_of_an_older_version_is_read_through_upcasters(tmp_path, monkeypatch):
    """As if version 1 had called the dimension by another name."""

    def rename(read):
        header = dict(read.header)
        header["dim"] = header.pop("width")
        return Snapshot(header, read.arrays, secret=read.secret)

    bandit = taught_bandit()
    path = vfb.save(bandit, tmp_path / "b.vfb")
    rewrite(path, lambda header, _: header["object"].update(width=header["object"].pop("dim")))
    monkeypatch.setattr(snapshot_module, "VERSION", 2)
    monkeypatch.setattr(snapshot_module, "UPCASTERS", {1: rename})
    again = vfb.load(path)
    assert fields_of(again) == fields_of(bandit)
    path = vfb.save(again, tmp_path / "again.vfb")
    with zipfile.ZipFile(path) as archive:  # only the newest is written
        assert json.loads(archive.read("header.json"))["version"] == 2


def fields_of(bandit):
    made = bandit.snapshot()
    return made.header, {name: array.tobytes() for name, array in made.arrays.items()}


@pytest.mark.parametrize("damage", ["cut", "flip", "text", "empty"])
def test_a_damaged_file_is_refused(tmp_path, damage):
    path = vfb.save(taught_bandit(), tmp_path / "b.vfb")
    data = bytearray(path.read_bytes())
    if damage == "cut":
        data = data[: len(data) // 2]
    elif damage == "flip":
        with zipfile.ZipFile(path) as archive:
            info = archive.getinfo("arrays/learner/A.npy")
        data[info.header_offset + 180] ^= 0xFF
    else:
        data = bytearray(b"hello" if damage == "text" else b"")
    path.write_bytes(data)
    with pytest.raises(SnapshotError):
        vfb.load(path)


def test_a_pickle_in_disguise_is_not_opened(tmp_path):
    path = vfb.save(taught_bandit(), tmp_path / "b.vfb")
    evil = np.array([{"a": 1}], dtype=object)
    np.save(tmp_path / "evil.npy", evil, allow_pickle=True)
    rewrite(
        path, lambda h, m: m.update({"arrays/learner/A.npy": (tmp_path / "evil.npy").read_bytes()})
    )
    with pytest.raises(SnapshotError):
        vfb.load(path)


def test_a_missing_file_is_a_plain_file_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        vfb.load(tmp_path / "nothing.vfb")


def test_a_custom_policy_has_no_snapshot(tmp_path):
    class Mine:
        def score(self, statistics, rng):
            return vfb.core.policy.Scored(statistics.means)

    with pytest.raises(SnapshotError, match="got a Mine"):
        vfb.save(vfb.Bandit(Mine(), dim=1), tmp_path / "b.vfb")
    assert list(tmp_path.iterdir()) == []


KILLED = """
import sys, numpy as np, vfbandits as vfb
bandit = vfb.Bandit(vfb.LinUCB(), dim=300)
vfb.save(bandit, sys.argv[1])
print("ready", flush=True)
while True:
    bandit.reward(bandit.decide(np.ones((1, 300))), 1.0)
    vfb.save(bandit, sys.argv[1])
"""


def test_a_process_killed_while_saving_leaves_a_whole_file(tmp_path):
    path = tmp_path / "b.vfb"
    for pause in (0.05, 0.2, 0.35):
        process = fork_server.Popen(
            [sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "ready\n"
        try:
            process.wait(timeout=pause)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        bandit = vfb.load(path)
        assert bandit.states[None].n_updates >= 0
        assert bandit.open_decisions == ()


PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()


@given(
    st.recursive(
        PLAIN,
        lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(), inner, max_size=3),
    )
)
def test_json_in_pieces_is_json(value):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot_module, "ITEMS_PER_BATCH", 3)
        assert "".join(json_in_pieces(value)) == json.dumps(value)


@pytest.mark.parametrize("made", [lambda items: items, lazily], ids=["list", "lazily"])
def test_a_long_list_is_spelt_in_pieces(made):
    value = {"open": made([["event", 0.5]] * 10_000), "settled": made([])}
    pieces = [*json_in_pieces(value)]
    assert max(map(len, pieces)) < len(json.dumps([["event", 0.5]] * 1_001))
    assert json.loads("".join(pieces)) == {"open": [["event", 0.5]] * 10_000, "settled": []}


@pytest.mark.parametrize("n_rows", [1, 249, 250, 251, 1_000])
def test_rows_that_are_made_when_written_are_the_array_of_them(n_rows):
    rows = [*np.random.default_rng(n_rows).normal(size=(n_rows, 3))]
    whole, held, made = (
        seal_snapshot(Snapshot({"kind": "example"}, {"x": part}))
        for part in (np.array(rows), rows, lazily(rows))
    )
    assert whole == held == made


def test_an_array_may_be_longer_than_a_plain_archive_allows(monkeypatch):
    """ZIP64 begins at 2 GiB; here at 1 KB."""
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 1_000)
    rows = [np.full(10, float(k)) for k in range(100)]
    data = seal_snapshot(Snapshot({"kind": "example"}, {"x": rows, "y": np.array(rows)}))
    for array in open_sealed(data).arrays.values():
        assert (array == rows).all()


def test_a_copy_of_a_lazy_list_is_a_list():
    once = lazily([1, "two", (3, 4)])
    for again in (copy.deepcopy(once), pickle.loads(pickle.dumps(once))):  # noqa: S301  (ours)
        assert type(again) is list
        assert once == again == [*once]
    assert (once[-1], once[1:], len(once)) == ((3, 4), ["two", (3, 4)], 3)
    assert once != [1, "two"]
    with pytest.raises(IndexError):
        once[3]


@given(place=st.floats(0.0, 1.0, exclude_max=True), change=st.integers(1, 255), cut=st.booleans())
@settings(deadline=None)
def test_a_sealed_snapshot_comes_back_whole_or_not_at_all(place, change, cut):
    snapshot = taught_bandit().snapshot()
    data = bytearray(seal_snapshot(snapshot))
    again = open_sealed(bytes(data))
    assert header_of(again) == header_of(snapshot)
    assert {n: a.tobytes() for n, a in again.arrays.items()} == {
        n: a.tobytes() for n, a in snapshot.arrays.items()
    }
    start = int(place * len(data))
    if cut:
        del data[start:]
    else:
        data[start] ^= change
    with pytest.raises(SnapshotError, match="log 7 is not a whole snapshot"):
        open_sealed(bytes(data), name="log 7")


@given(place=st.floats(0.0, 1.0, exclude_max=True), change=st.integers(1, 255))
@settings(deadline=None, max_examples=300 * MORE)
def test_no_damage_to_a_file_gives_another_error_than_a_snapshot_error(folder, place, change):
    path = vfb.save(taught_bandit(), folder / "harmed.vfb")
    data = bytearray(path.read_bytes())
    data[int(place * len(data))] ^= change
    path.write_bytes(data)
    with contextlib.suppress(SnapshotError):
        assert vfb.load(path).open_decisions == ("still-open",)
