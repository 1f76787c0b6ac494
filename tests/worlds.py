"""Hypothesis strategies: rounds of a federation, friendly and nasty."""

import os
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

import vfbandits as vfb
from vfbandits.simulate.parity import ParityRound

# Properties that name their number of examples multiply it by this: `make test-long` tries more.
MORE = 20 if os.environ.get("HYPOTHESIS_PROFILE") == "explore" else 1
KINDS = ("normal", "small_whole", "duplicates", "zeros", "collinear", "unit", "few")

policies = st.sampled_from(
    [
        vfb.LinUCB(beta=0.5),
        vfb.LinUCB(beta=0.0),
        vfb.LinUCB(beta=vfb.OFUL(noise=0.1)),
        vfb.LinTS(posterior_scale=0.3),
        vfb.LinTS(posterior_scale=1.0, space="arm"),
        vfb.LinTS(posterior_scale=0.5, space="parameter"),
        vfb.LinGreedy(),
        vfb.LinGreedy(epsilon=0.3),
        vfb.InverseGap(scale=5.0),
        vfb.InverseGap(scale=100.0, exponent=0.0),
    ]
)


@dataclass(frozen=True)
class Case:
    policy: object
    widths: dict
    options: dict
    rounds: list

    def federation(self):
        return vfb.Federation(self.policy, widths=self.widths, **self.options)


def contexts(rng, kind, n_rows, dim):
    X = rng.standard_normal((n_rows, dim))
    if kind == "small_whole":
        X = np.rint(X)
    elif kind == "duplicates":
        X = X[rng.integers(0, max(1, n_rows // 2), size=n_rows)]
    elif kind == "zeros":
        X = X * rng.integers(0, 2, size=(n_rows, 1))
    elif kind == "collinear":
        X = X[:1] * rng.integers(-2, 3, size=(n_rows, 1))
    elif kind == "unit":
        X = X / np.linalg.norm(X, axis=1, keepdims=True)
    elif kind == "few":  # the same three rows again and again, so that rewards can cancel
        X = np.rint(np.random.default_rng(dim).standard_normal((3, dim)))[
            rng.integers(3, size=n_rows)
        ]
    return X


@st.composite
def cases(draw, max_rounds=12):
    policy = draw(policies)
    n_participants = draw(st.integers(2, 4))
    widths = {f"p{j}": draw(st.integers(1, 3)) for j in range(n_participants)}
    layout = draw(st.sampled_from(["per_arm", "outer", "disjoint"]))
    choices = [("blockwise", "plain"), ("dense", "plain")]
    if n_participants > 2:
        choices.append(("dense", "secure"))
    mask, aggregation = draw(st.sampled_from(choices))
    forgets = not isinstance(getattr(policy, "beta", None), vfb.OFUL)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    options = {
        "layout": layout,
        "mask": mask,
        "aggregation": aggregation,
        "arm_dim": 2 if layout == "outer" else None,
        "intercept": layout != "per_arm" and draw(st.booleans()),
        "ridge": draw(st.sampled_from([0.01, 0.5, 1.0, 30.0])),
        "discount": draw(st.sampled_from([1.0, 0.9, 0.5])) if forgets else 1.0,
        "floor": draw(st.sampled_from([0.0, 0.2])),
        "seed": int(rng.integers(2**32)),
        "entropy": rng.bytes,
    }
    kind = draw(st.sampled_from(KINDS))
    whole_rewards = draw(st.booleans())
    missing = draw(st.sampled_from([0.0, 0.3]))
    n_rounds = draw(st.integers(1, max_rounds))
    rounds = [_round(rng, layout, widths, kind, whole_rewards, missing) for _ in range(n_rounds)]
    return Case(policy, widths, options, rounds)


def _round(rng, layout, widths, kind, whole_rewards, missing):
    n_arms = int(rng.integers(1, 9))
    names = [f"arm{i}" for i in rng.permutation(10)[:n_arms]]
    X = contexts(rng, kind, n_arms if layout == "per_arm" else 1, sum(widths.values()))
    parts = np.split(X, np.cumsum(list(widths.values()))[:-1], axis=1)
    blocks = {
        name: part if layout == "per_arm" else part[0]
        for place, (name, part) in enumerate(zip(widths, parts, strict=True))
        if place == 0 or rng.random() >= missing
    }
    rewards = rng.standard_normal(n_arms)
    if whole_rewards:
        rewards = np.rint(rewards)
    features = contexts(rng, kind, n_arms, 2) if layout == "outer" else None
    return ParityRound(blocks, rewards, arms=tuple(names), arm_features=features)
