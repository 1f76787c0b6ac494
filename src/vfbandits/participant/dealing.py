"""The dealer of secret shares as a program: secrets once for each epoch, windows as often as asked.

All words of an epoch follow from the dealer's state file, which is on the disk before the first
envelope.  A window that is dealt again, because the dealer was killed before it recorded it, has
the same words under the same name.  An epoch whose state was lost is not dealt again: other words
under a name that was used would reveal secrets.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from vfbandits.core.shares.dealer import Dealer
from vfbandits.core.shares.kept import Kept
from vfbandits.errors import IdentityError, JournalError, SnapshotError, StockError
from vfbandits.files import PART, write_whole
from vfbandits.journal.witness import Witness
from vfbandits.participant.generator import find_generator
from vfbandits.pki.files import SECRET
from vfbandits.protocol.dealt import (
    FIRST_EPOCH,
    MAX_WINDOWS,
    DealSealer,
    deal_secrets,
    first_window,
    next_terms,
    secrets_name,
    terms_digest,
    window_name,
)
from vfbandits.protocol.roster import Roster

WINDOWS = 64
_TITLE = b"vfbandits dealer state 1\n"
_CHECK = hashlib.sha256().digest_size


@dataclass(frozen=True, slots=True)
class DealtWindows:
    """What one run has dealt; ``first`` to ``next_window`` - 1 are the numbers of its windows."""

    deal: str
    secrets: tuple[Path, ...]
    first: int
    next_window: int
    decisions: int
    size_bytes: int
    state: Path


def state_path(key_dir: Path, epoch: int) -> Path:
    """The default path of the dealer's state of an epoch."""
    return key_dir / f"dealer.epoch-{epoch}.state"


def deal_windows(  # noqa: PLR0913  (settings, by name)
    roster: Roster,
    *,
    key_dir: Path,
    epoch: int,
    out: Path,
    windows: int = WINDOWS,
    state: Path | None = None,
    before: Roster | None = None,
    on_step: Callable[[int], None] = lambda _: None,
) -> DealtWindows:
    """Deal ``windows`` more windows of an epoch into ``out``, and its secrets the first time.

    An epoch after the first begins with a hand-over, from the participants of the roster ``before``
    or, if there is none, from the same ones.  ``on_step`` is called with the number of windows that
    are done.
    """
    terms_digest(roster)  # refuses other protection levels
    signing_key = find_generator(key_dir, roster).signing_key
    path = state or state_path(key_dir, epoch)
    with _alone(path):
        if path.exists():
            kept = _load(path, roster, epoch)
        else:
            dealer = _first_dealer(roster, before or roster, epoch, state_path(key_dir, epoch - 1))
            kept = _begin(path, roster, dealer, out)
        sealer = DealSealer(roster, epoch, kept.record.text("deal"), signing_key)
        dealer = Dealer.restore(replace(roster.share_terms, idle=kept.idle), kept)
        _refuse_other_handover(dealer, before, roster)
        first, size = dealer.next_window, 0
        with _writing(out, n_whole=first - dealer.first_window):
            out.mkdir(parents=True, exist_ok=True)
            for left in out.glob(f".*.epoch-{epoch}.*{PART}"):  # by a dealer that was killed
                left.unlink()
            secrets = _hand_out(path, kept, dealer, sealer, out)
        if dealer.next_window + windows > first_window(epoch) + MAX_WINDOWS:
            raise StockError(f"an epoch has {MAX_WINDOWS} windows: deal the next epoch")
        for done in range(windows):
            data = sealer.window(dealer.deal())
            window = dealer.next_window - 1
            with _writing(out, n_whole=window - dealer.first_window):
                _write(out / window_name(roster.active.name, epoch, window), data)
                # After the window: without this note it is dealt once more, with the same words.
                _save(path, dealer, _about(roster, sealer.deal, is_handed_out=True))
            size += len(data)
            on_step(done + 1)
    return DealtWindows(
        deal=sealer.deal,
        secrets=secrets,
        first=first,
        next_window=dealer.next_window,
        decisions=windows * roster.share_terms.decisions,
        size_bytes=size,
        state=path,
    )


def _about(roster: Roster, deal: str, *, is_handed_out: bool) -> dict[str, object]:
    """What the state file holds in addition to the dealer's own state."""
    return {
        "federation": roster.federation,
        "digest": terms_digest(roster),
        "terms": roster.share_terms.document() | {"participants": roster.split.names},
        "deal": deal,
        "is_handed_out": is_handed_out,
    }


def _first_dealer(roster: Roster, before: Roster, epoch: int, previous: Path) -> Dealer:
    """The dealer of an epoch that was not dealt yet.

    From the previous epoch's dealer it takes the number of idle columns, if there is one, and no
    secret.
    """
    if epoch <= FIRST_EPOCH:
        return Dealer(roster.share_terms, epoch=epoch)
    idle = _read(previous, epoch - 1).idle if previous.exists() else 0
    terms, plan = next_terms(replace(before.share_terms, idle=idle), before, roster)
    return Dealer(terms, epoch=epoch, first_window=first_window(epoch), handover=plan)


