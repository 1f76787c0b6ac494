"""Tables of several owners, one file each, as the blocks of a federation.

The first table is the active participant's.  Each is read as its owner would: which columns
are features, how they are scaled, and which of them a mask does not hide.
"""

import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Final

import numpy as np

from vfbandits.core.arrays import Matrix, Vector
from vfbandits.errors import FeatureError, SettingError
from vfbandits.features.open import open_features
from vfbandits.features.own_table import choose_columns, fit_columns
from vfbandits.features.scaling import RawRows, Scaling
from vfbandits.features.table_file import ENDINGS, keep_latest_rows, read_rows, read_table
from vfbandits.features.whole_table import read_whole_table
from vfbandits.participant.access.discrete import DiscreteCheck
from vfbandits.protocol.identity import AUTHORITY, refuse_unless_label
from vfbandits.settings.access import AccessSettings
from vfbandits.settings.features import FeatureSettings

AUTO, DISJOINT, PER_ARM, OUTER = "auto", "disjoint", "per_arm", "outer"
SCALE: Final = "unit"  # as in vfb.play: no owner outweighs another by the number of its columns
MIN_BOUND = 64.0
MAX_EXAMPLE_ARMS = 10
MAX_SHOWN = 20  # columns in an error, and characters of each
ORGANISER, OPERATOR_NAME, APP = "organiser", "operator", "app"
RESERVED: Final = (AUTHORITY, ORGANISER, OPERATOR_NAME, APP)


@dataclass(frozen=True, slots=True)
class Question:
    """How to read the tables: names of columns, and the layout.

    ``reward`` names a column of the first table, and ``arm`` the one with the arm that was shown.
    """

    key: str = "user"
    arm: str = "arm"
    reward: str | None = None
    layout: str = AUTO
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Owner:
    """One participant's table: features, scaling, and facts to know before it serves.

    ``arms`` are those of a key with an arm, sorted.  ``shared`` counts the users of the first table
    that this one has too.  ``discrete`` names columns that can be read back from masked rows.
    ``reach`` is the length of the longest scaled row.
    """

    name: str
    file: str
    key: tuple[str, ...]
    scaling: Scaling = field(repr=False)
    rows: int
    users: frozenset[str] = field(repr=False)
    arms: tuple[str, ...] = field(repr=False)
    shared: int
    left_out: Mapping[str, str]
    discrete: tuple[str, ...]
    reach: float


@dataclass(frozen=True, slots=True, eq=False)
class LoggedRows:
    """Rows of the first table with an arm and its reward, in the order of the file.

    ``own`` has the active participant's scaled features of each row, (n, width).
    """

    users: tuple[str, ...] = field(repr=False)
    arms: tuple[str, ...] = field(repr=False)
    rewards: Vector = field(repr=False)
    own: Matrix = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Owners:
    """All tables, the layout that fits them, and the log if there is one."""

    layout: str
    owners: tuple[Owner, ...]
    log: LoggedRows | None = None

    @property
    def example(self) -> dict[str, object]:
        """A rank request about a user of all tables, if there is one, and the arms of the log."""
        first, *others = self.owners
        known = first.users.intersection(*(owner.users for owner in others)) or first.users
        arms = first.arms if self.log is None else sorted(set(self.log.arms))
        return {"user": min(known), "arms": [*arms[:MAX_EXAMPLE_ARMS]] or ["tea", "coffee"]}

    @property
    def bound(self) -> float:
        """A bound of masked values that no row of these tables reaches, a power of 2."""
        reach = max(owner.reach for owner in self.owners)
        return max(MIN_BOUND, 2.0 ** np.ceil(np.log2(1.5 * reach))) if reach > 0.0 else MIN_BOUND


def name_sources(texts: Sequence[str]) -> dict[str, Path]:
    """Participants and their files, from ``FILE`` or ``NAME=FILE``.

    >>> name_sources(["data/shop.csv", "bank=export-2026.parquet"])
    {'shop': PosixPath('data/shop.csv'), 'bank': PosixPath('export-2026.parquet')}
    """
    sources: dict[str, Path] = {}
    for text in texts:
        name, sign, rest = text.partition("=")
        path = Path(rest if sign else text)
        if not sign:
            ending = next((end for end in ENDINGS if path.name.endswith(end)), path.suffix)
            name = path.name.removesuffix(ending)
        refuse_unless_label(name, f"the name of {text!r}, or NAME in NAME={path},")
        if name.lower() in RESERVED:
            raise SettingError(f"{name!r} is a reserved name: write NAME={path}")
        if name in sources:
            raise SettingError(f"participants must have different names, got {name!r} twice")
        sources[name] = path
    return sources


def read_owners(sources: Mapping[str, Path], question: Question, folder: Path) -> Owners:
    """Read all tables; ``folder`` gets a copy of each, in the owner's subfolder.

    The copy of a log has the last row of each user, without arm and reward.
    """
    if question.layout == OUTER:
        raise SettingError(
            "tables of users are for layouts disjoint and per_arm, got outer, whose features of "
            "arms come with each request: `vfb new --layout outer` makes a server for these"
        )
    columns = {name: tuple(read_whole_table(path)) for name, path in sources.items()}
    _refuse_unknown(sources, columns, question)
    layout = _layout(sources, columns, question)
    key = (question.key, question.arm) if layout == PER_ARM else (question.key,)
    owners: list[Owner] = []
    for name, path in sources.items():
        is_first = not owners
        others = {*key, *question.exclude}
        if is_first:
            others |= {question.arm, question.reward or question.arm}
        home = folder / name
        home.mkdir(parents=True)
        is_log = is_first and question.reward is not None and layout == DISJOINT
        users = owners[0].users if owners else None
        owners.append(_read_owner(name, path, key, others, home, is_log=is_log, users=users))
    log = None
    if question.reward is not None:
        log = _read_log(next(iter(sources.values())), owners[0], question)
    return Owners(layout, tuple(owners), log)


