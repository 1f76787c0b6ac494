"""Flags that name a journal and its key; neither a password nor a key is ever a flag."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vfbandits.errors import SettingError

if TYPE_CHECKING:
    from vfbandits.journal.crypto import JournalKey

DEFAULT_NAME = "default"  # of store.open_journal

Target = Annotated[
    str,
    typer.Argument(
        metavar="JOURNAL",
        help="A file; sqlite:///FILE; postgresql://HOST/DATABASE; or env:NAME, the environment "
        "variable with one of these.",
    ),
]
LogName = Annotated[str, typer.Option("--name", help="Name of the journal in a database.")]
KeyFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Key of an encrypted journal, mode 0600.")
]
KeyVariable = Annotated[
    str | None, typer.Option(metavar="NAME", help="Environment variable with the key.")
]


def key_of(key_file: Path | None, key_env: str | None) -> "JournalKey | None":
    """The key that the flags name; None if they name none."""
    from vfbandits.journal.crypto import key_from_environment, read_key

    if key_file is not None and key_env is not None:
        raise SettingError("wanted --key-file or --key-env, got both")
    if key_file is not None:
        return read_key(key_file)
    return None if key_env is None else key_from_environment(key_env)
