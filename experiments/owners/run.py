"""One cell: a data set, a policy, its first owners, and a shuffle of the rows."""

from pathlib import Path

from vfbandits.core.policy import LinTS, LinUCB
from vfbandits.core.policy.base import Policy
from vfbandits.datasets.owners import available, load_owned
from vfbandits.datasets.owners_study import OwnersCell, play_owners
from vfbandits.reproduce.config import number, whole, whole_numbers, word, words
from vfbandits.reproduce.rows import Row, Settings

POLICIES = ("linucb", "lints")


def cells(config: Settings) -> list[Settings]:
    """Sets × policies × owners from one to all × seeds.

    Of the folder that the user names every set must be there; otherwise those that happen to be.
    """
    data = word(config, "data")
    sets = [name for name in words(config, "sets") if data or name in available()]
    return [
        {
            "set": name,
            "policy": policy,
            "parameter": config["beta" if policy == "linucb" else "posterior_scale"],
            "owners": count,
            "rounds": config["rounds"],
            "seed": seed,
            "data": data,
        }
        for name in sets
        for seed in whole_numbers(config, "seeds")
        for policy in POLICIES
        for count in range(1, len(load_owned(name, folder=_folder(data)).owners) + 1)
    ]


def weight(settings: Settings) -> float:
    """Rough seconds."""
    return 4e-4 * whole(settings, "rounds")


def run_cell(settings: Settings) -> list[Row]:
    """Relative CTR of one masked federation."""
    played = play_owners(
        OwnersCell(
            word(settings, "set"),
            _policy(settings),
            whole(settings, "owners"),
            whole(settings, "seed"),
            n_rounds=whole(settings, "rounds"),
            folder=_folder(word(settings, "data")),
        )
    )
    return [
        {
            "set": played.name,
            "policy": word(settings, "policy"),
            "owners": played.n_owners,
            "last_owner": played.owners[-1],
            "seed": played.seed,
            "rounds": played.n_rounds,
            "relative_ctr": played.relative_ctr,
        }
    ]


def _policy(settings: Settings) -> Policy:
    parameter = number(settings, "parameter")
    if word(settings, "policy") == "linucb":
        return LinUCB(beta=parameter)
    return LinTS(posterior_scale=parameter)


def _folder(data: str) -> Path | None:
    return Path(data) if data else None
