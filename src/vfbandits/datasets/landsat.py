"""Statlog (Landsat satellite): which of six kinds of soil?  Owners are the four spectral bands."""

from pathlib import Path

import numpy as np

from vfbandits.datasets.owned import OwnedSet, own
from vfbandits.datasets.shared_files import read_checked

FILES = {
    "sat.trn.gz": "e896dc88a960fa2404160fc4c3cb3dc53fcf4afd80ba920bf2d261bd42d12613",
    "sat.tst.gz": "4b9167b8a92baafafed7c8809aef86d0683a5e685c19d98d119fa6974f0f2479",
}
ORIGIN = "https://archive.ics.uci.edu/dataset/146/statlog+landsat+satellite"
N_BANDS = 4


def load_landsat(folder: Path) -> OwnedSet:
    """Both files; column c belongs to band c mod 4."""
    lines: list[str] = []
    for name, sha256 in FILES.items():
        text = read_checked(folder / "landsat" / name, sha256=sha256, origin=ORIGIN)
        lines += text.splitlines()
    table = np.loadtxt(lines)
    classes, labels = np.unique(table[:, -1], return_inverse=True)
    pixels = table[:, :-1]
    owners, features = own(
        {f"band {band + 1}": pixels[:, band::N_BANDS] for band in range(N_BANDS)}
    )
    return OwnedSet(
        name="landsat",
        owners=owners,
        features=features,
        labels=labels,
        n_arms=len(classes),
        citation=(
            "A. Srinivasan, Statlog (Landsat Satellite), UCI Machine Learning Repository (146)"
        ),
        licence="CC BY 4.0 (as stated by UCI)",
    )
