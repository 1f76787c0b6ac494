"""A participant's features, opened from its settings."""

from collections.abc import Iterator, Sequence
from types import TracebackType

from vfbandits.core.arrays import PlainBlock
from vfbandits.core.noise import KeyedNoise, clip_rows
from vfbandits.errors import ConfigError, FeatureError
from vfbandits.extras import require
from vfbandits.features.base import FeatureStore, Key, Lookup
from vfbandits.features.consent import refuse_as_feature
from vfbandits.features.named import FeatureNames, NamedRows
from vfbandits.features.scaling import Scaling
from vfbandits.protocol.roster import Member, Roster
from vfbandits.settings.features import FeatureSettings
from vfbandits.settings.http import PersonalizerSettings

PERSONALIZER_LAYOUTS = ("outer", "disjoint")


class Features:
    """A store, its scaling, the longest row that may leave it, and its noise.

    ``column_of_each`` has the raw column behind each column of a scaled row, ``fitted_variances``
    the variance that the column was fitted to.
    """

    def __init__(
        self,
        store: FeatureStore,
        *,
        scaling: Scaling,
        clip_norm: float | None = None,
        noise: KeyedNoise | None = None,
    ) -> None:
        self._store = store
        self._clip_norm = clip_norm
        self._noise = noise
        self.digest = scaling.digest
        self.width = store.width
        self.columns = store.columns
        self.column_of_each = scaling.column_of_each
        self.fitted_variances = scaling.fitted_variances

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
        """Scaled rows of these keys, (n, width), clipped, and with noise if there is any."""
        lookup = self._store.rows(keys)
        if self._clip_norm is not None:
            lookup = clip(lookup, self._clip_norm)
        if self._noise is None:
            return lookup
        noisy, clipped = self._noise.add(lookup.values, keys, absent=lookup.absent)
        return lookup._replace(values=noisy, clipped=lookup.clipped + clipped)

    def users(self) -> Iterator[str]:
        """Every user that there are rows of; one may come several times."""
        return self._store.users()

    def sample(self, count: int) -> PlainBlock:
        """Scaled rows of some keys, at most ``count`` of them."""
        return self._store.sample(count)

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
        """Release memory and connections."""
        self._store.close()


def clip(lookup: Lookup, longest: float) -> Lookup:
    """``lookup`` with rows longer than ``longest`` shortened to it, and counted.

    >>> import numpy as np
    >>> from vfbandits.core.arrays import PlainBlock
    >>> clipped = clip(Lookup(PlainBlock(np.array([[3.0, 4.0], [0.0, 1.0]]))), 2.5)
    >>> clipped.values, clipped.clipped
    (array([[1.5, 2. ],
           [0. , 1. ]]), 1)
    """
    values, count = clip_rows(lookup.values, longest)
    return lookup._replace(values=values, clipped=count) if count else lookup


def open_features(
    settings: FeatureSettings, *, consent: str | None = None, noise: KeyedNoise | None = None
) -> Features:
    """The features that ``settings`` describe, with ``noise`` on each row.

    A file is read now, whole.  A server is not asked before the first lookup or ``check``.
    ``consent`` names a column of the same table: rows without consent are not looked up.
    """
    scaling = scaling_of(settings)
    if consent is not None:
        refuse_as_feature(consent, scaling, settings.key)
    if settings.width is not None and settings.width != scaling.width:
        raise FeatureError(
            f"these features must be {settings.width} wide, got {scaling.width} "
            f"from {len(scaling.columns)} columns"
        )
    store = _store(settings, scaling, consent)
    return Features(store, scaling=scaling, clip_norm=settings.clip_norm, noise=noise)


def scaling_of(settings: FeatureSettings) -> Scaling:
    """The scaling that ``settings`` name, or that of columns which are taken as they are."""
    if settings.scaling is None:
        return Scaling.identity(settings.columns)
    scaling = Scaling.load(settings.scaling)
    if settings.columns and settings.columns != scaling.columns:
        raise FeatureError(
            f"columns must be those of {settings.scaling.name}, {', '.join(scaling.columns)}, "
            f"got {', '.join(settings.columns)}"
        )
    return scaling


