"""One cell: a policy, a reading of the noise, and a seed; full and partial bandits in one world."""

import math

from vfbandits.core.policy.registry import make_policy
from vfbandits.reproduce.config import number, numbers, whole, whole_numbers, word
from vfbandits.reproduce.curves import kept_rounds
from vfbandits.reproduce.rows import Row, Settings
from vfbandits.simulate.contestant import Contestant
from vfbandits.simulate.regret import cumulative_regret
from vfbandits.simulate.study import Study
from vfbandits.simulate.world import WorldSettings, even_widths

PARAMETERS = {"linucb": "beta", "lints": "posterior_scale"}
COMMON = ("dim", "participants", "arms", "horizon", "ridge", "ratios", "kept", "shown")


def cells(config: Settings) -> list[Settings]:
    """Policies × readings of N(0, 0.05) × seeds."""
    common = {key: config[key] for key in (*COMMON, "claim_horizon")}
    readings = {
        "deviation": number(config, "deviation"),
        "variance": math.sqrt(number(config, "variance")),
    }
    return [
        {
            **common,
            "policy": policy,
            "parameter": config[parameter],
            "reading": reading,
            "noise": noise,
            "seed": seed,
        }
        for seed in whole_numbers(config, "seeds")
        for reading, noise in readings.items()
        for policy, parameter in PARAMETERS.items()
    ]


def weight(settings: Settings) -> float:
    """Rough seconds."""
    return 4e-4 * whole(settings, "horizon")


def run_cell(settings: Settings) -> list[Row]:
    """Regret curves of the full (masked, all participants) and of the partial bandits."""
    study, seed = _study(settings), whole(settings, "seed")
    wanted = (whole(settings, "claim_horizon"), *whole_numbers(settings, "shown"))
    kept = kept_rounds(study.horizon, whole(settings, "kept"), *wanted)
    rows: list[Row] = []
    for contestant in study.contestants:
        player, rounds = study.player(contestant, seed), study.world_of(seed).rounds(study.horizon)
        regret = cumulative_regret(player, rounds)[kept - 1]
        rows += [
            {
                "policy": word(settings, "policy"),
                "reading": word(settings, "reading"),
                "contestant": contestant.name,
                "seed": seed,
                "round": turn,
                "regret": lost,
            }
            for turn, lost in zip(kept.tolist(), regret.tolist(), strict=True)
        ]
    return rows


def _study(settings: Settings) -> Study:
    kind = word(settings, "policy")
    policy = make_policy(kind, {PARAMETERS[kind]: number(settings, "parameter")})
    return Study(
        contestants=(
            Contestant("full", policy, federated=True, mask="blockwise"),
            *(Contestant(str(r), policy, features=r) for r in numbers(settings, "ratios")),
        ),
        world=WorldSettings(
            even_widths(whole(settings, "dim"), whole(settings, "participants")),
            n_arms=whole(settings, "arms"),
            noise=number(settings, "noise"),
        ),
        horizon=whole(settings, "horizon"),
        ridge=number(settings, "ridge"),
    )
