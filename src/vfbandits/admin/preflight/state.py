"""Preflight: what a participant keeps on its disk."""

import fcntl
import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import numpy as np

from vfbandits.admin.preflight.report import Report
from vfbandits.campaign.settings import DEFAULT
from vfbandits.core.mask import MaskShare
from vfbandits.errors import JournalError
from vfbandits.journal.base import JournalReader
from vfbandits.journal.crypto import read_key
from vfbandits.journal.mask_shares import ShareFiles
from vfbandits.journal.open import open_reader, place_of
from vfbandits.journal.shares.secrets import newest_epoch, read_secrets
from vfbandits.journal.sqlite.reader import SqliteReader
from vfbandits.journal.sqlite.rows import PRAGMAS, refuse_other_database
from vfbandits.journal.witness import Head, lock_path, read_ack
from vfbandits.participant.outbox import OUTBOX
from vfbandits.participant.run import missing_outbox
from vfbandits.participant.share_helper import FILE as HELPER_FILE
from vfbandits.participant.state_lock import LOCK
from vfbandits.pki.files import is_open_to_others, read_sealing_key, sealing_key_path
from vfbandits.protocol.dealt import DealOpener
from vfbandits.protocol.envelope import TOLERANCE, check_deal, open_share
from vfbandits.protocol.roster import ACTIVE, Roster
from vfbandits.serving.build import FIRST_EPOCH, missing_share
from vfbandits.serving.deal_stock import (
    LOW_WINDOWS,
    REFILL,
    DealStock,
    StockLeft,
    stock_cursor,
)
from vfbandits.serving.journals import witness_of
from vfbandits.serving.masks import load_envelopes, load_seats
from vfbandits.settings.services import (
    ActiveSettings,
    HelperSettings,
    ParticipantConfig,
    PassiveSettings,
)


def check_state(report: Report, place: ParticipantConfig) -> None:
    """The state folder can be written, or made."""
    folder = place.state
    if folder.exists() and not folder.is_dir():
        report.problem("state", f"wanted a folder at {folder}, got a file.  Remove it")
        return
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(nearest, os.W_OK | os.X_OK):
        report.problem("state", f"{nearest} is not writable by this user.  Use chown or chmod")
    elif folder.is_dir() and stat.S_IMODE(folder.stat().st_mode) & 0o077:
        report.warn("state", f"other users can read {folder}.  Run chmod 700 {folder}")
    elif folder.is_dir():
        report.ok("state", f"{folder} is writable")
    else:
        report.ok("state", f"{folder} is created at the first start")


def check_shares(report: Report, place: ParticipantConfig) -> None:
    """Shares of masks, if there are any yet: whole, private and orthonormal."""
    folder = place.state / "shares"
    if not folder.is_dir() or not any(folder.iterdir()):
        report.ok("shares", "none yet: the first one is created at the first start")
        return
    with report.blaming("shares", f"Restore {folder} from a backup, or join again"):
        held = ShareFiles(folder).load()
        wrong = [epoch for epoch, item in held.items() if not _is_orthonormal(item.share)]
        seen = [path.name for path in folder.iterdir() if is_open_to_others(path)]
        if wrong:
            report.problem(
                "shares",
                f"the columns of epoch {wrong[0]} must be orthonormal within {TOLERANCE}, but "
                f"are not.  Restore {folder} from a backup, or join again",
            )
        if seen:
            report.problem(
                "shares", f"other users can read {folder / seen[0]}.  Run chmod 600 on it"
            )
        if not wrong and not seen:
            report.ok("shares", f"epoch {' and '.join(map(str, held))}, orthonormal")


def check_own_share(report: Report, settings: ActiveSettings) -> None:
    """The active participant has the share behind which it has learnt, or has learnt nothing."""
    state = settings.state
    if not settings.journal or not state.is_dir():
        return
    with report.blaming("shares", f"Restore {state} from a backup"):
        folder = state / "shares"
        held = ShareFiles(folder).epochs() if folder.is_dir() else ()
        seats = load_seats(state)
        epoch = None if seats is None else seats.epoch
        if epoch is None and _has_learnt(settings):
            epoch = max(held, default=FIRST_EPOCH)
        if epoch is not None and epoch not in held:
            report.problem("shares", missing_share(state, epoch, held, DEFAULT))


