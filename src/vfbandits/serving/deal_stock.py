"""Server A's stock of dealt windows: a folder of sealed files that empties as they are used.

A file outside of the folder names the window in use; it is on the disk before the words of the
window are handed out.  So restoring the folder from a backup does not bring back a used window.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vfbandits.core.shares.messages import WindowDeal
from vfbandits.errors import RollbackError, StockError, VFBanditsError
from vfbandits.files import sync_folder, write_whole
from vfbandits.journal.shares.store import Dealt
from vfbandits.protocol.dealt import DealOpener, first_window, terms_digest, window_name

LOW_WINDOWS = 16
MAX_TIMES = 33
REFILL = "vfb masks deal --windows N at the mask generator makes more; copy the files here"


def stock_cursor(state: Path, epoch: int) -> Path:
    """The path of the file that names the window in use.

    >>> stock_cursor(Path("state"), 1).as_posix()
    'state/stock.epoch-1.json'
    """
    return state / f"stock.epoch-{epoch}.json"


@dataclass(frozen=True, slots=True)
class StockLeft:
    """What is left after the window in use.

    ``lasts_s`` is a forecast from the pace of the last windows; None without enough of them.
    """

    windows: int
    decisions: int
    size_bytes: int
    lasts_s: float | None
    is_low: bool


@dataclass(frozen=True, slots=True)
class _Cursor:
    """The window in use, the state of server A that uses it, and the start of the last ones."""

    window: int = -1
    deal: str = ""
    owner: str = ""
    times: tuple[float, ...] = ()


class DealStock:
    """Hands out dealt windows in order, each to one state of server A.

    ``cursor`` is a file outside of ``folder``.  ``left`` reports a low stock below ``low_windows``
    windows.
    """

    def __init__(
        self,
        folder: Path,
        *,
        opener: DealOpener,
        deal: str,
        cursor: Path,
        low_windows: int = LOW_WINDOWS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if cursor.resolve().parent == folder.resolve():
            raise StockError(f"wanted a cursor outside of {folder}, got {cursor}")
        self._folder = folder
        self._opener = opener
        self._deal = deal
        self.terms = opener.roster.share_terms
        self.dealt = Dealt(opener.epoch, deal, terms_digest(opener.roster))
        self._path = cursor
        self._low_windows = low_windows
        self._clock = clock
        self._cursor = self._read_cursor()
        self._is_swept = False

    def __repr__(self) -> str:
        """Place and count; no words."""
        return f"DealStock({str(self._folder)!r}, window={self._cursor.window})"

    def take(self, window: int, *, owner: str) -> WindowDeal:
        """The words of a window, for the state of server A that is named ``owner``.

        The same state may take the window in use again, after a restart.  Every other window that
        was begun is refused.
        """
        cursor = self._cursor
        if cursor.owner not in ("", owner) or window < cursor.window:
            raise RollbackError(
                f"{self._folder}: wanted the state of server A that uses window {cursor.window}, "
                f"got one that asks for window {window}: an older copy or another one.  Restore "
                "its newest files; if they are lost, start again with a new roster and a new deal"
            )
        deal = self._open(window)
        if window > cursor.window:
            times = (*cursor.times, self._clock())[-MAX_TIMES:]
            self._write_cursor(_Cursor(window, self._deal, owner, times))
        if not self._is_swept:
            self._drop_before(window)
            self._is_swept = True
        self._drop(window - 1)  # if the last fold was interrupted
        return deal

    def look(self, window: int) -> WindowDeal:
        """The words of a window, without beginning it; StockError if they are missing."""
        return self._open(window)

    def finish(self, window: int) -> None:
        """Delete the file of a window that was folded.

        The disk may still hold its bytes: encrypt it.
        """
        self._drop(window)

    def left(self) -> StockLeft:
        """What is left: consecutive windows after the one in use."""
        sizes: list[int] = []
        while True:
            path = self._file(self._cursor.window + 1 + len(sizes))
            try:
                sizes.append(path.stat().st_size)
            except OSError:
                break
        pace = self._pace()
        return StockLeft(
            windows=len(sizes),
            decisions=len(sizes) * self.terms.decisions,
            size_bytes=sum(sizes),
            lasts_s=None if pace is None else len(sizes) / pace,
            is_low=len(sizes) < self._low_windows,
        )

    def _pace(self) -> float | None:
        """Windows per second, over the last ones that were begun."""
        times = self._cursor.times
        if len(times) < 2:
            return None
        span = max(self._clock(), times[-1]) - times[0]
        return (len(times) - 1) / span if span > 0.0 else None

    def _file(self, window: int) -> Path:
        return self._folder / window_name(self._opener.name, self._opener.epoch, window)

    def _open(self, window: int) -> WindowDeal:
        path = self._file(window)
        try:
            data = path.read_bytes()
        except FileNotFoundError as error:
            raise StockError(f"no dealt words are left: wanted {path}, got none.  {REFILL}") from (
                error
            )
        except OSError as error:
            raise StockError(f"{path} cannot be read: {error.strerror}") from error
        try:
            return self._opener.window(data, window, deal=self._deal)
        except VFBanditsError as error:
            raise StockError(
                f"{path} is not window {window} of this deal, or was not copied whole: {error}"
            ) from error

    def _drop(self, window: int) -> None:
        path = self._file(window)
        try:
            path.unlink()
            sync_folder(self._folder)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise StockError(
                f"{path} was used up and cannot be deleted: {error.strerror}.  Delete it by hand"
            ) from error

    def _drop_before(self, window: int) -> None:
        """Delete all files of earlier windows of this epoch, also those that a backup brought."""
        start, end = window_name(self._opener.name, self._opener.epoch, 0).split("00000000")
        for path in self._folder.glob(f"{start}*{end}"):
            number = path.name.removeprefix(start).removesuffix(end)
            if number.isdecimal() and int(number) < window:
                self._drop(int(number))

    def _read_cursor(self) -> _Cursor:
        try:
            top = json.loads(self._path.read_bytes())
            cursor = _Cursor(**{**top, "times": tuple(top["times"])})
        except FileNotFoundError:
            return _Cursor(window=first_window(self._opener.epoch) - 1)
        except OSError as error:
            raise StockError(f"{self._path} cannot be read: {error.strerror}") from error
        except (ValueError, TypeError, KeyError) as error:
            raise StockError(
                f"{self._path} must name the window in use, got a damaged file: restore it"
            ) from error
        if cursor.deal != self._deal:
            raise StockError(
                f"{self._path} is of deal {cursor.deal[:12]}…, got words of deal "
                f"{self._deal[:12]}…: each deal needs a cursor of its own"
            )
        return cursor

    def _write_cursor(self, cursor: _Cursor) -> None:
        document = {
            "window": cursor.window,
            "deal": cursor.deal,
            "owner": cursor.owner,
            "times": list(cursor.times),
        }
        data = json.dumps(document).encode()
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_whole(self._path, lambda file: file.write(data), mode=0o600)
        except OSError as error:
            raise StockError(
                f"{self._path} cannot be written: {error.strerror}; no window was begun"
            ) from error
        self._cursor = cursor
