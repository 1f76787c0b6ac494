"""The feature store of a participant: one table of its configuration file, checked."""

import os
from pathlib import Path
from typing import Literal

from vfbandits.errors import ConfigError
from vfbandits.settings.values import AtLeastOne, Positive, Secret, Settings, Text

NEEDS: dict[str, tuple[str, ...]] = {
    "file": ("path",),
    "sql": ("url", "table"),
    "redis": ("url", "prefix"),
    "request": (),
}
REQUEST = "request"


class FeatureSettings(Settings, frozen=True, kw_only=True):
    """Where a participant's own features are.

    Attributes
    ----------
    kind
        "file", "sql" or "redis"; at the active participant also "request", if features come with
        each request and only their scaling is configured.
    key
        Names of the key columns: the user, and in layout per_arm also the arm; none for requests.
    columns
        Names of numeric columns, which are used without scaling; with ``scaling`` they may be left
        out, or must be the scaling's.
    path
        Path of the file (kind file).
    url
        Where the server is (kinds sql and redis).
    url_env
        Name of the environment variable that has the url, so that no file needs a password.
    table
        ``name`` or ``schema.name`` (kind sql).
    prefix
        Prefix of the names of the hashes (kind redis).
    scaling
        The file that ``vfb features fit`` wrote; without it columns are not scaled.
    arm_scaling
        The scaling of arm features that come by name (active participant, layout outer).
    width
        Number of features that the federation expects of this participant; without it the number
        is not checked.
    clip_norm
        Maximum Euclidean norm of a row; longer rows are scaled down to it.
    timeout_s
        Timeout of a lookup.
    """

    kind: Literal["file", "sql", "redis", "request"]
    key: tuple[Text, ...] = ()
    columns: tuple[Text, ...] = ()
    path: Path | None = None
    url: Secret | None = None
    url_env: Text | None = None
    table: Text | None = None
    prefix: Text | None = None
    scaling: Path | None = None
    arm_scaling: Path | None = None
    width: AtLeastOne | None = None
    clip_norm: Positive | None = None
    timeout_s: Positive = 1.0

    def __post_init__(self) -> None:
        """Refuse settings that no store can be opened with."""
        if self.is_request:
            if self.key:
                raise ConfigError(
                    "features of kind request are not looked up, so key must be left out, "
                    f"got {len(self.key)} columns"
                )
        elif not self.key:
            raise ConfigError("key is missing, wanted a list of one or two columns, each once")
        elif len(self.key) not in (1, 2) or len(set(self.key)) != len(self.key):
            raise ConfigError(f"a key has one or two columns, each once, got {len(self.key)}")
        if not self.columns and self.scaling is None:
            raise ConfigError("features need columns or a scaling, got neither")
        self._refuse_wrong_place()

    @property
    def is_request(self) -> bool:
        """Whether features come with each request, so that there is no store."""
        return self.kind == REQUEST

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
                f"features of kind {self.kind} need {' and '.join(wanted) or 'no place'}, "
                f"got {' and '.join(came) or 'none'}"
            )
        if self.url is not None and self.url_env is not None:
            raise ConfigError("features need url or url_env, got both")

    def find_url(self) -> str:
        """The url, from the settings or from the environment."""
        if self.url_env is None:
            return self.url or ""
        url = os.environ.get(self.url_env, "")
        if not url:
            raise ConfigError(f"the environment must have a url in {self.url_env}, got nothing")
        return url
