"""A policy from the keys of a settings file."""

from collections.abc import Mapping

from vfbandits.core.policy import OFUL, Policy
from vfbandits.core.policy.registry import make_policy
from vfbandits.errors import SettingError
from vfbandits.settings.table import Table

PAPER_PARAMETERS: dict[str, dict[str, object]] = {
    "linucb": {"beta": 0.5},
    "lints": {"posterior_scale": 0.01},
}


def policy_from(name: str, parameters: Mapping[str, object]) -> Policy:
    """A shipped policy; what is not given takes the paper's value, or else the policy's own.

    >>> policy_from("lints", {})
    LinTS(posterior_scale=0.01, space='auto', n_draws=1000)
    """
    given = {**PAPER_PARAMETERS.get(name, {}), **parameters}
    beta = given.get("beta")
    if isinstance(beta, dict):
        given["beta"] = _oful(Table(beta, where="beta"))
    return make_policy(name, given)


def _oful(table: Table) -> OFUL:
    if not table.has("noise"):
        raise SettingError("beta: wanted noise, got none")
    schedule = OFUL(
        noise=table.number("noise", 0.0),
        norm_bound=table.number("norm_bound", 1.0),
        delta=table.number("delta", 0.05),
    )
    table.close()
    return schedule
