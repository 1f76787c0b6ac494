"""The report of an audit as one HTML page; nothing is fetched, and no feature's value is in it."""

from collections.abc import Sequence
from html import escape

from vfbandits.audit.plot import DARK, LIGHT, draw
from vfbandits.audit.report import ORDER, Report
from vfbandits.audit.result import AMBER_ERROR, RED_ERROR, Curve, Level, Result, Severity
from vfbandits.html_page import frame, png_address

CLASSES = {Severity.RED: "fail", Severity.AMBER: "open", Severity.TRIED: "tried"}
MAX_BARS = 20
LEVELS = {
    Level.MASK: "the active participant sees this participant's masked rows",
    Level.SUM: "the active participant sees only the sum of all passive participants' masked rows",
    Level.STATISTICS: "the active participant sees no row, but the estimated reward of every arm",
    Level.ARM: "the active participant sees no row, but the arm of each decision, and the widths "
    "of all arms if the policy is LinUCB",
}


def page_text(report: Report, *, date: str, versions: str) -> str:
    """The page; equal arguments give equal bytes."""
    body = [
        "<h1>What could be read from this table</h1>",
        f'<p class="faint">{escape(report.source)} · {report.rows:,} rows × '
        f"{len(report.columns)} columns · seed {report.seed} · {escape(date)}<br>"
        f"{escape(versions)}</p>",
        _tally(report),
        *_stopped(report),
        _reading(),
        _summary(report),
        "<h2>Columns that suffer most</h2>",
        "<p>The smallest error of any attack on each column, in its standard deviations: 0 is "
        "exact, 1 is what guessing the mean gives. Attacks that open any table once their needs "
        "are met (marked “any table”) are not counted here.</p>",
        _bars(report),
        *(_section(result) for severity in ORDER[:2] for result in report.of(severity)),
        *_tried(report),
        *_notes(report),
    ]
    return frame("vfb audit", "\n".join(body))


def _tally(report: Report) -> str:
    items = [
        f'<li class="{CLASSES[severity]}">{len(report.of(severity))} {severity}</li>'
        for severity in ORDER
    ]
    return f'<ul class="tally">{"".join(items)}</ul>'


def _stopped(report: Report) -> list[str]:
    if not report.not_run:
        return []
    return [
        "<p><strong>The audit was stopped.</strong> Not run: "
        f"{escape('; '.join(report.not_run))}.</p>"
    ]


def _reading() -> str:
    levels = "".join(f"<li><b>{level}</b>: {escape(LEVELS[level])}</li>" for level in LEVELS)
    return (
        f"<p>Red: some column was recovered to {RED_ERROR:g} standard deviations or exactly. "
        f"Amber: something was learnt, or a column recovered to {AMBER_ERROR:g}. Tried: this "
        "attack recovered nothing here. None of them says that the table is safe: other attacks "
        f"may do better. This page names columns and is for the table's owner.</p><ul>{levels}</ul>"
    )


def _summary(report: Report) -> str:
    lines = [
        f'<tr><td>{_verdict(result)}</td><td data-label="level">{result.level}</td>'
        f'<td><a href="#{_anchor(result)}">{escape(result.title)}</a>{_universal(result)}</td>'
        f'<td data-label="least error">{spell_error(result.best)}</td>'
        f'<td data-label="exact columns">{len(result.exact)}</td></tr>'
        for severity in ORDER
        for result in report.of(severity)
    ]
    return (
        '<div class="wide"><table class="claims"><thead><tr><th>finding</th><th>level</th>'
        "<th>attack</th><th>least error</th><th>exact columns</th></tr></thead>\n<tbody>\n"
        + "\n".join(lines)
        + "\n</tbody></table></div>"
    )


def _bars(report: Report) -> str:
    lines = [
        _bar(column, error, "" if result is None else f"{result.title}, {result.level}")
        for column, (error, result) in report.least_errors().items()
    ]
    head = f'<table class="bars"><tbody>{"".join(lines[:MAX_BARS])}</tbody></table>'
    if len(lines) <= MAX_BARS:
        return head
    rest = f'<table class="bars"><tbody>{"".join(lines[MAX_BARS:])}</tbody></table>'
    return f"{head}<details><summary>{len(lines) - MAX_BARS} more columns</summary>{rest}</details>"


