"""Policies by name, so that a snapshot or a settings file can tell which one it means."""

from dataclasses import asdict

from vfbandits.core.policy.base import Policy
from vfbandits.core.policy.greedy import LinGreedy
from vfbandits.core.policy.inverse_gap import InverseGap
from vfbandits.core.policy.lints import LinTS
from vfbandits.core.policy.linucb import OFUL, LinUCB
from vfbandits.core.snapshot import Record
from vfbandits.errors import NotBlindError, SettingError, SnapshotError

POLICIES: dict[str, type[LinUCB] | type[LinTS] | type[LinGreedy] | type[InverseGap]] = {
    "linucb": LinUCB,
    "lints": LinTS,
    "lingreedy": LinGreedy,
    "inverse_gap": InverseGap,
}


def describe(policy: Policy) -> dict[str, object]:
    """Name and parameters of a shipped policy; of one that another object carries, its own."""
    policy = getattr(policy, "policy", policy)
    for name, kind in POLICIES.items():
        if isinstance(policy, kind):
            return {"name": name, **asdict(policy)}
    raise SnapshotError(
        f"a snapshot can name {', '.join(POLICIES)}, got a {type(policy).__name__}; "
        "pass your own policy to restore() instead"
    )


def revive(record: Record) -> Policy:
    """The policy that ``describe`` named."""
    name = record.text("name")
    parameters = {key: value for key, value in record.values.items() if key != "name"}
    return make_policy(name, parameters)


def make_policy(name: str, parameters: dict[str, object]) -> Policy:
    """A shipped policy from its name and keyword parameters; ``beta`` may be OFUL's.

    >>> make_policy("linucb", {"beta": 0.5})
    LinUCB(beta=0.5)
    """
    if name not in POLICIES:
        raise SettingError(f"policy must be one of {', '.join(POLICIES)}, got {name!r}")
    beta = parameters.get("beta")
    try:
        if isinstance(beta, dict):
            parameters = {**parameters, "beta": OFUL(**beta)}
        return POLICIES[name](**parameters)  # type: ignore[arg-type]  # checked by the policy
    except TypeError as error:
        raise SettingError(f"policy {name!r} does not take these parameters: {error}") from error


def refuse_unless_policy(policy: object) -> None:
    """A policy scores statistics; anything that wants contexts is not blind to a mask."""
    if isinstance(policy, type):
        raise SettingError(f"wanted a policy object, got the class {policy.__name__}: call it")
    if getattr(policy, "needs_contexts", False):
        raise NotBlindError(
            f"{type(policy).__name__} asks for contexts; a policy may see arm statistics only, "
            "since contexts look different behind a mask"
        )
    if not callable(getattr(policy, "score", None)):
        raise SettingError(f"a policy needs a method score(statistics, rng), got {policy!r}")
