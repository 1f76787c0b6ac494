"""The frame of a self-contained HTML page: style and images are embedded."""

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path

STYLE = Path(__file__).with_suffix(".css")


def frame(title: str, body: str) -> str:
    """A whole page for light and dark screens, phones and printers."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n"
        '<link rel="icon" href="data:,">\n'
        f"<style>\n{STYLE.read_text(encoding='utf-8')}</style>\n</head>\n<body>\n{body}\n"
        "</body>\n</html>\n"
    )


def table(rows: Sequence[Sequence[str]], *, caption: str = "") -> str:
    """A table of text, headings first, as a notebook or a page shows it.

    >>> table([["arm"], ["<tea>"]], caption="2 arms")  # doctest: +ELLIPSIS
    '<p>2 arms</p><table><thead><tr><th>arm</th></tr>...<td>&lt;tea&gt;</td></tr></tbody></table>'
    """
    heading, *others = rows
    head = "".join(f"<th>{escape(cell)}</th>" for cell in heading)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in others
    )
    above = f"<p>{escape(caption)}</p>" if caption else ""
    return f"{above}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def png_address(data: bytes) -> str:
    """The data URL of an image that is embedded in the page.

    >>> png_address(b"abc")
    'data:image/png;base64,YWJj'
    """
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"
