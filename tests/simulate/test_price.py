"""The price of noise: the table and the plot of regret against ε."""

import tomllib

import numpy as np
import pytest

import vfbandits as vfb
from vfbandits.core.context import Split
from vfbandits.errors import SettingError
from vfbandits.simulate.contestant import Contestant, line_up, line_up_noise
from vfbandits.simulate.price import draw_prices, markdown, prices
from vfbandits.simulate.result import StudyResult
from vfbandits.simulate.study import Study
from vfbandits.simulate.study_file import read_study, write_study
from vfbandits.simulate.world import WorldSettings, even_widths

NOISES = [vfb.VectorNoise(epsilon, 1e-5, clip=0.5) for epsilon in (1.0, 1e6)]
CONTESTANTS = line_up_noise(vfb.LinUCB(), NOISES)


def result(finals, contestants=CONTESTANTS):
    study = Study(contestants=contestants, horizon=3, n_seeds=2)
    return StudyResult(study, tuple(np.full((2, 3), float(final)) for final in finals))


def test_the_benefit_left_is_between_central_and_alone():
    found = prices(result([10.0, 90.0, 30.0, 110.0]))
    assert [one.epsilon for one in found] == [1.0, 1e6]
    assert [one.benefit for one in found] == [pytest.approx(0.2), pytest.approx(0.8)]
    assert [one.sigma for one in found] == [noise.sigma for noise in NOISES]
    assert "| LinUCB, ε = 1 per vector | 3.731 | 90.0 | 20 % |" in markdown(found)


def test_without_a_bandit_alone_or_where_it_is_no_worse_there_is_no_benefit():
    assert [one.benefit for one in prices(result([10.0, 90.0, 30.0], CONTESTANTS[:-1]))] == [
        None
    ] * 2
    assert prices(result([110.0, 90.0, 30.0, 110.0]))[0].benefit is None
    assert "| – |" in markdown(prices(result([110.0, 90.0, 30.0, 110.0])))


def test_contestants_without_noise_have_no_price():
    assert prices(result([1.0] * 4, line_up(vfb.LinUCB()))) == []


def test_the_plot_has_a_point_for_each_epsilon_and_lines_for_central_and_alone():
    panel = draw_prices(result([10.0, 90.0, 30.0, 110.0])).axes[0]
    points = panel.containers[0].lines[0]
    assert points.get_xydata().tolist() == [[1.0, 90.0], [1e6, 30.0]]
    levels = {line.get_label(): line.get_ydata()[0] for line in panel.lines}
    assert levels["central LinUCB"] == 10.0
    assert levels["active LinUCB alone"] == 110.0
    assert panel.get_xlabel() == "ε per vector (log scale)"


def test_a_study_with_noise_is_written_and_read_back():
    study = Study(contestants=CONTESTANTS, horizon=3, n_seeds=1)
    text = write_study(study)
    assert '"unit" = "vector"' in text
    assert read_study(tomllib.loads(text)) == study


def test_much_noise_costs_more_regret_than_almost_none():
    world = WorldSettings(even_widths(12, 3), n_arms=5)
    noises = [vfb.VectorNoise(epsilon, 1e-5, 1.0) for epsilon in (1.0, 1e6)]
    contestants = line_up_noise(vfb.LinUCB(beta=1.0), noises)
    study = Study(contestants=contestants, world=world, horizon=150, n_seeds=1)
    central, noisy, clear, _ = (study.play(one, seed=0)[-1] for one in contestants)
    assert noisy > 1.5 * central
    assert clear < 1.2 * central


def test_the_active_participant_alone_sees_its_own_columns():
    alone = Contestant("alone", vfb.LinUCB(), features="active")
    assert alone.columns(Split.of({"shop": 2, "bank": 3})).tolist() == [0, 1]


def test_noise_without_a_federation_is_refused():
    with pytest.raises(SettingError, match="vector_noise goes with federated = true"):
        Contestant("a", vfb.LinUCB(), vector_noise=NOISES[0])
