"""Plots: files of the right kind, every line and band where the figures say."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import vfbandits as vfb
from vfbandits.errors import SettingError
from vfbandits.simulate.contestant import Contestant, line_up
from vfbandits.simulate.plot import CENTRAL, FEDERATED, draw, save_plot, styles
from vfbandits.simulate.result import StudyResult, half_widths
from vfbandits.simulate.study import Study


def result(n_seeds=5, contestants=None):
    contestants = contestants or (*line_up(vfb.LinUCB()), *line_up(vfb.LinTS()))
    study = Study(contestants=contestants, horizon=40, n_seeds=n_seeds)
    rng = np.random.default_rng(0)
    curves = [10.0 + np.cumsum(rng.random((n_seeds, 40)), axis=1) for _ in contestants]
    return StudyResult(study, tuple(curves))


def test_a_png_is_a_png_of_a_readable_size(tmp_path):
    save_plot(result(), tmp_path / "regret.png")
    content = (tmp_path / "regret.png").read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = (int.from_bytes(content[i : i + 4], "big") for i in (16, 20))
    assert width > 1200
    assert height > 600


def test_an_svg_is_an_svg_and_the_same_bytes_each_time(tmp_path):
    for name in ("one.svg", "two.svg"):
        save_plot(result(), tmp_path / name)
    one = (tmp_path / "one.svg").read_bytes()
    assert ET.fromstring(one).tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314  (our own file)
    assert one == (tmp_path / "two.svg").read_bytes()


def test_a_path_of_another_kind_is_refused(tmp_path):
    with pytest.raises(SettingError, match=r"must end in .png or .svg, got 'regret.pdf'"):
        save_plot(result(), tmp_path / "regret.pdf")
    assert not list(tmp_path.iterdir())


def test_each_kind_of_policy_has_a_panel_with_all_its_lines_and_bands():
    drawn = result()
    figure = draw(drawn)
    assert [panel.get_title() for panel in figure.axes] == ["LinUCB", "LinTS"]
    for start, panel in zip((0, 4), figure.axes, strict=True):
        assert panel.get_yscale() == "log"
        assert panel.get_xlabel() == "round"
        contestants = drawn.study.contestants[start : start + 4]
        texts = [text.get_text() for text in panel.get_legend().get_texts()]
        assert texts == [contestant.name for contestant in contestants]
        assert len(panel.lines) == len(panel.collections) == 4
        for line, band, curves in zip(
            panel.lines, panel.collections, drawn.curves[start : start + 4], strict=True
        ):
            mean, half = curves.mean(axis=0), half_widths(curves)
            assert_array_equal(line.get_ydata(), mean)
            heights = band.get_paths()[0].vertices[:, 1]
            assert_allclose(heights.max(), (mean + half).max())
            assert_allclose(heights.min(), (mean - half).min())
    assert "regret" in figure.axes[0].get_ylabel()
    assert "100 features of 5 participants, 10 arms" in figure.get_suptitle()


def test_the_legend_stands_below_the_panel_where_it_covers_no_line():
    figure = draw(result())
    figure.draw_without_rendering()
    for panel in figure.axes:
        assert panel.get_legend().get_window_extent().y1 < panel.get_window_extent().y0


def test_the_title_fits_the_figure_also_with_one_panel():
    figure = draw(result(contestants=line_up(vfb.LinUCB())))
    figure.draw_without_rendering()
    title = figure._suptitle.get_window_extent()  # noqa: SLF001  (no public way to its extent)
    assert title.x0 >= 0
    assert title.x1 <= figure.bbox.x1


def test_one_seed_has_lines_and_no_bands():
    for panel in draw(result(n_seeds=1)).axes:
        assert len(panel.lines) == 4
        assert not panel.collections


@pytest.mark.parametrize("n_seeds", [2, 4])
def test_few_seeds_are_drawn_as_runs_and_not_as_a_band(n_seeds):
    """With two seeds the interval is 12.7 standard errors to either side: it says nothing."""
    drawn = result(n_seeds=n_seeds, contestants=(Contestant("a", vfb.LinUCB()),))
    figure = draw(drawn)
    (panel,) = figure.axes
    assert not panel.collections
    *runs, mean = panel.lines
    assert_array_equal([run.get_ydata() for run in runs], drawn.curves[0])
    assert_array_equal(mean.get_ydata(), drawn.curves[0].mean(axis=0))
    assert max(run.get_linewidth() for run in runs) < mean.get_linewidth()
    assert [text.get_text() for text in panel.get_legend().get_texts()] == ["a"]
    assert f"mean and runs of {n_seeds} seeds" in figure.get_suptitle()


def test_a_band_that_would_reach_below_zero_ends_at_a_positive_number():
    wide = result(contestants=(Contestant("a", vfb.LinUCB()),))
    wide.curves[0][:] = np.array([[1.0, 1.0, 1.0, 1.0, 99.0]]).T
    heights = draw(wide).axes[0].collections[0].get_paths()[0].vertices[:, 1]
    assert heights.min() > 0.0


def test_a_study_without_any_regret_can_be_drawn(tmp_path):
    nothing = result(contestants=(Contestant("a", vfb.LinUCB()),))
    nothing.curves[0][:] = 0.0
    save_plot(nothing, tmp_path / "regret.png")
    assert (tmp_path / "regret.png").stat().st_size > 0


def test_central_is_wide_and_solid_and_masked_is_dashed_on_top():
    central, masked, *_ = styles(list(line_up(vfb.LinUCB())))
    assert (central, masked) == (CENTRAL, FEDERATED)
    assert central.width > masked.width
    assert central.layer < masked.layer
    assert central.dashes == "-" != masked.dashes


def test_up_to_25_other_lines_look_different_from_each_other():
    contestants = [Contestant(str(i), vfb.LinUCB(), features=0.5) for i in range(25)]
    assert len(set(styles(contestants))) == 25


def test_names_are_drawn_as_they_are_even_with_dollar_signs(tmp_path):
    odd = result(contestants=(Contestant(r"costs $\frac$ <&>", vfb.LinUCB()),))
    save_plot(odd, tmp_path / "regret.svg")
    ET.fromstring((tmp_path / "regret.svg").read_bytes())  # noqa: S314


def test_without_matplotlib_the_error_names_the_extra():
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from pathlib import Path; from vfbandits.simulate.output import prepare_folder\n"
        "try: prepare_folder(Path('.'), plot_format='png')\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert re.match(
        r"FeatureError plotting needs matplotlib.*vfb[a-z]+\[experiments\]", done.stdout
    )


def test_nothing_but_drawing_imports_matplotlib():
    program = "import sys, vfbandits.cli.main; sys.exit('matplotlib' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
