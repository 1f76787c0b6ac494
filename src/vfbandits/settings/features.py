"""Where a participant's features are: one table of its configuration file, checked."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vfbandits.errors import ConfigError
from vfbandits.settings.fields import Fields

NEEDS: Mapping[str, tuple[str, ...]] = {
    "file": ("path",),
    "sql": ("url", "table"),
    "redis": ("url", "prefix"),
}
TIMEOUT_S = 1.0
COMMON = ("kind", "key", "columns", "scaling", "width", "clip_norm", "timeout_s")


@dataclass(frozen=True, slots=True)
class FeatureSettings:
    """What ``open_features`` needs.

    Attributes
    ----------
    kind
        "file", "sql" or "redis".
    key
        Names of the key columns: the user's, and in layout per_arm the arm's too.
    columns
        Names of number columns that are used as they are; with ``scaling`` they may be left out,
        or must be the scaling's.
    path
        Of the file (kind file).
    url, url_env
        Where the server is (kinds sql and redis), or the name of the environment variable that
        says it, so that a password need not stand in a file.
    table
        ``name`` or ``schema.name`` (kind sql).
    prefix
        Of the names of the hashes (kind redis).
    scaling
        The file that ``vfb features fit`` wrote; None takes the columns as they are.
    width
        How many numbers the federation expects of this participant; None checks nothing.
    clip_norm
        Longest row that may leave, in the Euclidean norm; None shortens nothing.
    timeout_s
        Longest wait for a server.
    """

    kind: str
    key: tuple[str, ...]
    columns: tuple[str, ...] = ()
    path: Path | None = None
    url: str | None = field(default=None, repr=False)
    url_env: str | None = None
    table: str | None = None
    prefix: str | None = None
    scaling: Path | None = None
    width: int | None = None
    clip_norm: float | None = None
    timeout_s: float = TIMEOUT_S

    def __post_init__(self) -> None:
        """Refuse what no store could be opened from."""
        if self.kind not in NEEDS:
            raise ConfigError(f"features are of kind {', '.join(NEEDS)}, got {self.kind!r}")
        if len(self.key) not in (1, 2) or len(set(self.key)) != len(self.key):
            raise ConfigError(f"a key has one or two columns, each once, got {len(self.key)}")
        if not self.columns and self.scaling is None:
            raise ConfigError("features need columns or a scaling, got neither")
        for name, value in (("timeout_s", self.timeout_s), ("clip_norm", self.clip_norm)):
            if value is not None and not 0.0 < value < float("inf"):
                raise ConfigError(f"{name} must be a number above 0, got {value}")
        self._refuse_wrong_place()

    def _refuse_wrong_place(self) -> None:
        given = {
            "path": self.path is not None,
            "url": self.url is not None or self.url_env is not None,
            "table": self.table is not None,
            "prefix": self.prefix is not None,
        }
        came = tuple(name for name, is_given in given.items() if is_given)
        wanted = NEEDS[self.kind]
        if set(came) != set(wanted):
            raise ConfigError(
                f"features of kind {self.kind} are found by {' and '.join(wanted)}, "
                f"got {' and '.join(came) or 'nothing'}"
            )
        if self.url is not None and self.url_env is not None:
            raise ConfigError("a server is found by url or by url_env, got both")

    @classmethod
    def from_table(
        cls, table: Mapping[str, object], *, folder: Path, where: str = "[features]"
    ) -> "FeatureSettings":
        """Settings from a table of a TOML file; relative paths start at ``folder``.

        >>> FeatureSettings.from_table(
        ...     {"kind": "file", "path": "bank.parquet", "key": ["user"], "columns": ["age"]},
        ...     folder=Path("/etc/bank"),
        ... ).path
        PosixPath('/etc/bank/bank.parquet')
        """
        fields = Fields(table, where, ConfigError)
        fields.only({*COMMON, "path", "url", "url_env", "table", "prefix"})
        path, scaling = fields.maybe("path", fields.text), fields.maybe("scaling", fields.text)
        return cls(
            fields.text("kind"),
            fields.texts("key"),
            fields.maybe("columns", fields.texts) or (),
            path=None if path is None else folder / path,
            url=fields.maybe("url", fields.text),
            url_env=fields.maybe("url_env", fields.text),
            table=fields.maybe("table", fields.text),
            prefix=fields.maybe("prefix", fields.text),
            scaling=None if scaling is None else folder / scaling,
            width=fields.maybe("width", fields.integer),
            clip_norm=fields.maybe("clip_norm", fields.number),
            timeout_s=fields.number("timeout_s") if "timeout_s" in table else TIMEOUT_S,
        )

    def find_url(self) -> str:
        """The url, from the settings or from the environment."""
        if self.url_env is None:
            return self.url or ""
        url = os.environ.get(self.url_env, "")
        if not url:
            raise ConfigError(f"the environment must have a url in {self.url_env}, got nothing")
        return url
