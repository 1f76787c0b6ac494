"""How estimates are spelled, written and drawn."""

import csv
from dataclasses import replace

import pytest

from vfbandits.errors import SettingError
from vfbandits.evaluate.evaluation import Estimate
from vfbandits.evaluate.output import CSV_HEADER, spell_interval, spell_relative, write_csv
from vfbandits.evaluate.plot import DOUBTED, TRUSTED, draw, save_plot

CLEAR = Estimate(
    "dr",
    "frozen",
    value=0.3,
    low=0.25,
    high=0.35,
    standard_error=0.02,
    gain_low=0.05,
    gain_high=0.15,
    logging_value=0.2,
    n_rounds=1000,
    effective_size=400.0,
)
NOTHING = replace(
    CLEAR, value=None, low=None, high=None, standard_error=None, gain_low=None, gain_high=None
)


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (CLEAR, "1.50× ▲"),
        (replace(CLEAR, gain_low=-0.2, gain_high=-0.1), "1.50× ▼"),
        (replace(CLEAR, gain_low=-0.1), "1.50×  "),
        (replace(CLEAR, doubts=("few rounds",)), "1.50×  "),
        (replace(CLEAR, logging_value=0.0), "–"),
        (NOTHING, "–"),
    ],
    ids=["better", "worse", "unclear", "doubted", "nothing_to_compare", "no_value"],
)
def test_a_gain_is_marked_only_where_it_is_clear_and_not_doubted(estimate, text):
    assert spell_relative(estimate) == text


def test_an_interval_is_both_ends_or_a_dash():
    assert spell_interval(CLEAR) == "0.25 to 0.35"
    assert spell_interval(NOTHING) == "–"


def test_rows_hold_every_column_and_nothing_for_no_value(tmp_path):
    write_csv([replace(CLEAR, doubts=("a, b", "c")), NOTHING], tmp_path / "rows.csv")
    with (tmp_path / "rows.csv").open() as file:
        first, second = csv.DictReader(file)
    assert tuple(first) == CSV_HEADER
    assert (first["value"], first["relative"], first["doubts"]) == (
        "0.3",
        "1.4999999999999998",
        "a, b; c",
    )
    assert (second["value"], second["relative"]) == ("", "")


def test_a_plot_shows_doubted_points_open_and_leaves_out_what_has_no_value():
    figure = draw([CLEAR, replace(CLEAR, doubts=("few rounds",)), NOTHING], title="$ and $")
    panel = figure.axes[0]
    points = [line for line in panel.lines if line.get_marker() == "o"]
    assert [(p.get_color(), p.get_markerfacecolor()) for p in points] == [
        (TRUSTED, TRUSTED),
        (DOUBTED, "white"),
    ]
    assert [label.get_text() for label in panel.get_yticklabels()] == ["dr (frozen)"] * 3


def test_a_plot_is_a_png_or_an_svg(tmp_path):
    with pytest.raises(SettingError, match=r"must end in \.png or \.svg, got 'plot.pdf'"):
        save_plot([CLEAR], tmp_path / "plot.pdf", title="")
