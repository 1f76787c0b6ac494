"""Lines for people on the standard output, as they are: no markup, no colour, no wrapping."""

from rich.console import Console


def say(text: str) -> None:
    """Print one line."""
    Console().print(text, highlight=False, markup=False, soft_wrap=True)
