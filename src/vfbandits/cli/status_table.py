"""A status document as a table for the terminal."""

from collections.abc import Mapping

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

_MISSES = ("answer_missing", "answer_declined", "answer_refused")
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def status_table(document: Mapping[str, object]) -> Table:
    """Participants and their counts since the active one started."""
    roster, terms, counts = (_part(document, key) for key in ("roster", "terms", "counts"))
    table = Table(
        title=f"{document.get('federation')}: roster number {roster.get('number')} "
        f"({str(roster.get('digest'))[:12]}…), mask epoch {document.get('epoch')}\n"
        f"{terms.get('mask')} masks, {terms.get('aggregation')} sums, layout "
        f"{terms.get('layout')}, {terms.get('dim')} features, protection {terms.get('protection')}",
        title_justify="left",
        caption="\n".join(_summaries(document, counts)),
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    # Only names may be folded in a narrow terminal: a truncated number is a wrong number.
    table.add_column("participant", overflow="fold")
    for heading in ("width", "link", "protocol", "asks", "answers", "missed", "received"):
        table.add_column(heading, justify="right", no_wrap=True)
    for place, (name, facts) in enumerate(_part(document, "participants").items()):
        if isinstance(facts, dict):
            row = _row(facts, now=document.get("at"), has_counts=bool(counts) or "asks" in facts)
            row = ["active", *["–"] * 5] if place == 0 else row
            if not facts.get("width"):  # a helper without features is never asked
                row[2:] = ["–"] * 4
            table.add_row(name, str(facts.get("width") or "helper"), *row)
    return table


def _summaries(document: Mapping[str, object], counts: Mapping[str, object]) -> list[str]:
    """Decisions and rewards in all, then by campaign if there are several; for some roles none."""
    if not counts:
        return [f"up for {_duration(document.get('seconds_up'))}; decisions are not shown to you"]
    pending = _number(document.get("waiting_for_reward"))
    lines = [
        f"{_count(counts, 'decisions')} decisions and {_count(counts, 'rewards')} rewards "
        f"in {_duration(document.get('seconds_up'))}, {pending:,} decisions pending"
    ]
    campaigns = _part(document, "campaigns")
    for name in campaigns if len(campaigns) > 1 else ():
        facts = _part(campaigns, name)
        words = ("decisions", "rewards", "waiting_for_reward")
        decisions, rewards, waiting = (_count(facts, word) for word in words)
        lines.append(f"  {name}: {decisions} decisions, {rewards} rewards, {waiting} pending")
    return [*lines, *_shares(document), *_noises(document)]


def _shares(document: Mapping[str, object]) -> list[str]:
    """What is released on secret shares, and for how long the dealt words last."""
    shares = _part(document, "shares")
    if not shares:
        return []
    lasts = shares.get("lasts_s")
    pace = f", about {_duration(lasts)}" if isinstance(lasts, int | float) else ""
    low = " [red](low: vfb masks deal makes more)[/]" if shares.get("is_low") else ""
    lines = [
        f"secret shares with {shares.get('helper')}: the active participant learns "
        f"{shares.get('learns')}",
        f"{_count(shares, 'released')} decisions by both servers, {_count(shares, 'alone')} on own "
        f"features alone, {_count(shares, 'queued')} rewards queued",
        f"dealt words are left for {_count(shares, 'decisions')} decisions in "
        f"{_count(shares, 'windows')} windows{pace}{low}",
    ]
    away = escape(str(shares.get("away") or ""))
    return [*lines, f"[red]on own features alone: {away}[/]"] if away else lines


def _noises(document: Mapping[str, object]) -> list[str]:
    """The noise on vectors that participants report, with the unit of ε."""
    lines = []
    for name, facts in _part(document, "participants").items():
        noise = _part(facts, "noise") if isinstance(facts, dict) else {}
        if noise:
            lines.append(
                f"noise of {name}: ε = {noise.get('epsilon')} per {noise.get('unit')}, "
                f"δ = {noise.get('delta')}, clip {noise.get('clip')}"
            )
    return lines


def _row(facts: Mapping[str, object], *, now: object, has_counts: bool) -> list[str]:
    protocol = facts.get("protocol")  # None while it is not connected
    spoken = str(protocol) if isinstance(protocol, int) else "–"
    if not has_counts:
        return [_link(facts, now), spoken, *["–"] * 4]
    missed = sum(_number(facts.get(key)) for key in _MISSES)
    counts = (_count(facts, "asks"), _count(facts, "answers"), f"{missed:,}")
    return [_link(facts, now), spoken, *counts, _size(_number(facts.get("bytes")))]


def _link(facts: Mapping[str, object], now: object) -> str:
    """The state of the link, and for how long it has been interrupted."""
    is_connected = bool(facts.get("connected"))
    if is_connected and facts.get("circuit") == "closed":
        return "connected"
    since, passed = facts.get("since"), ""
    if isinstance(since, int | float) and isinstance(now, int | float):
        passed = f" {_duration(max(0.0, now - since))}"
    return f"[red]{'circuit open' if is_connected else 'missing'}{passed}[/]"


def _size(n_bytes: float) -> str:
    """A size in a readable unit.

    >>> _size(7_200), _size(0), _size(1_916_000_000)
    ('7.2 kB', '0 B', '1.9 GB')
    """
    for unit in _UNITS:
        if n_bytes < 1000 or unit == _UNITS[-1]:
            break
        n_bytes /= 1000
    return f"{n_bytes:.0f} {unit}" if unit == "B" else f"{n_bytes:.1f} {unit}"


def _part(document: Mapping[str, object], key: str) -> dict[str, object]:
    value = document.get(key)
    return value if isinstance(value, dict) else {}


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _count(facts: Mapping[str, object], key: str) -> str:
    return f"{_number(facts.get(key)):,}"


def _duration(seconds: object) -> str:
    """A duration in readable units.

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