def _bar(column: str, error: float, by: str = "") -> str:
    kind = "hit" if error <= RED_ERROR else "" if error <= AMBER_ERROR else "miss"
    share = max(1.0, min(100.0, 100.0 * (1.0 - error)))
    return (
        f'<tr title="{escape(by)}"><td>{escape(column)}</td>'
        f'<td><div class="bar"><i class="{kind}" style="width:{share:.0f}%"></i></div></td>'
        f"<td>{spell_error(error)}</td></tr>"
    )


def _section(result: Result) -> str:
    parts = [
        f'<h2 id="{_anchor(result)}">{escape(result.title)}</h2>',
        f"<p>{_verdict(result)} level <b>{result.level}</b>{_universal(result)}</p>",
        '<dl class="facts">',
        *_facts(result),
        "</dl>",
        *_exact(result),
        *([_image(result.curve, result.title)] if result.curve else []),
        *_columns(result),
    ]
    return "\n".join(parts)


def _facts(result: Result) -> list[str]:
    pairs = [
        ("The attacker needs", result.needs),
        ("Found", ". ".join(_capital(fact) for fact in result.facts) + "."),
        ("It knows by", result.certificate or ""),
        ("What would reduce it", result.advice),
    ]
    return [f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in pairs if text]


def _exact(result: Result) -> list[str]:
    if not result.exact:
        return []
    if len(result.exact) == len(result.errors):
        return ["<p>Exact: all columns.</p>"]
    return [f"<p>Exact: {escape(', '.join(result.exact))}.</p>"]


def _columns(result: Result) -> list[str]:
    if result.is_universal or len(result.exact) == len(result.errors):
        return []
    worst = result.worst_columns(8)
    lines = "".join(_bar(column, error) for column, error in worst)
    return [f'<table class="bars"><tbody>{lines}</tbody></table>'] if worst else []


def _image(curve: Curve, title: str) -> str:
    caption = f"{curve.y} against {curve.x}; dotted: {RED_ERROR:g}"
    return (
        '<figure class="plain"><picture>'
        f'<source srcset="{png_address(draw(curve, DARK))}" media="(prefers-color-scheme: dark)">'
        f'<img src="{png_address(draw(curve, LIGHT))}" alt="{escape(title)}: {escape(caption)}">'
        f"</picture><figcaption>{escape(_capital(caption))}</figcaption></figure>"
    )


def _tried(report: Report) -> list[str]:
    tried = report.of(Severity.TRIED)
    if not tried:
        return []
    items = [
        f'<li id="{_anchor(result)}">{escape(result.title)}, level {result.level}: least error '
        f"{spell_error(result.best)}. It needs {escape(result.needs)}.</li>"
        for result in tried
    ]
    return ["<h2>Tried, and nothing recovered</h2>", f"<ul>{''.join(items)}</ul>"]


def _notes(report: Report) -> list[str]:
    more = (
        "half of the rows were attacked; the other half represents what is public: marginals, "
        "means and covariances of the same population",
        "at level sum the other participants' columns are simulated: this table's, with rows "
        "shuffled",
        "returning and absent users, insiders and the auxiliary table are simulated from this "
        "table; released statistics come from a LinUCB bandit that learns on it",
    )
    items = "".join(f"<li>{escape(_capital(note))}.</li>" for note in (*report.notes, *more))
    return ["<h2>How it was measured</h2>", f"<ul>{items}</ul>"]


def _verdict(result: Result) -> str:
    return f'<span class="verdict {CLASSES[result.severity]}">{result.severity.upper()}</span>'


def _universal(result: Result) -> str:
    return ' <span class="faint">any table</span>' if result.is_universal else ""


def _anchor(result: Result) -> str:
    return f"{result.attack}-{result.level}"


def spell_error(error: float) -> str:
    """Two digits are enough; what is rounding is exact.

    >>> spell_error(1e-15), spell_error(0.0312), spell_error(1.214)
    ('exact', '0.03', '1.21')
    """
    return "exact" if error <= 1e-6 else f"{error:.2f}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def listing(names: Sequence[str], count: int = 5) -> str:
    """Some names, and how many more there are.

    >>> listing(["a", "b", "c"], 2)
    'a, b, 1 more'
    """
    more = len(names) - count
    return ", ".join([*names[:count], *([f"{more} more"] if more > 0 else [])])