def _read_owner(
    name: str,
    path: Path,
    key: tuple[str, ...],
    others: Collection[str],
    home: Path,
    *,
    is_log: bool,
    users: frozenset[str] | None,
) -> Owner:
    copy = home / path.name
    if is_log:
        there = [column for column in read_whole_table(path) if column not in others]
        keep_latest_rows(path, copy, key=key, columns=there)
    else:
        shutil.copyfile(path, copy)
    copy.chmod(0o600)
    chosen = choose_columns(copy, others=others)
    if not chosen.numbers and not chosen.categories:
        why = "; ".join(f"{column}: {reason}" for column, reason in chosen.left_out.items())
        raise FeatureError(
            f"{path.name} must have a column that can be a feature, got none{why and f' ({why})'}"
        )
    scaling = fit_columns(
        copy, key=key, numbers=chosen.numbers, categories=chosen.categories, method=SCALE
    )
    scaling.save(home / "scaling.json")
    table = read_table(copy, key=key, numbers=chosen.numbers, categories=chosen.categories)
    own_users = frozenset(one[0] for one in table.keys)
    shared = len(own_users if users is None else own_users & users)
    if not shared:
        raise FeatureError(
            f"{path.name} must have users of the first table in column {key[0]!r}, got "
            f"{len(own_users)} others: users must be spelt alike in all tables"
        )
    settings = FeatureSettings(kind="file", path=copy, key=key, scaling=home / "scaling.json")
    with open_features(settings) as features:
        discrete = DiscreteCheck.of(features, AccessSettings()).look()
    rows = scaling.apply(table.raw)
    return Owner(
        name=name,
        file=path.name,
        key=key,
        scaling=scaling,
        rows=len(table.keys),
        users=own_users,
        arms=tuple(sorted({pair[1] for pair in table.keys})) if len(key) > 1 else (),
        shared=shared,
        left_out=chosen.left_out,
        discrete=() if users is None else discrete,
        reach=float(np.linalg.norm(rows, axis=1).max()),
    )


def _read_log(path: Path, owner: Owner, question: Question) -> LoggedRows:
    numbers, categories = owner.scaling.numbers, tuple(owner.scaling.one_hot)
    table = read_rows(
        path,
        key=(question.key, question.arm),
        numbers=(*numbers, question.reward or ""),
        categories=categories,
    )
    values = table.raw.numbers
    own = owner.scaling.apply(RawRows(values[:, :-1], table.raw.texts))
    users, arms = zip(*table.keys, strict=True)
    if len(set(arms)) < 2:
        raise FeatureError(
            f"column {question.arm!r} of {path.name} must have two arms at least, got "
            f"{len(set(arms))}"
        )
    return LoggedRows(tuple(users), tuple(arms), values[:, -1].copy(), own)


def _refuse_unknown(
    sources: Mapping[str, Path], columns: Mapping[str, Sequence[str]], question: Question
) -> None:
    for name, path in sources.items():
        _refuse_missing(question.key, columns[name], path, "--key")
    first, path = next(iter(sources.items()))
    if question.reward is not None:
        _refuse_missing(question.reward, columns[first], path, "--reward")
        _refuse_missing(question.arm, columns[first], path, "--arm, the arm that was shown,")
    named = (question.key, question.arm, question.reward)
    if len(set(named)) < len(named):
        raise SettingError(
            f"--key, --arm and --reward must be different columns, got {', '.join(map(str, named))}"
        )
    there = {column for some in columns.values() for column in some}
    for column in question.exclude:
        if column not in there:
            raise SettingError(_unknown(column, sorted(there), "--exclude", "one of the tables"))


def _refuse_missing(column: str, there: Sequence[str], path: Path, flag: str) -> None:
    if column not in there:
        raise SettingError(_unknown(column, there, flag, path.name))


def _unknown(column: str, there: Sequence[str], flag: str, where: str) -> str:
    near = get_close_matches(column, there, n=1)
    some = ", ".join(name[:MAX_SHOWN] for name in there[:MAX_SHOWN])
    hint = f"; did you mean {near[0]!r}?" if near else f": it has {some}"
    return f"{flag} must name a column of {where}, got {column!r}{hint}"


def _layout(
    sources: Mapping[str, Path], columns: Mapping[str, Sequence[str]], question: Question
) -> str:
    """Layout per_arm if rows are of a user and an arm, disjoint if they are of a user."""
    has_arm = {name: question.arm in columns[name] for name in sources}
    first, *others = has_arm
    by_pairs = any(has_arm[name] for name in others) or (has_arm[first] and not question.reward)
    if question.layout == DISJOINT or (question.layout == AUTO and not by_pairs):
        return DISJOINT
    without = [sources[name].name for name in has_arm if not has_arm[name]]
    if without:
        raise SettingError(
            f"layout per_arm needs the column {question.arm!r} in every table, got none in "
            f"{', '.join(without)}.  If it is the arm that was shown, name its reward: --reward "
            "COLUMN; to use tables of users alone: --layout disjoint"
        )
    return PER_ARM
