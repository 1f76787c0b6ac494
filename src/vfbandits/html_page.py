"""The frame of an HTML page that needs nothing else: style and images are inside."""

import base64
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


def png_address(data: bytes) -> str:
    """The address of an image that stands in the page itself.

    >>> png_address(b"abc")
    'data:image/png;base64,YWJj'
    """
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"
