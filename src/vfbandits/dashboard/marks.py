"""Marks on the time axis: changes of settings, and participants that come and go."""

import json
from collections.abc import Iterable, Mapping
from typing import Final, Literal

from vfbandits.campaign.observer import Reconfigured
from vfbandits.dashboard.view import Mark

MAX_MARKS: Final = 100
_LINKS: Final[Mapping[str, tuple[Literal["here", "away"], str]]] = {
    "participant_joined": ("here", "connected"),
    "participant_left": ("away", "disconnected"),
    "circuit_opened": ("away", "stopped answering in time"),
    "circuit_closed": ("here", "answers again"),
}


def settings_mark(seen: Reconfigured) -> Mark:
    """The changed settings, with their values before and after.

    >>> settings_mark(Reconfigured("ads", b'{"mode": "learn"}', b'{"mode": "shadow"}', 9.0)).text
    'mode: learn → shadow'
    """
    before, after = _flat(seen.before), _flat(seen.after)
    changes = [
        f"{name}: {_text(before[name])} → {_text(value)}"
        for name, value in after.items()
        if name in before and before[name] != value
    ]
    return Mark(seen.at, "settings", ", ".join(changes) or "settings changed")


def link_marks(changes: Iterable[tuple[float, str, str]]) -> list[Mark]:
    """Changes of links (time, participant, event) as marks with a text.

    >>> [(mark.kind, mark.text) for mark in link_marks([(1.0, "bank", "participant_joined")])]
    [('here', 'bank connected')]
    """
    return [
        Mark(at, _LINKS[event][0], f"{name} {_LINKS[event][1]}")
        for at, name, event in changes
        if event in _LINKS
    ]


def _flat(settings: bytes) -> dict[str, object]:
    """Settings by name; those of the policy have its name before theirs."""
    try:
        values = json.loads(settings or b"{}")
    except ValueError:
        return {}
    flat: dict[str, object] = {}
    for name, value in values.items() if isinstance(values, Mapping) else ():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{inner}": each for inner, each in value.items()}
        else:
            flat[str(name)] = value
    return flat


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
