"""Lines for people on the standard output, as they are: no markup, no colour, no wrapping."""


def say(text: str) -> None:
    """Print one line."""
    from rich.console import Console

    Console().print(text, highlight=False, markup=False, soft_wrap=True)
