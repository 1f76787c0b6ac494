"""A status document as a table for the terminal."""

from collections.abc import Mapping

from rich.box import SIMPLE_HEAD
from rich.table import Table

_MISSES = ("answer_missing", "answer_declined", "answer_refused")


def status_table(document: Mapping[str, object]) -> Table:
    """Participants and what they did since the active one was started."""
    roster, terms, counts = (_part(document, key) for key in ("roster", "terms", "counts"))
    table = Table(
        title=f"{document.get('federation')}: roster number {roster.get('number')} "
        f"({str(roster.get('digest'))[:12]}…), mask epoch {document.get('epoch')}\n"
        f"{terms.get('mask')} masks, {terms.get('aggregation')} sums, layout "
        f"{terms.get('layout')}, {terms.get('dim')} features",
        title_justify="left",
        caption=f"{_count(counts, 'decisions')} decisions and {_count(counts, 'rewards')} rewards "
        f"in {_duration(document.get('seconds_up'))}, "
        f"{document.get('waiting_for_reward')} decisions wait for a reward",
        caption_justify="left",
        box=SIMPLE_HEAD,
    )
    table.add_column("participant")
    for heading in ("width", "connected", "circuit", "asks", "answers", "missed", "bytes"):
        table.add_column(heading, justify="right")
    for place, (name, facts) in enumerate(_part(document, "participants").items()):
        if isinstance(facts, dict):
            table.add_row(name, str(facts.get("width")), *_row(facts, is_active=place == 0))
    return table


def _row(facts: Mapping[str, object], *, is_active: bool) -> list[str]:
    if is_active:
        return ["active", *["–"] * 5]
    connected = "yes" if facts.get("connected") else "[red]no[/]"
    circuit = "closed" if facts.get("circuit") == "closed" else "[red]open[/]"
    missed = sum(_number(facts.get(key)) for key in _MISSES)
    counts = (_count(facts, "asks"), _count(facts, "answers"), f"{missed:,}")
    return [connected, circuit, *counts, _count(facts, "bytes")]


def _part(document: Mapping[str, object], key: str) -> dict[str, object]:
    value = document.get(key)
    return value if isinstance(value, dict) else {}


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _count(facts: Mapping[str, object], key: str) -> str:
    return f"{_number(facts.get(key)):,}"


def _duration(seconds: object) -> str:
    """How long, in the unit that people would take.

    >>> _duration(7.25), _duration(7300.0)
    ('7 s', '2 h 1 min')
    """
    if not isinstance(seconds, int | float):
        return "an unknown time"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