def _has_learnt(settings: ActiveSettings) -> bool:
    """Whether the journal of a campaign, in a file or a database, has records, by its witness."""
    state = settings.state
    journals = [state / "journal.db", *sorted((state / "campaigns").glob("*.db"))]
    witnesses = [*map(lock_path, journals), *sorted((state / "witness").glob("*.head"))]
    return any((read_ack(witness) or Head(0)).position for witness in witnesses)


def _is_orthonormal(share: MaskShare) -> bool:
    S = share.columns  # noqa: N806
    with np.errstate(all="ignore"):
        return bool((np.abs(S.T @ S - np.eye(S.shape[1])) <= TOLERANCE).all())


def check_envelopes(report: Report, settings: ActiveSettings, roster: Roster) -> None:
    """With dense masks, a whole deal of the first epoch before the first start."""
    if roster.terms.mask != "dense":
        return
    if any((settings.state / "shares").glob("epoch-*.share")):
        report.ok("envelopes", "opened at an earlier start")
        return
    folder = settings.envelopes
    advice = f"The mask generator creates them: vfb masks deal --epoch {FIRST_EPOCH}"
    if folder is None or not folder.is_dir():
        got = "no 'envelopes' in the configuration" if folder is None else f"no folder {folder}"
        report.problem("envelopes", f"wanted a folder of sealed shares, got {got}.  {advice}")
        return
    with report.blaming("envelopes", advice):
        envelopes = load_envelopes(folder, roster, FIRST_EPOCH)
        deal = check_deal(envelopes, roster=roster, epoch=FIRST_EPOCH)
        open_share(
            envelopes[settings.name],
            roster=roster,
            epoch=FIRST_EPOCH,
            participant=settings.name,
            private_key=read_sealing_key(sealing_key_path(settings.identity, settings.name)),
        )
        report.ok("envelopes", f"deal {deal[:12]}…, one for each participant")


def check_dealt(
    report: Report, settings: ActiveSettings | PassiveSettings | HelperSettings, roster: Roster
) -> None:
    """On secret shares, the secrets of the epoch in force, and windows for server A."""
    if roster.terms.shares is None:
        return
    shares = settings.state / "shares"
    held = ShareFiles(shares).epochs() if shares.is_dir() else ()
    epoch = min(held, default=newest_epoch(settings.dealt, settings.name))
    with report.blaming("dealt"):
        key = read_sealing_key(sealing_key_path(settings.identity, settings.name))
        secrets = read_secrets(settings.dealt, settings.name, roster, epoch=epoch, key=key)
        dealt = f"secrets of deal {secrets.deal[:12]}…"
        if settings.role != ACTIVE:
            report.ok("dealt", dealt)
            return
        opener = DealOpener(roster, epoch, settings.name, key)
        cursor = stock_cursor(settings.state, epoch)
        stock = DealStock(settings.dealt, opener=opener, deal=secrets.deal, cursor=cursor)
        _tell_of_stock(report, stock.left(), dealt=dealt, folder=settings.dealt)


def _tell_of_stock(report: Report, left: StockLeft, *, dealt: str, folder: Path) -> None:
    if not left.windows:
        report.problem("dealt", f"wanted windows of words in {folder}, got none.  {REFILL}")
    elif left.is_low:
        report.warn(
            "dealt",
            f"words are left for {left.decisions:,} decisions in {left.windows} windows, fewer "
            f"than {LOW_WINDOWS} windows.  {REFILL}",
        )
    else:
        report.ok("dealt", f"{dealt}, {left.windows} windows for {left.decisions:,} decisions")


def check_journal(report: Report, settings: ActiveSettings) -> None:
    """The journal is one of vfbandits, and no process writes to it."""
    path = settings.state / "journal.db"
    if not settings.journal:
        report.ok("journal", "switched off: the model is lost at a restart")
    elif settings.journal_target:
        _check_target(report, settings)
    elif not path.exists():
        report.ok("journal", "is created at the first start")
    else:
        with report.blaming(
            "journal", "Check whether vfb serve active is running; if not, see its log"
        ):
            _refuse_if_locked(path.with_name(f"{path.name}.lock"))
            _refuse_other_database(path)
            key = None if settings.journal_key is None else read_key(settings.journal_key)
            with closing(SqliteReader(path, key=key, is_idle=True)) as reader:
                _tell_of_loss(report, str(path), reader)


