"""The noise of decisions on secret shares, where both servers' files are on one machine.

Each server draws half of it, and neither knows the sum.  A federation of ``vfb demo`` has all
secrets in one folder, so its decisions can be compared with those of a central bandit with the same
noise.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from scipy.linalg import block_diag

from vfbandits.campaign.events import Decided
from vfbandits.core.arrays import Vector
from vfbandits.core.ring import WordSource, add, decode
from vfbandits.core.shares.kept import Kept
from vfbandits.core.shares.messages import Place
from vfbandits.core.shares.noise import HalfNoise
from vfbandits.core.shares.slots import ALONE, event_of
from vfbandits.demo.local import LocalFederation
from vfbandits.errors import ConfigError
from vfbandits.journal.mask_shares import ShareFiles
from vfbandits.journal.open import open_journal
from vfbandits.journal.shares.active_log import ActiveLog
from vfbandits.journal.shares.helper_log import HelperLog
from vfbandits.journal.shares.secrets import read_secrets
from vfbandits.journal.shares.store import Dealt
from vfbandits.participant.share_helper import FILE as HELPER_FILE
from vfbandits.pki.member import sealing_key_of
from vfbandits.protocol.dealt import terms_digest
from vfbandits.serving.share_server import FILE as ACTIVE_FILE

EPOCH = 1


def read_noises(federation: LocalFederation) -> Mapping[str, Vector]:
    """The normals z, (dim,), of each decision in the journal, with the rotations undone.

    The processes of both servers must not run.
    """
    terms = federation.roster.share_terms
    halves = [HalfNoise(source, terms) for source in _sources(federation)]
    rotation = _rotation(federation)
    noises: dict[str, Vector] = {}
    for decision, event in _slots(federation).items():
        if event == ALONE or not terms.is_noisy:
            noises[decision] = np.zeros(terms.dim)
            continue
        place = Place(EPOCH, event[0], 0, event[1])
        behind = decode(add(*(half.of(place) for half in halves))) / terms.posterior_scale
        noises[decision] = np.asarray(behind @ rotation)
    return noises


def _state(federation: LocalFederation, name: str) -> Path:
    return federation.folder / name / "state"


def _sources(federation: LocalFederation) -> list[WordSource]:
    roster = federation.roster
    rules, active = roster.terms.shares, roster.active.name
    if rules is None:
        raise ConfigError(f"wanted protection 'shares', got {roster.terms.protection!r}")
    key = sealing_key_of(federation.identity(active))
    folder = federation.folder / active / "dealt"
    secrets = read_secrets(folder, active, roster, epoch=EPOCH, key=key)
    dealt = Dealt(EPOCH, secrets.deal, terms_digest(roster))
    logs = (
        ActiveLog(_state(federation, active) / ACTIVE_FILE, dealt=dealt),
        HelperLog(_state(federation, rules.helper) / HELPER_FILE, dealt=dealt),
    )
    try:
        return [WordSource(Kept.from_bytes(log.state or b"").secret("noise")) for log in logs]
    finally:
        for log in logs:
            log.close()


def _rotation(federation: LocalFederation) -> Vector:
    names = federation.roster.split.names
    shares = [ShareFiles(_state(federation, name) / "shares").load()[EPOCH].share for name in names]
    return np.asarray(block_diag(*[share.columns for share in shares]))


def _slots(federation: LocalFederation) -> dict[str, tuple[int, int]]:
    """The slot of each decision, as the journal has it."""
    journal = open_journal(_state(federation, federation.roster.active.name) / "journal.db")
    try:
        return {
            str(event.event_id): event_of(event.x)
            for _, event in journal.read(after=0)
            if isinstance(event, Decided)
        }
    finally:
        journal.close()
