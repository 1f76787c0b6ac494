"""Policy parameters as flags.  A flag that no chosen policy takes is an error, not a silence."""

from collections.abc import Mapping, Sequence
from dataclasses import fields

from vfbandits.core.policy import Policy
from vfbandits.core.policy.registry import POLICIES
from vfbandits.errors import SettingError
from vfbandits.store.policy_table import policy_from


def policies_from(names: Sequence[str], flags: Mapping[str, object]) -> list[Policy]:
    """The named policies, each with those of ``flags`` that it takes; None is a flag not given.

    >>> policies_from(["linucb", "lints"], {"beta": 2.0, "posterior_scale": None})
    [LinUCB(beta=2.0), LinTS(posterior_scale=0.01, space='auto', n_draws=1000)]
    """
    given = {key: value for key, value in flags.items() if value is not None}
    for key in given:
        takers = [name for name, keys in _KEYS.items() if key in keys]
        if not set(takers) & set(names):
            flag = "--" + key.replace("_", "-")
            raise SettingError(
                f"{flag} goes with policy {' or '.join(takers)}, got {', '.join(names)}"
            )
    return [
        policy_from(name, {key: value for key, value in given.items() if key in _KEYS[name]})
        for name in names
    ]


_KEYS = {name: {field.name for field in fields(kind)} for name, kind in POLICIES.items()}
