"""What the paper says of Fig. 4, and what the rows say."""

import numpy as np

from vfbandits.core.arrays import Vector
from vfbandits.reproduce.claim import Claim, ValueTable
from vfbandits.reproduce.config import number, whole, words
from vfbandits.reproduce.curves import curves_of, horizon_gap, spread, value
from vfbandits.reproduce.rows import Row, Settings

NAMES = {"linucb": ("LinUCB", "VFUCB", "Fig. 4a"), "lints": ("LinTS", "VFTS", "Fig. 4c")}
NORM_PLACES = {"linucb": "Fig. 4b", "lints": "Fig. 4d"}


def claims(rows: list[Row], config: Settings) -> list[Claim]:
    """Claims of both policies."""
    found = []
    for policy in NAMES:
        found += [
            *_lossless(rows, config, policy),
            _partial_is_worse(rows, config, policy),
            _gap_grows(rows, config, policy),
            _norms(rows, config, policy),
        ]
    return found


def tables(rows: list[Row], config: Settings) -> list[ValueTable]:
    """Final regrets of all contestants."""
    horizon = whole(config, "horizon")
    lines = []
    for policy, (plain, masked, _) in NAMES.items():
        central = curves_of(rows, "regret", policy=policy, contestant="central").at(horizon)
        for contestant in _contestants(rows):
            final = curves_of(rows, "regret", policy=policy, contestant=contestant).at(horizon)
            gap = curves_of(rows, "norm_gap", policy=policy, contestant=contestant).values
            name = f"{contestant} {plain}"
            if contestant in words(config, "masks"):
                name = f"{masked}, {contestant} mask"
            lines.append(
                (
                    name,
                    spread(final),
                    f"{final.mean() / central.mean():.2f}×",
                    f"{np.abs(gap).max():.1e}",
                )
            )
    header = ("contestant", "regret", "to central", "largest |norm gap|")
    return [ValueTable(f"After {horizon} rounds", header, tuple(lines))]


def _lossless(rows: list[Row], config: Settings, policy: str) -> list[Claim]:
    plain, masked, place = NAMES[policy]
    tolerance = number(config, "score_tolerance")
    found = []
    for mask in words(config, "masks"):
        mine = [
            row
            for row in rows
            if row["kind"] == "comparison" and row["policy"] == policy and row["contestant"] == mask
        ]
        equal = sum(int(value(row, "equal")) for row in mine)
        total = sum(int(value(row, "total")) for row in mine)
        largest = max(value(row, "largest_score_difference") for row in mine)
        found += [
            Claim.judged(
                f"{masked} has the same regret as central {plain} ({mask} mask).",
                place=place,
                measured=f"{equal} of {total} decisions equal",
                criterion="every decision equal",
                holds=equal == total,
            ),
            Claim.judged(
                f"Scores behind the {mask} mask are those of central {plain}, up to rounding.",
                place="ours",
                measured=f"largest difference {largest:.1e}",
                criterion=f"at most {tolerance:g}",
                holds=largest <= tolerance,
            ),
        ]
    return found


def _partial_is_worse(rows: list[Row], config: Settings, policy: str) -> Claim:
    plain, _, place = NAMES[policy]
    wanted = number(config, "partial_ratio")
    says = f"Partial {plain} ends with more than {wanted:g} times the regret of the full one."
    criterion = f"ratio above {wanted:g}"
    central, partial = _finals(rows, config, policy)
    ratio = partial.mean() / central.mean()
    measured = f"{ratio:.1f}× ({spread(partial)} to {spread(central)})"
    gap = horizon_gap(config)
    if gap:
        return Claim.unchecked(
            says, place=place, measured=measured, criterion=criterion, reason=gap
        )
    return Claim.judged(
        says, place=place, measured=measured, criterion=criterion, holds=ratio > wanted
    )


def _gap_grows(rows: list[Row], config: Settings, policy: str) -> Claim:
    plain, masked, _ = NAMES[policy]
    wanted = number(config, "partial_gap")
    says = (
        f"The regret of partial {plain} minus that of the full one grows all the time, to more "
        f"than {wanted:g}; for {masked} it stays at almost 0."
    )
    central = curves_of(rows, "regret", policy=policy, contestant="central")
    partial = curves_of(rows, "regret", policy=policy, contestant="partial")
    gap = partial.mean - central.mean
    masked_gaps = [
        float(np.abs(masked_curves.values - central.values).max())
        for mask in words(config, "masks")
        for masked_curves in [curves_of(rows, "regret", policy=policy, contestant=mask)]
    ]
    grows = bool((np.diff(gap) > 0.0).all())
    measured = (
        f"{'grows at every kept round' if grows else 'not at every kept round'} to {gap[-1]:.0f}; "
        f"{masked}: at most {max(masked_gaps):.1g}"
    )
    criterion = f"grows throughout, ends above {wanted:g}; {masked} below 1e-9"
    reason = horizon_gap(config)
    place = "section 5.2"
    if reason:
        return Claim.unchecked(
            says, place=place, measured=measured, criterion=criterion, reason=reason
        )
    holds = grows and gap[-1] > wanted and max(masked_gaps) < 1e-9
    return Claim.judged(says, place=place, measured=measured, criterion=criterion, holds=holds)


def _norms(rows: list[Row], config: Settings, policy: str) -> Claim:
    plain, masked, _ = NAMES[policy]
    tolerance = number(config, "norm_tolerance")
    largest = max(
        float(np.abs(curves_of(rows, "norm_gap", policy=policy, contestant=mask).values).max())
        for mask in words(config, "masks")
    )
    partial = curves_of(rows, "norm_gap", policy=policy, contestant="partial").mean[-1]
    return Claim.judged(
        f"The length of {masked}'s estimate is central {plain}'s, almost exactly; "
        "the partial one's gets there much later.",
        place=NORM_PLACES[policy],
        measured=f"{masked}: at most {largest:.1e} at any time; partial: {partial:+.3f} at the end",
        criterion=f"at most {tolerance:g}; partial further off",
        holds=bool(largest <= tolerance < abs(partial)),
        reason="the partial one never gets there: a part of θ is shorter than the whole",
    )


def _finals(rows: list[Row], config: Settings, policy: str) -> tuple[Vector, Vector]:
    horizon = whole(config, "horizon")
    return (
        curves_of(rows, "regret", policy=policy, contestant="central").at(horizon),
        curves_of(rows, "regret", policy=policy, contestant="partial").at(horizon),
    )


def _contestants(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(str(row["contestant"]) for row in rows))
