"""Judgements of candidates on disk, so that an interrupted tuning resumes where it stopped."""

import zipfile
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import IO

import numpy as np

from vfbandits.core.arrays import Matrix
from vfbandits.errors import SettingError
from vfbandits.evaluate.log import LoggedBandit
from vfbandits.evaluate.tune import Candidate, Judgement, TuneSettings
from vfbandits.files import write_whole

_UNREADABLE = (OSError, KeyError, ValueError, zipfile.BadZipFile)


class KeptJudgements:
    """One file for each candidate, named by a digest of all that its judgement depends on.

    A file that cannot be read counts as missing: the candidate is judged again.
    """

    def __init__(
        self, folder: Path, log: LoggedBandit, settings: TuneSettings, *, seed: int, version: str
    ) -> None:
        self._folder = folder
        about = (version, seed, settings.estimator, settings.intercept, settings.seed,
                 settings.evaluation.train_share, settings.evaluation.clip,
                 settings.evaluation.model, log.arms, log.layout)  # fmt: skip
        digest = blake2b(repr(about).encode(), digest_size=16)
        for array in (log.contexts, log.chosen, log.rewards, log.probabilities, log.arm_features,
                      log.offered):  # fmt: skip
            if array is not None:
                digest.update(repr(array.shape).encode())
                digest.update(np.ascontiguousarray(array).data)
        self._digest = digest
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SettingError(f"{folder} must be a writable folder, got: {error}") from error

    def load(self, candidate: Candidate) -> Judgement | None:
        """The saved judgement, if there is one."""
        try:
            data = BytesIO(self._path(candidate).read_bytes())
            with np.load(data, allow_pickle=False) as kept:
                columns: Matrix = kept["columns"]
                explores, size = kept["figures"].tolist()
                return Judgement(columns, explores, size, tuple(kept["doubts"].tolist()))
        except _UNREADABLE:
            return None

    def save(self, candidate: Candidate, judgement: Judgement) -> None:
        """Save it, whole or not at all."""

        def write(file: IO[bytes]) -> None:
            np.savez(
                file,
                columns=judgement.columns,
                figures=np.array([judgement.explores, judgement.effective_size]),
                doubts=np.array(judgement.doubts, dtype=np.str_),
            )

        path = self._path(candidate)
        try:
            write_whole(path, write, mode=0o600)
        except OSError as error:
            raise SettingError(f"{path} must be written to, got: {error}") from error

    def _path(self, candidate: Candidate) -> Path:
        digest = self._digest.copy()
        digest.update(repr(candidate).encode())
        return self._folder / f"{digest.hexdigest()}.npz"
