"""Lists of users: what goes into an alignment, and the file that comes out."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from vfbandits.errors import ConfigError, FeatureError
from vfbandits.files import write_whole
from vfbandits.protocol.alignment import MAX_USERS


@dataclass(frozen=True, slots=True)
class UserList:
    """Users, each once; ``repeated`` and ``empty`` count what was left out.

    >>> users = UserList.of(["ann", "bob", "", "ann"])
    >>> users
    UserList(repeated=1, empty=1)
    >>> len(users)
    2
    """

    users: tuple[str, ...] = field(repr=False)
    repeated: int = 0
    empty: int = 0

    @classmethod
    def of(cls, texts: Iterable[str]) -> "UserList":
        """The users among ``texts``; refuses those that no line of a file could hold."""
        seen: dict[str, None] = {}
        repeated = empty = 0
        for text in texts:
            if not text:
                empty += 1
            elif text in seen:
                repeated += 1
            else:
                seen[text] = None
        if len(seen) > MAX_USERS:
            raise FeatureError(f"at most {MAX_USERS} users are aligned, got {len(seen)}")
        bad = sum(not _fits_a_line(user) for user in seen)
        if bad:
            raise FeatureError(
                f"users must be text of one line without spaces around it, got {bad} others"
            )
        if not seen:
            raise FeatureError("an alignment needs users, got none")
        return cls(tuple(seen), repeated, empty)

    def __len__(self) -> int:
        """How many there are."""
        return len(self.users)


def read_users(path: Path) -> UserList:
    """The users of a text file, one in each line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(
            f"--users must be a text file with a user in each line, got {path}: {why}"
        ) from error
    return UserList.of(line.strip() for line in lines)


def write_users(path: Path, users: Iterable[str]) -> None:
    """Write users, one in each line, to a file that only its owner can read."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        text = "".join(f"{user}\n" for user in users)
        write_whole(path, lambda file: file.write(text.encode()), mode=0o600)
    except OSError as error:
        raise ConfigError(f"wanted a file to write, got {path}: {error.strerror}") from error


def _fits_a_line(user: str) -> bool:
    return user.isprintable() and user.strip() == user
