"""Studies: everyone in the same world, the same figures each time, clear refusals."""

import csv
import tomllib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import vfbandits as vfb
from vfbandits.core.context import Split
from vfbandits.errors import SettingError
from vfbandits.settings.decode import load_document
from vfbandits.simulate.contestant import Contestant, line_up
from vfbandits.simulate.output import markdown, prepare_folder, write_result
from vfbandits.simulate.pool import run_study
from vfbandits.simulate.result import StudyResult, half_widths
from vfbandits.simulate.study import Study
from vfbandits.simulate.study_file import read_study, write_study
from vfbandits.simulate.world import WorldSettings, even_widths

SMALL = Study(
    contestants=(
        *line_up(vfb.LinUCB(beta=0.5), partial=(0.3, ("p1", "p3")), mask="dense"),
        *line_up(vfb.LinTS(posterior_scale=0.1), partial=(0.8,)),
    ),
    world=WorldSettings(even_widths(10, 4), n_arms=5),
    horizon=60,
    n_seeds=3,
)


@pytest.fixture(scope="module")
def small():
    return run_study(SMALL)


def made_up(curves, **settings):
    policies = (vfb.LinUCB(), vfb.LinUCB(), vfb.LinTS(), vfb.LinTS())
    contestants = tuple(
        Contestant(name, policy) for name, policy in zip("abcd", policies, strict=True)
    )
    study = Study(contestants=contestants, horizon=3, n_seeds=len(curves[0]), **settings)
    return StudyResult(study, tuple(np.array(curve, dtype=float) for curve in curves))


def test_the_defaults_are_the_papers():
    study = Study()
    assert dict(study.world.widths) == {"p1": 20, "p2": 20, "p3": 20, "p4": 20, "p5": 20}
    assert (study.world.n_arms, study.world.noise, study.world.layout) == (10, 0.05, "per_arm")
    assert (study.horizon, study.ridge, study.n_seeds) == (5000, 1.0, 5)
    assert [c.name for c in study.contestants] == [
        "central LinUCB",
        "masked LinUCB (VFUCB)",
        "partial LinUCB 0.2",
        "partial LinUCB 0.8",
        "central LinTS",
        "masked LinTS (VFTS)",
        "partial LinTS 0.2",
        "partial LinTS 0.8",
    ]
    assert {c.policy for c in study.contestants} == {
        vfb.LinUCB(beta=0.5),
        vfb.LinTS(posterior_scale=0.01),
    }


def test_the_figures_are_bit_for_bit_the_same_whatever_the_number_of_processes(small):
    told = []
    spawned = run_study(SMALL, processes=3, on_run=lambda done, total: told.append((done, total)))
    for one, other in zip(small.curves, spawned.curves, strict=True):
        assert_array_equal(one, other)
    assert small.table() == spawned.table()
    assert list(small.rows()) == list(spawned.rows())
    assert told == [(done, 21) for done in range(1, 22)]


def test_masked_contestants_have_exactly_the_regret_of_their_central_twins(small):
    names = [contestant.name for contestant in SMALL.contestants]
    curve = dict(zip(names, small.curves, strict=True))
    assert_array_equal(curve["masked LinUCB (VFUCB)"], curve["central LinUCB"])
    assert_array_equal(curve["masked LinTS (VFTS)"], curve["central LinTS"])
    assert np.abs(curve["partial LinUCB 0.3"] - curve["central LinUCB"]).max() > 0.1


def test_every_contestant_of_one_seed_sees_the_same_world_and_seeds_differ(small):
    # Two alike under different names: only the world could tell them apart.
    alike = tuple(Contestant(name, vfb.LinUCB(beta=0.0), features=("p1",)) for name in "ab")
    result = run_study(replace(SMALL, contestants=alike))
    assert_array_equal(*result.curves)
    assert len({float(final) for final in small.curves[0][:, -1]}) == SMALL.n_seeds


def test_more_seeds_and_more_contestants_leave_the_others_figures_alone(small):
    fewer = replace(SMALL, contestants=SMALL.contestants[2:3], n_seeds=1, first_seed=1)
    assert_array_equal(run_study(fewer).curves[0][0], small.curves[2][1])


def test_half_widths_are_those_of_a_t_interval():
    samples = np.array([[10.0], [12.0], [15.0], [11.0], [14.0]])
    # mean 12.4, s = 2.0736, t(0.975; 4) = 2.776445: from a printed table.
    assert_allclose(half_widths(samples), [2.776445 * 2.0736441 / np.sqrt(5)], rtol=1e-6)


@given(st.integers(2, 9), st.integers(0, 2**32))
def test_t_intervals_cover_the_truth_in_95_of_100_cases(n, seed):
    samples = np.random.default_rng(seed).standard_normal((n, 4_000))
    covered = np.abs(samples.mean(axis=0)) <= half_widths(samples)
    assert 0.93 < covered.mean() < 0.97


