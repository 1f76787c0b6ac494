"""The passphrase of the organiser's key; never a flag, since other users can see flags."""

import os
from typing import Annotated

import typer

from vfbandits.errors import SettingError

PassphraseVariable = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Environment variable with the passphrase of the organiser's key."
    ),
]


def passphrase_in(variable: str | None) -> bytes | None:
    """The passphrase in an environment variable; None if no variable is named."""
    if variable is None:
        return None
    text = os.environ.get(variable, "")
    if not text:
        raise SettingError(f"wanted a passphrase in environment variable {variable}, got none")
    return text.encode()