def _check_target(report: Report, settings: ActiveSettings) -> None:
    """Compare a journal in a database with the witness that an earlier start has left."""
    head = read_ack(witness_of(settings.state, DEFAULT))
    with report.blaming(
        "journal", "Check that journal_target names the right database, and that it is up"
    ):
        place = place_of(settings.journal_target)
        if head is None:
            report.ok("journal", f"{place}, which is opened only at the start")
            return
        key = None if settings.journal_key is None else read_key(settings.journal_key)
        with closing(open_reader(settings.journal_target, key=key)) as reader:
            _tell_of_loss(report, "at journal_target", reader, expected=head.position)


def _tell_of_loss(report: Report, log: str, reader: JournalReader, *, expected: int = 0) -> None:
    last = reader.last_position
    missing = max(reader.damage.records, expected - last)
    if missing > 0:
        report.problem(
            "journal",
            f"the journal {log} was acknowledged up to record {last + missing}, but ends at "
            f"{last}.  Restore it from a backup, or start once with --accept-loss",
        )
    else:
        report.ok("journal", f"{log} can be opened, and ends at record {last}")


def check_outbox(report: Report, place: ParticipantConfig, roster: Roster) -> None:
    """With secure sums and secret shares, the file of messages whose pads are used only once."""
    path = place.state / OUTBOX
    if roster.terms.aggregation != "secure" and roster.terms.shares is None:
        return
    if not path.exists():
        head = read_ack(place.state / LOCK)
        was_reserved = head is not None and head.position > 0
        if was_reserved or any((place.state / "shares").glob("epoch-*.share")):
            report.problem("outbox", missing_outbox(path))
        else:
            report.ok("outbox", "is created at the first start")
        return
    # An old copy does not know every pad that was used, and a pad must not cover two messages.
    with report.blaming("outbox", "Join again with new keys, and do not restore an old copy"):
        _pragmas(path, "schema_version")
        report.ok("outbox", f"{path} can be opened")


def check_lock(report: Report, place: ParticipantConfig) -> None:
    """No other process uses a passive participant's state folder."""
    path = place.state / LOCK
    if not place.state.is_dir() or not path.is_file():
        return
    try:
        _refuse_if_locked(path)
    except JournalError as error:
        report.warn("state", f"{error}: if vfb serve passive is running, a second one is refused")


def check_helper_log(report: Report, place: ParticipantConfig) -> None:
    """The log of a helper: created at the first start, and used by one process."""
    path = place.state / HELPER_FILE
    if not path.exists():
        report.ok("helper log", "is created at the first start")
        return
    advice = "If vfb serve helper is running, a second one is refused"
    try:
        _refuse_if_locked(lock_path(path))
    except JournalError as error:
        report.warn("helper log", f"{error}.  {advice}")
        return
    # An old copy does not know every slot that was used.
    with report.blaming("helper log", "Put the newest files of the state folder back"):
        _pragmas(path, "schema_version")
        report.ok("helper log", f"{path} can be opened")


def _refuse_if_locked(lock: Path) -> None:
    if not lock.exists():
        return
    descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise JournalError(f"{lock} is locked by another process") from error
    finally:
        os.close(descriptor)


def _refuse_other_database(path: Path) -> None:
    application, version, schema = _pragmas(path, *PRAGMAS)
    if schema:
        refuse_other_database(path, application, version)


def _pragmas(path: Path, *names: str) -> list[int]:
    """Facts of an SQLite file, read without a trace: ``immutable`` takes no lock, makes no file."""
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?immutable=1", uri=True)) as db:
            return [int(db.execute(f"PRAGMA {name}").fetchone()[0]) for name in names]
    except (sqlite3.Error, OSError) as error:
        raise JournalError(f"{path} cannot be opened: {error}") from error