def test_the_table_has_means_intervals_and_ratios_within_each_kind_of_policy():
    result = made_up(
        [[[1, 2, 2], [1, 2, 4]], [[0, 0, 30], [0, 0, 30]], [[5, 5, 5]] * 2, [[0, 0, 20]] * 2]
    )
    first, second, third, fourth = result.table()
    assert (first.contestant, first.mean, first.ratio) == ("a", 3.0, 1.0)
    assert first.half_width == pytest.approx(12.7062047 * np.sqrt(2.0) / np.sqrt(2.0))
    assert (second.mean, second.half_width, second.ratio) == (30.0, 0.0, 10.0)
    assert (third.ratio, fourth.ratio) == (1.0, 4.0)


def test_one_seed_gives_no_interval_and_no_regret_gives_no_ratio():
    result = made_up([[[0, 0, 0]], [[1, 2, 3]], [[1, 1, 1]], [[1, 1, 1]]])
    assert [s.half_width for s in result.table()] == [None] * 4
    assert [s.ratio for s in result.table()] == [None, None, 1.0, 1.0]
    assert "| b | 3.0 | – |" in markdown(result)


def test_rows_hold_every_contestant_seed_and_kept_round(small, tmp_path):
    prepare_folder(tmp_path / "new" / "folder", plot_format="none")
    paths = write_result(small, tmp_path / "new" / "folder", plot_format="none")
    assert [path.name for path in paths] == ["regret.csv", "table.md", "study.toml"]
    with paths[0].open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["contestant", "seed", "round", "regret"]
    assert len(rows) == 7 * 3 * 60
    assert float(rows[-1]["regret"]) == small.curves[-1][-1, -1]
    assert (rows[-1]["seed"], rows[-1]["round"]) == ("2", "60")


def test_what_is_written_as_study_toml_reads_back_as_the_same_study(tmp_path):
    study = Study(
        contestants=(
            Contestant('quoted "name" \\ β|$', vfb.LinUCB(beta=vfb.OFUL(noise=0.1, delta=0.01))),
            Contestant("b", vfb.InverseGap(scale=1e-7), features=("bank", "the shop")),
            Contestant("c", vfb.LinGreedy(epsilon=0.5), features=0.07),
            Contestant("d", vfb.LinTS(n_draws=7), federated=True, mask="dense"),
        ),
        world=WorldSettings(
            {"the shop": 3, "bank": 4}, n_arms=3, layout="outer", arm_dim=2, noise=0
        ),
        horizon=9,
        ridge=1e20,
        discount=1.0,
        floor=0.25,
        n_seeds=2,
        first_seed=11,
    )
    path = tmp_path / "study.toml"
    path.write_text(write_study(study), encoding="utf-8")
    assert read_study(load_document(path)) == study


def test_an_empty_document_is_the_papers_study():
    assert read_study({}) == Study()


@pytest.mark.parametrize(
    ("ratio", "dim", "count"),
    [(0.2, 100, 20), (0.07, 100, 7), (0.01, 10, 1), (0.55, 10, 6), (1.0, 3, 3)],
)
def test_a_ratio_means_the_first_columns_rounded_up(ratio, dim, count):
    columns = Contestant("a", vfb.LinUCB(), features=ratio).columns(Split.of(even_widths(dim, 2)))
    assert_array_equal(columns, np.arange(count))


def test_participants_mean_their_columns_in_the_worlds_order():
    split = Split.of({"shop": 2, "bank": 3, "news": 1})
    contestant = Contestant("a", vfb.LinUCB(), features=("news", "shop"))
    assert_array_equal(contestant.columns(split), [0, 1, 5])
    assert contestant.participants(split) == ("shop", "news")


