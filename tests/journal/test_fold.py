"""The model is a fold over its log: from any snapshot, to the last bit, or one clear error."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import vfbandits as vfb
from vfbandits.campaign.events import Decided, Forgotten, MasksChanged, Rewarded
from vfbandits.campaign.model import Model, fold, remask
from vfbandits.core.move import Rotation
from vfbandits.errors import JournalError, MaskError, SettingError, SnapshotError
from vfbandits.journal.base import Damage
from vfbandits.journal.memory import MemoryDisk, MemoryJournal
from vfbandits.journal.recover import Recovery, recover


def bandit(**options):
    return vfb.Bandit(vfb.LinUCB(beta=0.5), dim=2, **{"seed": 3, **options})


def decided(name, *x):
    return Decided(name, 0, 0, np.array(x))


LOG = [
    decided(0, 1.0, 2.0),
    decided("a", 0.5, -1.0),
    Rewarded(0, 1.0),
    decided(2, 3.0, 0.0),
    MasksChanged(1, np.array([[0.0, 1.0], [-1.0, 0.0]]), b"roster 1"),
    Rewarded("a", -1.0),
    Forgotten(2),
    decided("b", 1.0, 1.0),
]


def log(events):
    journal = MemoryJournal()
    journal.append(events)
    return journal


def test_the_fold_is_what_the_events_say():
    model = fold(log(LOG).read(), Model(bandit()))
    assert (model.position, model.epoch, model.signed_roster) == (8, 1, b"roster 1")
    assert model.bandit.open_decisions == ("b",)
    first, second = np.array([2.0, -1.0]), np.array([-1.0, -0.5])  # both turned by the move
    Lambda = np.eye(2) + np.outer(first, first) + np.outer(second, second)
    assert_allclose(model.bandit.states[None].Lambda, Lambda, atol=1e-12)
    assert_allclose(model.bandit.states[None].u, first - second, atol=1e-12)
    assert model.bandit.decide(np.eye(2)).id == 4


@pytest.mark.parametrize("start", range(len(LOG) + 1))
def test_from_a_snapshot_at_any_position_the_fold_is_the_same_bit_for_bit(start):
    whole = fold(log(LOG).read(), Model(bandit()))
    half = log(LOG)
    half.save_snapshot(start, fold(list(half.read())[:start], Model(bandit())).snapshot())
    again, recovery = recover(half, Model(bandit()))
    assert recovery == Recovery(start, len(LOG) - start, Damage())
    assert (again.position, again.epoch, again.signed_roster) == (
        whole.position,
        whole.epoch,
        whole.signed_roster,
    )
    one, other = whole.snapshot(), again.snapshot()
    assert {**one.header, "rng": 0} == {**other.header, "rng": 0}
    for name, array in one.arrays.items():
        assert array.tobytes() == other.arrays[name].tobytes()


def test_a_snapshot_does_not_change_with_the_model():
    model = Model(bandit())
    frozen = model.snapshot()
    before = {name: array.tobytes() for name, array in frozen.arrays.items()}
    fold(log(LOG).read(), model)
    assert {name: array.tobytes() for name, array in frozen.arrays.items()} == before


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (decided(9, 1.0, 2.0), "the next decision is number 4, got 9"),
        (decided("b", 1.0, 2.0), "must be new"),
        (decided(4, 1.0, 2.0, 3.0), r"must have shape \(2\), got \(3,\)"),
        (Rewarded(0, 1.0), "has its reward already"),
        (Rewarded(0, 2.0), "already has the reward 1.0"),
        (Rewarded(2, 1.0), "needs an open decision"),
        (Forgotten("a"), "no open decision 'a'"),
        (MasksChanged(1, np.eye(2)), "an epoch after 1, got 1"),
        (MasksChanged(2, np.eye(3)), r"a finite matrix of 2 columns, got \(3, 3\)"),
        (MasksChanged(2, np.full((2, 2), 0.7)), "RR'R = R"),
    ],
)
def test_an_event_that_does_not_fit_is_named_by_its_position(event, message):
    with pytest.raises(JournalError, match=f"record 9 of the journal does not fit: .*{message}"):
        fold(log([*LOG, event]).read(), Model(bandit()))


def test_a_new_log_gets_a_snapshot_that_pins_what_shapes_learning():
    disk = MemoryDisk()
    journal = MemoryJournal(disk)
    model, recovery = recover(journal, Model(bandit(), epoch=4, signed_roster=b"first"))
    assert recovery == Recovery(None, 0, Damage())
    journal.close()
    model, recovery = recover(MemoryJournal(disk), Model(bandit()))
    assert recovery == Recovery(0, 0, Damage())
    assert (model.epoch, model.signed_roster) == (4, b"first")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ridge": 2.0}, "created with ridge 1.0, which shapes what is learnt, got 2.0"),
        ({"discount": 0.9}, "created with discount 1.0"),
        ({"layout": "disjoint"}, "created with layout 'per_arm'"),
        ({"max_settled": 7}, "created with max_settled 10000"),
    ],
)
def test_other_settings_for_the_same_log_are_refused(options, message):
    journal = MemoryJournal()
    recover(journal, Model(bandit()))
    with pytest.raises(SettingError, match=message):
        recover(journal, Model(bandit(**options)))


def test_the_policy_and_the_floor_may_change_between_runs():
    journal = MemoryJournal()
    recover(journal, Model(bandit()))
    other = vfb.Bandit(vfb.LinTS(posterior_scale=0.1), dim=2, floor=0.1, seed=99)
    model, _ = recover(journal, Model(other))
    assert (model.bandit.policy, model.bandit.floor) == (other.policy, 0.1)
    assert model.bandit.seed == 3


def test_damaged_snapshots_make_the_replay_longer_and_change_nothing():
    disk = MemoryDisk()
    journal = MemoryJournal(disk)
    whole, _ = recover(journal, Model(bandit()))
    journal.append(LOG)
    fold(journal.read(), whole)
    journal.save_snapshot(8, whole.snapshot())
    for damaged, start in ((1, 0), (2, None)):
        for position in sorted(disk.snapshots)[-damaged:]:
            disk.snapshots[position] = b"harm"
        journal.close()
        journal = MemoryJournal(disk)
        again, recovery = recover(journal, Model(bandit()))
        assert recovery == Recovery(start, 8, Damage(snapshots=damaged))
        Lambda = again.bandit.states[None].Lambda
        assert Lambda.tobytes() == whole.bandit.states[None].Lambda.tobytes()


def draws(model, n=3):
    return [model.bandit.decide(np.eye(2)).scores.tolist() for _ in range(n)]


def test_no_draw_behind_a_decision_in_the_log_is_used_again():
    def sampling():
        return Model(vfb.Bandit(vfb.LinTS(), dim=2, seed=3))

    disk = MemoryDisk()
    journal = MemoryJournal(disk)
    model, _ = recover(journal, sampling())
    assert draws(model) == draws(sampling())  # a new log begins as the bandit itself would
    seen = [draws(sampling())]
    for number in range(4):
        journal.append([decided(number, 1.0, 0.0)])
        journal.close()
        journal = MemoryJournal(disk)
        seen.append(draws(recover(journal, sampling())[0]))
    flat = [score for run in seen for scores in run for score in scores]
    assert len(set(flat)) == len(flat)
    journal.close()
    assert draws(recover(MemoryJournal(disk), sampling())[0]) == seen[-1]  # it is a function


def test_another_kind_of_move_may_be_given():
    quarter = np.array([[0.0, 1.0], [-1.0, 0.0]])
    one = fold(log(LOG).read(), Model(bandit()))
    other = fold(log(LOG).read(), Model(bandit(), make_move=Rotation))
    assert_allclose(one.bandit.states[None].Lambda, other.bandit.states[None].Lambda)
    assert remask(quarter).kept == 2
    with pytest.raises(MaskError):
        remask(np.zeros((2, 2)))


def test_a_snapshot_of_a_bare_bandit_is_not_one_of_a_log():
    with pytest.raises(SnapshotError, match="a record at 'durable'"):
        Model.restore(0, bandit().snapshot())
    broken = Model(bandit()).snapshot()
    broken.header["durable"]["signed_roster"] = "?"
    with pytest.raises(SnapshotError, match="base64"):
        Model.restore(0, broken)


def test_a_journal_that_ends_early_is_refused():
    class Short(MemoryJournal):
        def read(self, after=0):
            yield from list(super().read(after))[:-1]

    journal = Short()
    journal.append(LOG)
    with pytest.raises(JournalError, match="readable up to 8, got 7"):
        recover(journal, Model(bandit()))