def _store(settings: FeatureSettings, scaling: Scaling, consent: str | None) -> FeatureStore:
    if settings.path is not None:
        require("polars", extra="rpc", to="reading a feature file")
        from vfbandits.features.table_file import open_file  # noqa: PLC0415  (an extra)

        return open_file(settings.path, key=settings.key, scaling=scaling, consent=consent)
    if settings.table is not None:
        require("sqlalchemy", extra="sql", to="reading features from a database")
        from vfbandits.features.sql import SqlStore  # noqa: PLC0415  (an extra)

        return SqlStore(
            settings.find_url(),
            table=settings.table,
            key=settings.key,
            scaling=scaling,
            timeout_s=settings.timeout_s,
            consent=consent,
        )
    require("redis", extra="redis", to="reading features from Redis")
    from vfbandits.features.redis_hash import RedisStore  # noqa: PLC0415  (an extra)

    return RedisStore(
        settings.find_url(),
        prefix=settings.prefix or "",
        n_parts=len(settings.key),
        scaling=scaling,
        timeout_s=settings.timeout_s,
        consent=consent,
    )


def open_names(settings: FeatureSettings | None, roster: Roster) -> FeatureNames:
    """Features by name, as the active participant's settings have them.

    Refuses scalings that do not give what the roster says.
    """
    if settings is None:
        return FeatureNames()
    scaling, terms = scaling_of(settings), roster.terms
    refuse_other_features(scaling, roster.active)
    own = NamedRows(scaling, clip_norm=settings.clip_norm)
    if settings.arm_scaling is None:
        return FeatureNames(own)
    if terms.layout != "outer":
        raise ConfigError(
            f"arm_scaling under [features] goes with layout 'outer', got {terms.layout!r}"
        )
    arms = Scaling.load(settings.arm_scaling)
    if arms.width != terms.arm_dim:
        raise ConfigError(
            f"arm_scaling: the roster's terms have arm_dim {terms.arm_dim}, "
            f"{settings.arm_scaling.name} gives {arms.width}"
        )
    return FeatureNames(own, NamedRows(arms))


def refuse_other_features(features: Features | Scaling, member: Member) -> None:
    """Refuse features whose width or scaling is not the one in the roster."""
    if features.width != member.width:
        raise ConfigError(f"width: the roster has {member.width}, [features] give {features.width}")
    if member.scaling and features.digest != member.scaling:
        raise ConfigError(
            f"scaling: the roster has {member.scaling!r}, [features] have {features.digest!r}"
        )


def refuse_without_hashing(
    settings: PersonalizerSettings, names: FeatureNames, roster: Roster
) -> dict[str, int]:
    """Refuse the facade of Azure Personalizer where features without a schema have no place.

    Returns the widths that they are hashed to, by the key of the scaling.
    """
    layout, wanted = roster.terms.layout, [("scaling", names.own)]
    if layout not in PERSONALIZER_LAYOUTS:
        raise ConfigError(
            "[http.personalizer] needs layout 'outer', where features of actions meet those of the "
            f"context, or 'disjoint', where each action has its own model, got layout {layout!r}"
        )
    if layout == "outer":
        wanted.append(("arm_scaling", names.arms))
    lacking = [key for key, one in wanted if one is None or not one.scaling.rest]
    if lacking:
        raise ConfigError(
            f"[http.personalizer] hashes features without a schema, so in layout {layout!r} "
            f"{' and '.join(key for key, _ in wanted)} under [features] must have a part for them, "
            f"made by vfb features fit --hash-rest WIDTH, got none in {' and '.join(lacking)}"
        )
    if len(roster.split.names) > 1 and not settings.user:
        raise ConfigError(
            "[http.personalizer] needs user, the name of the context feature that has the user's "
            f"id, since users are looked up at {', '.join(roster.split.names[1:])}, got none"
        )
    return {key: one.scaling.rest for key, one in wanted if one is not None}
