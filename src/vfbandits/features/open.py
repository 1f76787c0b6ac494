"""A participant's features, opened from its settings."""

from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType

import numpy as np

from vfbandits.core.arrays import PlainBlock
from vfbandits.errors import ConfigError, FeatureError
from vfbandits.extras import require
from vfbandits.features.base import FeatureStore, Key, Lookup
from vfbandits.features.scaling import Scaling
from vfbandits.protocol.roster import Member
from vfbandits.settings.features import FeatureSettings


class Features:
    """A store, the digest of its scaling, and the longest row that may leave it."""

    def __init__(self, store: FeatureStore, *, digest: str, clip_norm: float | None = None) -> None:
        self._store = store
        self._clip_norm = clip_norm
        self.digest = digest
        self.width = store.width
        self.columns = store.columns

    def __enter__(self) -> "Features":
        """Itself; leaving closes it."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the store."""
        self.close()

    def block(self, keys: Sequence[Key]) -> Lookup:
        """Scaled rows of these keys, (n, width); no row is longer than ``clip_norm``."""
        lookup = self._store.rows(keys)
        if self._clip_norm is None:
            return lookup
        return clip(lookup, self._clip_norm)

    def check(self) -> None:
        """Refuse if a lookup could not be answered now."""
        self._store.check()

    def describe(self) -> dict[str, object]:
        """Facts fit for a log."""
        return {
            **self._store.describe(),
            "width": self.width,
            "scaling": self.digest,
            "clip_norm": self._clip_norm,
        }

    def close(self) -> None:
        """Let go of memory and connections."""
        self._store.close()


def clip(lookup: Lookup, longest: float) -> Lookup:
    """``lookup`` with rows longer than ``longest`` shortened to it, and counted.

    >>> clipped = clip(Lookup(PlainBlock(np.array([[3.0, 4.0], [0.0, 1.0]])), 0), 2.5)
    >>> clipped.values, clipped.clipped
    (array([[1.5, 2. ],
           [0. , 1. ]]), 1)
    """
    lengths = np.sqrt(np.einsum("ij,ij->i", lookup.values, lookup.values))
    is_long = lengths > longest
    count = int(np.count_nonzero(is_long))
    if not count:
        return lookup
    shrink = np.where(is_long, longest / np.where(is_long, lengths, 1.0), 1.0)
    return replace(lookup, values=PlainBlock(lookup.values * shrink[:, None]), clipped=count)


def open_features(settings: FeatureSettings) -> Features:
    """The features that ``settings`` describe.

    A file is read now, whole.  A server is not asked before the first lookup or ``check``.
    """
    scaling = _scaling(settings)
    if settings.width is not None and settings.width != scaling.width:
        raise FeatureError(
            f"these features must be {settings.width} wide, got {scaling.width} "
            f"from {len(scaling.columns)} columns"
        )
    return Features(_store(settings, scaling), digest=scaling.digest, clip_norm=settings.clip_norm)


def _scaling(settings: FeatureSettings) -> Scaling:
    if settings.scaling is None:
        return Scaling.identity(settings.columns)
    scaling = Scaling.load(settings.scaling)
    if settings.columns and settings.columns != scaling.columns:
        raise FeatureError(
            f"columns must be those of {settings.scaling.name}, {', '.join(scaling.columns)}, "
            f"got {', '.join(settings.columns)}"
        )
    return scaling


def _store(settings: FeatureSettings, scaling: Scaling) -> FeatureStore:
    if settings.path is not None:
        require("polars", extra="rpc", to="reading a feature file")
        from vfbandits.features.table_file import open_file  # noqa: PLC0415  (an extra)

        return open_file(settings.path, key=settings.key, scaling=scaling)
    if settings.table is not None:
        require("sqlalchemy", extra="sql", to="reading features from a database")
        from vfbandits.features.sql import SqlStore  # noqa: PLC0415  (an extra)

        return SqlStore(
            settings.find_url(),
            table=settings.table,
            key=settings.key,
            scaling=scaling,
            timeout_s=settings.timeout_s,
        )
    require("redis", extra="redis", to="reading features from Redis")
    from vfbandits.features.redis_hash import RedisStore  # noqa: PLC0415  (an extra)

    return RedisStore(
        settings.find_url(),
        prefix=settings.prefix or "",
        n_parts=len(settings.key),
        scaling=scaling,
        timeout_s=settings.timeout_s,
    )


def refuse_other_features(features: Features, member: Member) -> None:
    """Refuse features whose width or scaling is not the one in the roster."""
    if features.width != member.width:
        raise ConfigError(f"width: the roster has {member.width}, [features] give {features.width}")
    if member.scaling and features.digest != member.scaling:
        raise ConfigError(
            f"scaling: the roster has {member.scaling!r}, [features] have {features.digest!r}"
        )
