"""The data sets with natural owners, by name."""

from collections.abc import Callable
from pathlib import Path

from vfbandits.datasets.bank_marketing import BANK_MARKETING
from vfbandits.datasets.default_credit import DEFAULT_CREDIT
from vfbandits.datasets.digits import load_digits
from vfbandits.datasets.landsat import load_landsat
from vfbandits.datasets.letter import LETTER
from vfbandits.datasets.mfeat import load_mfeat
from vfbandits.datasets.owned import OwnedSet
from vfbandits.datasets.shared_files import data_folder
from vfbandits.errors import DatasetError

LOADERS: dict[str, Callable[[Path], OwnedSet]] = {
    "default_credit": DEFAULT_CREDIT.load,
    "bank_marketing": BANK_MARKETING.load,
    "landsat": load_landsat,
    "mfeat": load_mfeat,
    "letter": LETTER.load,
}
BUNDLED = "digits"
NAMES = (*LOADERS, BUNDLED)


def load_owned(name: str, *, folder: Path | None = None) -> OwnedSet:
    """Load one of ``NAMES``; all but the digits are in ``folder``, or in ../shared/data."""
    if name == BUNDLED:
        return load_digits()
    if name not in LOADERS:
        raise DatasetError(f"a data set must be one of {', '.join(NAMES)}, got {name!r}")
    return LOADERS[name](data_folder(folder))


def available(folder: Path | None = None) -> tuple[str, ...]:
    """Those whose folder is there; always the digits."""
    where = data_folder(folder)
    return (*(name for name in LOADERS if (where / name).is_dir()), BUNDLED)
