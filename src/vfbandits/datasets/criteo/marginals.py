"""Aggregate facts about a sample of Criteo's Kaggle-2014 train file; no row of it is here.

kaggle2014_marginals.json was computed from 137,139 rows: gaps, quantiles and rank correlations of
the integers, fractions of the categories, click rates of the 40 most common labels.
"""

import json
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vfbandits.core.arrays import Matrix, Vector
from vfbandits.datasets.criteo.columns import CATEGORIES, NUMBERS


@dataclass(frozen=True, slots=True)
class NumberFacts:
    """One integer column: fraction missing, fraction of 0 among the rest, and their quantiles."""

    missing: float
    zeros: float
    levels: Vector = field(repr=False)
    quantiles: Vector = field(repr=False)


@dataclass(frozen=True, slots=True)
class CategoryFacts:
    """One categorical column: fraction missing, values, values seen once, largest fractions."""

    missing: float
    n_distinct: int
    n_singletons: int
    top_shares: Vector = field(repr=False)


@dataclass(frozen=True, slots=True)
class Marginals:
    """The whole file of facts.

    Attributes
    ----------
    patterns, pattern_shares
        Which of I1..I13 are missing together, (n_patterns, 13), and how often.
    spearman
        Rank correlations of I1..I13 where both are present, (13, 13).
    effects, missing_effects, intercept
        Least squares of click on log-scaled integers in [0, 1] and on flags for gaps.
    triples, arm_rows, arm_click_rates
        Counts (a, b, c) of the 40 most common labels, their rows and click rates.
    """

    n_rows: int
    click_rate: float
    numbers: dict[str, NumberFacts]
    categories: dict[str, CategoryFacts]
    patterns: NDArray[np.bool_] = field(repr=False)
    pattern_shares: Vector = field(repr=False)
    spearman: Matrix = field(repr=False)
    intercept: float
    effects: Vector = field(repr=False)
    missing_effects: Vector = field(repr=False)
    triples: NDArray[np.int64] = field(repr=False)
    arm_rows: NDArray[np.int64] = field(repr=False)
    arm_click_rates: Vector = field(repr=False)


@cache
def load_marginals() -> Marginals:
    """Read the file that comes with the package."""
    text = files(__package__).joinpath("kaggle2014_marginals.json").read_text(encoding="utf-8")
    facts = json.loads(text)
    patterns = facts["integer_missing_patterns"]
    shares = np.array(list(patterns.values()))
    regression = facts["click_ols_on_log_minmax"]
    arms = facts["p2b_hash_of_codes"]["top40"]
    return Marginals(
        n_rows=facts["rows"],
        click_rate=facts["ctr"],
        numbers={name: _number(facts["integer"][name]) for name in NUMBERS},
        categories={name: _category(facts["categorical"][name]) for name in CATEGORIES},
        patterns=np.array([[mark == "1" for mark in pattern] for pattern in patterns]),
        pattern_shares=shares / shares.sum(),  # rounded in the file
        spearman=np.array([facts["integer_spearman"][name] for name in NUMBERS]),
        intercept=regression["intercept"],
        effects=np.array([regression["coef"].get(name, 0.0) for name in NUMBERS]),
        missing_effects=np.array(
            [regression["coef"].get(f"{name}_missing", 0.0) for name in NUMBERS]
        ),
        triples=np.array([arm["triple"] for arm in arms]),
        arm_rows=np.array([arm["rows"] for arm in arms]),
        arm_click_rates=np.array([arm["ctr"] for arm in arms]),
    )


def _number(facts: dict[str, Any]) -> NumberFacts:
    levels, values = zip(*facts["quantiles"].items(), strict=True)
    return NumberFacts(
        facts["missing"],
        facts["zero_share_of_present"],
        np.array([float(level) for level in levels]),
        np.array(values),
    )


def _category(facts: dict[str, Any]) -> CategoryFacts:
    return CategoryFacts(
        facts["missing"], facts["distinct"], facts["singletons"], np.array(facts["top_shares"])
    )
