"""The parts of a struct's docstring, for the schemas that are made of it."""

import inspect
import re

_NOTES = re.compile(r"^([\w, ]+)\n((?: {4}.*\n?)+)", re.MULTILINE)


def split_docstring(text: str) -> tuple[str, dict[str, str]]:
    r"""What a docstring says of the struct, and of each attribute; examples are left out.

    >>> text = "Bounds of ``x``.\n\nAttributes\n----------\nlow, high\n    One of\n    them."
    >>> split_docstring(text)
    ('Bounds of `x`.', {'low': 'One of them.', 'high': 'One of them.'})
    """
    clean = inspect.cleandoc(text).replace("``", "`")
    head, _, attributes = clean.partition("\n\nAttributes\n----------\n")
    notes = {
        name: _unwrapped(note)
        for names, note in _NOTES.findall(attributes)
        for name in names.split(", ")
    }
    return _unwrapped(head.partition("\n\n>>>")[0]), notes


def _unwrapped(text: str) -> str:
    """Each paragraph in one line."""
    return "\n\n".join(" ".join(each.split()) for each in text.split("\n\n"))
