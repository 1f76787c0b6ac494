"""Policy parameters as flags.  A flag that no chosen policy takes is an error."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated

import typer

from vfbandits.cli.choices import SpaceName
from vfbandits.cli.panels import FEDERATION, POLICY
from vfbandits.errors import SettingError

if TYPE_CHECKING:
    from vfbandits.core.policy import Policy

AcceptLeak = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="With --protection shares and layouts disjoint and outer: accept that rows of this "
        "passive participant, such as p2, can be read from what is released. Can be repeated.",
        show_default="none",
        rich_help_panel=FEDERATION,
    ),
]
Beta = Annotated[
    float | None,
    typer.Option(help="linucb: width multiplier.", show_default="0.5", rich_help_panel=POLICY),
]
PosteriorScale = Annotated[
    float | None,
    typer.Option(help="lints: scale of the posterior.", show_default="0.1", rich_help_panel=POLICY),
]
Space = Annotated[
    SpaceName | None,
    typer.Option(help="lints: space to sample in.", show_default="auto", rich_help_panel=POLICY),
]
Epsilon = Annotated[
    float | None,
    typer.Option(
        help="lingreedy: fraction of random rounds.", show_default="0", rich_help_panel=POLICY
    ),
]
Scale = Annotated[
    float | None,
    typer.Option(
        help="inverse_gap: gamma = scale·n^exponent.", show_default="10", rich_help_panel=POLICY
    ),
]
Exponent = Annotated[
    float | None,
    typer.Option(help="inverse_gap: see --scale.", show_default="0.5", rich_help_panel=POLICY),
]


def policies_from(names: Sequence[str], flags: Mapping[str, object]) -> "list[Policy]":
    """The named policies, each with those of ``flags`` that it takes; None is a flag not given.

    >>> policies_from(["linucb", "lints"], {"beta": 2.0, "posterior_scale": None})
    [LinUCB(beta=2.0), LinTS(posterior_scale=0.1, space='auto', n_draws=1000)]
    """
    from vfbandits.core.policy.registry import POLICIES, make_policy

    keys = {name: {field.name for field in fields(kind)} for name, kind in POLICIES.items()}
    given = {key: value for key, value in flags.items() if value is not None}
    for key in given:
        takers = [name for name, taken in keys.items() if key in taken]
        if not set(takers) & set(names):
            flag = "--" + key.replace("_", "-")
            raise SettingError(f"{flag} needs policy {' or '.join(takers)}, got {', '.join(names)}")
    return [
        make_policy(name, {key: value for key, value in given.items() if key in keys[name]})
        for name in names
    ]
