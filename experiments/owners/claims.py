"""Whether every further owner helps, data set by data set."""

import numpy as np

from vfbandits.core.arrays import Vector
from vfbandits.reproduce.claim import Claim, ValueTable
from vfbandits.reproduce.config import number, words
from vfbandits.reproduce.curves import spread
from vfbandits.reproduce.rows import Row, Settings

SHORT_RUN = 1_000
NAMES = {"linucb": "LinUCB", "lints": "LinTS"}


def claims(rows: list[Row], config: Settings) -> list[Claim]:
    """One for each data set, both policies together."""
    return [_claim(rows, config, name) for name in words(config, "sets")]


def tables(rows: list[Row], config: Settings) -> list[ValueTable]:
    """Relative CTR by number of owners."""
    found = []
    for name in words(config, "sets"):
        counts = _counts(rows, name)
        if not counts:
            continue
        last = {row["owners"]: str(row["last_owner"]) for row in rows if row["set"] == name}
        header = ("", *(f"{count}: + {last[count]}" for count in counts))
        lines = tuple(
            (label, *(spread(_values(rows, name, policy, count)) for count in counts))
            for policy, label in NAMES.items()
        )
        found.append(ValueTable(f"{name}: relative CTR as owners join", header, lines))
    return found


def _claim(rows: list[Row], config: Settings, name: str) -> Claim:
    slack = number(config, "slack")
    says = f"Each owner that joins improves recommendations on {name}."
    criterion = f"no step below −{slack:.0%}, and more with all owners than with the first"
    counts = _counts(rows, name)
    if not counts:
        reason = "the data set is not there; --data FOLDER says where it is"
        return Claim.unchecked(says, place="ours", criterion=criterion, reason=reason)
    holds, spelt = True, []
    for policy, label in NAMES.items():
        means = np.array([_values(rows, name, policy, count).mean() for count in counts])
        holds &= bool((means[1:] >= (1.0 - slack) * means[:-1]).all() and means[-1] > means[0])
        spelt.append(f"{label} {' → '.join(f'{mean:.2f}' for mean in means)}")
    measured, rounds = "; ".join(spelt), min(int(str(r["rounds"])) for r in rows)
    if rounds < SHORT_RUN:
        reason = f"{rounds} rounds are too few to learn in"
        return Claim.unchecked(
            says, place="ours", measured=measured, criterion=criterion, reason=reason
        )
    return Claim.judged(says, place="ours", measured=measured, criterion=criterion, holds=holds)


def _counts(rows: list[Row], name: str) -> list[int]:
    return sorted({int(str(row["owners"])) for row in rows if row["set"] == name})


def _values(rows: list[Row], name: str, policy: str, count: int) -> Vector:
    wanted = (name, policy, count)
    return np.array(
        [
            float(str(row["relative_ctr"]))
            for row in rows
            if (row["set"], row["policy"], row["owners"]) == wanted
        ]
    )