BAD_DOCUMENTS = [
    ("roundz = 5", "^roundz is not a key, but rounds is"),
    ('rounds = "many"', "rounds must be a whole number, got text"),
    ("rounds = true", "rounds must be a whole number, got true"),
    ("rounds = 0", "rounds must be a whole number from 1, got 0"),
    ("arms = 2.5", "arms must be a whole number, got 2.5"),
    ("noise = nan", "noise must be a finite number, got nan"),
    ("noise = -1", "noise must be a number of at least 0"),
    ("ridge = 0", "ridge must be a positive number, got 0"),
    ("ridge = [1, 2]", "ridge must be a number, got a list"),
    ("discount = 2", r"discount must be in \(0, 1\], got 2"),
    ("floor = 7", "floor must be between 0 and 1, got 7"),
    ('layout = "round"', "layout must be one of per_arm, outer, disjoint, got 'round'"),
    ("seeds = 0", "seeds must be a whole number from 1, got 0"),
    ("seed = -1", "seed must be a whole number from 0, got -1"),
    ("widths = 5", "widths must be a list or a table, got 5"),
    ('widths = [5, "x"]', r"widths\[1\] must be a whole number, got text"),
    ("widths = [5]", "an active and a passive participant, got 1"),
    ("widths = [5, 5]\ndim = 10", "widths replaces dim and participants, got widths and dim"),
    ("dim = 3", "dim must give each of 5 participants a feature, got 3"),
    ("contestant = 3", "contestant must be a list of tables, not empty, got 3"),
    ("contestant = []", "contestant must be a list of tables, not empty, got an empty list"),
    ('[[contestant]]\nname = "a"', r"contestant\[0\].policy is missing, wanted one of .*linucb"),
    ('[[contestant]]\npolicy = "linucb"', r"contestant\[0\].name is missing, wanted text"),
    ('[[contestant]]\nname = ""\npolicy = "linucb"', r"contestant\[0\].name must be printable"),
    (
        '[[contestant]]\nname = "a"\npolicy = "ucb"',
        r"contestant\[0\].policy must be one of .*linucb, got 'ucb'",
    ),
]
BAD_CONTESTANTS = [
    ("betta = 1", r"contestant\[0\].betta is not a key, but contestant\[0\].beta is"),
    ('beta = "x"', r"contestant\[0\].beta must be a number or a table, got text"),
    ("beta = { delta = 0.1 }", r"contestant\[0\].beta.noise is missing, wanted a number"),
    (
        'beta = { noise = 0.1, delta = "x" }',
        r"contestant\[0\].beta.delta must be a number, got text",
    ),
    (
        "beta = { noise = 0.1, delta = 2 }",
        r"contestant\[0\].beta.delta must be between 0 and 1, got 2",
    ),
    (
        "beta = { noise = 0.1, dleta = 0.2 }",
        r"\.dleta is not a key, but contestant\[0\].beta.delta is",
    ),
    ("posterior_scale = 1", r"\.posterior_scale goes with policy 'lints', got policy 'linucb'"),
    (
        "features = 1.5",
        r"contestant\[0\].features must be 'all', 'active', a ratio between 0 and 1.* got 1.5",
    ),
    ("features = 0", r"contestant\[0\].features must be .* got 0.0"),
    ('features = "some"', r"contestant\[0\].features must be .* got 'some'"),
    ("features = []", r"contestant\[0\].features must be .* got \(\)"),
    ("features = true", r"contestant\[0\].features must be .* got true"),
    ('features = ["p1", "p1"]', "each once; got"),
    ('features = ["p9"]', "contestant 'a': features must name some of p1, .* got p9"),
    ('federated = "yes"', r"contestant\[0\].federated must be true or false, got text"),
    (
        "federated = true\nfeatures = 0.5",
        r"contestant\[0\].features .*a ratio may cut a block in two; got 0.5",
    ),
    ('federated = true\nfeatures = ["p2", "p3"]', "must hold the active participant 'p1'"),
    ('federated = true\nfeatures = ["p1"]', "contestant 'a': .* passive participant, got 1"),
    ('mask = "dense"', r"contestant\[0\].mask goes with federated = true"),
    ('federated = true\nmask = "dens"', "contestant 'a': mask must be one of blockwise, dense"),
    ('protection = "shares"', r"contestant\[0\].protection goes with federated = true"),
    ('federated = true\nprotection = "share"', "contestant 'a': protection must be one of mask"),
    ('federated = true\naggregation = "secure"', "contestant 'a': secure .* needs mask='dense'"),
]


@pytest.mark.parametrize(("text", "message"), BAD_DOCUMENTS)
def test_a_bad_study_file_gives_one_error_that_names_the_key(text, message):
    with pytest.raises(SettingError, match=message):
        read_study(tomllib.loads(text))


@pytest.mark.parametrize(("text", "message"), BAD_CONTESTANTS)
def test_a_bad_contestant_gives_one_error_that_names_it_and_the_key(text, message):
    head = '[[contestant]]\nname = "a"\npolicy = "linucb"\n'
    with pytest.raises(SettingError, match=message):
        read_study(tomllib.loads(head + text))


def test_two_contestants_of_one_name_are_refused():
    twins = (Contestant("a", vfb.LinUCB()), Contestant("a", vfb.LinTS()))
    with pytest.raises(SettingError, match="a name of its own, got 'a' twice"):
        Study(contestants=twins)


def test_a_study_without_contestants_is_refused():
    with pytest.raises(SettingError, match="at least one contestant"):
        Study(contestants=())


def test_a_study_on_no_process_is_refused():
    with pytest.raises(SettingError, match="processes must be a whole number from 1, got 0"):
        run_study(SMALL, processes=0)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"rounds = ", "must be a TOML file, but"), (b"\xff", "must be a TOML")],
)
def test_a_file_that_is_no_toml_is_refused_with_its_path(tmp_path, content, message):
    path = tmp_path / "study.toml"
    path.write_bytes(content)
    with pytest.raises(SettingError, match=f"study.toml {message}"):
        load_document(path)


def test_a_file_that_is_not_there_is_refused_with_its_path(tmp_path):
    with pytest.raises(
        SettingError, match=r"absent\.toml must be a file to read, got: No such file"
    ):
        load_document(tmp_path / "absent.toml")


def test_a_folder_that_cannot_be_written_is_refused_before_anything_runs(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingError, match="out must be a folder to write to"):
        prepare_folder(tmp_path / "file", plot_format="none")


def test_preparing_a_folder_leaves_it_empty(tmp_path):
    prepare_folder(tmp_path / "out", plot_format="png")
    assert list((tmp_path / "out").iterdir()) == []
