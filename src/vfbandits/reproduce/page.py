"""One self-contained HTML page: images and style are embedded, nothing is fetched."""

import json
from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path

from vfbandits.html_page import frame, png_address
from vfbandits.reproduce.claim import Claim, ValueTable, Verdict
from vfbandits.reproduce.runner import Image, Outcome

CLASSES = {Verdict.PASS: "pass", Verdict.FAIL: "fail", Verdict.UNCHECKED: "open"}


def write_page(
    outcomes: Sequence[Outcome],
    path: Path,
    *,
    date: str,
    machine: str,
    versions: str,
    quick: bool,
) -> None:
    """Write the page; equal arguments give equal bytes."""
    body = [
        "<h1>Vertical federated linear contextual bandits, reproduced</h1>",
        f'<p class="faint">{escape(date)} · {"quick version" if quick else "full size"} · '
        f"{escape(machine)}<br>{escape(versions)}</p>",
        *([_quick_note()] if quick else []),
        _tally(outcomes),
        _summary(outcomes),
        *(_section(outcome, quick=quick) for outcome in outcomes),
    ]
    path.write_text(frame("vfb reproduce", "\n".join(body)), encoding="utf-8")


def _quick_note() -> str:
    return (
        "<p>Small sizes, to see that everything runs. Claims that need the paper's sizes are "
        "not judged here.</p>"
    )


def _tally(outcomes: Sequence[Outcome]) -> str:
    counts = Counter(claim.verdict for outcome in outcomes for claim in outcome.claims)
    items = [
        f'<li class="{CLASSES[verdict]}">{counts[verdict]} {escape(verdict)}</li>'
        for verdict in Verdict
    ]
    return f'<ul class="tally">{"".join(items)}</ul>'


def _summary(outcomes: Sequence[Outcome]) -> str:
    lines = []
    for outcome in outcomes:
        link = f'<a href="#{escape(outcome.figure.name)}">{escape(outcome.figure.short_name)}</a>'
        lines += [_claim_line(claim, f"<td>{link}</td>") for claim in outcome.claims]
    return _claim_table(lines, "<th>figure</th>")


def _claim_table(lines: Sequence[str], first: str) -> str:
    return (
        f'<div class="wide"><table class="claims"><thead><tr>{first}<th>the paper says</th>'
        "<th>measured</th><th>must be</th><th>verdict</th></tr></thead>\n<tbody>\n"
        + "\n".join(lines)
        + "\n</tbody></table></div>"
    )


def _claim_line(claim: Claim, first: str) -> str:
    reason = f'<br><span class="faint">{escape(claim.reason)}</span>' if claim.reason else ""
    return (
        f'<tr>{first}<td>{escape(claim.says)} <span class="faint">{escape(claim.place)}</span></td>'
        f'<td data-label="measured">{escape(claim.measured)}</td>'
        f'<td data-label="must be">{escape(claim.criterion)}</td>'
        f'<td><span class="verdict {CLASSES[claim.verdict]}">{escape(claim.verdict)}</span>'
        f"{reason}</td></tr>"
    )


def _section(outcome: Outcome, *, quick: bool) -> str:
    figure = outcome.figure
    command = f"vfb reproduce {figure.short_name}{' --quick' if quick else ''} --out out/"
    alone = " Cells ran alone, one at a time." if figure.timed else ""
    parts = [
        f'<h2 id="{escape(figure.name)}">{escape(figure.title)}</h2>',
        f'<p class="faint">{escape(figure.paper)} · {escape(figure.name)}</p>',
        f"<h3>What the paper claims</h3><blockquote><p>{escape(figure.says)}</p></blockquote>",
        *(_image(image) for image in outcome.images),
        "<h3>Claims and measurements</h3>",
        _claim_table([_claim_line(claim, "") for claim in outcome.claims], ""),
        *(_values(table) for table in outcome.tables),
        f"<h3>How to run it</h3><pre>{escape(command)}</pre>",
        f'<p class="faint">{outcome.seconds:.1f} s of CPU time on '
        f"{escape(' and on '.join(outcome.machines) or 'no machine yet')}.{alone}</p>",
        "<details><summary>Every number of its config.toml</summary>"
        f"<pre>{escape(_config(outcome))}</pre></details>",
    ]
    return "\n".join(parts)


def _config(outcome: Outcome) -> str:
    return "\n".join(f"{key} = {json.dumps(value)}" for key, value in outcome.config.items())


def _image(image: Image) -> str:
    caption = escape(image.caption)
    return (
        f'<figure><img src="{png_address(image.path.read_bytes())}" alt="{caption}">'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _values(table: ValueTable) -> str:
    header = "".join(f"<th>{escape(name)}</th>" for name in table.header)
    lines = "\n".join(
        "<tr>" + "".join(f"<td>{escape(text)}</td>" for text in line) + "</tr>"
        for line in table.lines
    )
    return (
        f'<h3>{escape(table.title)}</h3><div class="wide"><table class="values"><thead><tr>'
        f"{header}</tr></thead>\n<tbody>\n{lines}\n</tbody></table></div>"
    )