def _refuse_other_handover(dealer: Dealer, before: Roster | None, roster: Roster) -> None:
    """Refuse a roster ``before`` other than the one that the epoch was dealt with."""
    plan = dealer.handover
    if before is None:
        return
    if plan is None:
        raise StockError(f"epoch {dealer.epoch} begins without a hand-over: omit --from")
    idle = replace(before.share_terms, idle=plan.idle)
    if next_terms(idle, before, roster)[1] != plan:
        raise StockError(
            f"epoch {dealer.epoch} was dealt for a hand-over from widths {list(plan.widths)}, got "
            f"{list(before.split.widths)}: deal the next epoch"
        )


def _begin(path: Path, roster: Roster, dealer: Dealer, out: Path) -> Kept:
    """A new state, on the disk before anything is sealed."""
    epoch = dealer.epoch
    pattern = f"*.epoch-{epoch}.*"
    there = sorted(file.name for file in out.glob(pattern) if file.suffix in (".secrets", ".deal"))
    if there:
        raise IdentityError(
            f"epoch {epoch} was dealt, {out} has {there[0]}, and its state is not at {path}: give "
            "--state, or deal the next epoch"
        )
    with _writing(path.parent, n_whole=0):
        return _save(path, dealer, _about(roster, os.urandom(16).hex(), is_handed_out=False))


def _load(path: Path, roster: Roster, epoch: int) -> Kept:
    kept = _read(path, epoch)
    if kept.record.text("digest") != terms_digest(roster):
        raise StockError(
            f"epoch {epoch} was dealt for other terms{_difference(kept, roster)}: words fit one "
            "set of terms only.  Deal the next epoch"
        )
    return kept


def _read(path: Path, epoch: int) -> Kept:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StockError(f"the dealer's state {path} cannot be read: {error.strerror}") from error
    if not data.startswith(_TITLE):
        raise SnapshotError(f"wanted a {_TITLE.decode().strip()!r}, got {path} without this title")
    body, check = data[len(_TITLE) : -_CHECK], data[-_CHECK:]
    if hashlib.sha256(body).digest() != check:
        raise SnapshotError(
            f"{path} is not the whole state of a dealer: restore it, or deal the next epoch"
        )
    kept = Kept.from_bytes(body)
    if kept.record.integer("epoch") != epoch:
        came = kept.record.integer("epoch")
        raise StockError(f"{path}: wanted the state of epoch {epoch}, got that of epoch {came}")
    return kept


def _difference(kept: Kept, roster: Roster) -> str:
    """Which terms have changed, as far as the state notes them."""
    was = kept.record.plain("terms")
    document = json.loads(json.dumps(_about(roster, "", is_handed_out=False)["terms"]))
    changed = [
        f"{name} {was.get(name)} is {new} now"
        for name, new in document.items()
        if was.get(name) != new
    ]
    return f" ({', '.join(changed)})" if changed else ""


def _save(path: Path, dealer: Dealer, about: dict[str, object]) -> Kept:
    kept = dealer.snapshot()
    kept = Kept({**kept.header, **about}, kept.words)
    body = kept.to_bytes()
    _write(path, _TITLE + body + hashlib.sha256(body).digest())
    return kept


def _hand_out(
    path: Path, kept: Kept, dealer: Dealer, sealer: DealSealer, out: Path
) -> tuple[Path, ...]:
    """The envelopes of all secrets, unless they were written before."""
    if kept.header["is_handed_out"]:
        return ()
    paths = []
    for name, secrets in deal_secrets(dealer, sealer.roster, deal=sealer.deal).items():
        paths.append(out / secrets_name(name, sealer.epoch))
        _write(paths[-1], sealer.secrets(name, secrets))
    _save(path, dealer, _about(sealer.roster, sealer.deal, is_handed_out=True))
    return tuple(paths)


def _write(path: Path, data: bytes) -> None:
    write_whole(path, lambda file: file.write(data), mode=SECRET)


@contextmanager
def _writing(folder: Path, *, n_whole: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StockError(
            f"the deal cannot be written to {error.filename or folder}: {error.strerror}.  The "
            f"{n_whole} windows before are complete and no partial file is left: run the same "
            "command again when the error is corrected"
        ) from error


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Lock this state against other dealers."""
    try:
        lock = Witness(path.with_name(f"{path.name}.lock"))
    except OSError as error:
        raise StockError(
            f"the dealer's state needs a folder to write to, got {path.parent}: {error.strerror}"
        ) from error
    try:
        lock.lock()
    except JournalError as error:
        raise StockError(f"{path} is in use by another dealer: wait for its end") from error
    try:
        yield
    finally:
        lock.close()
