"""scikit-learn's bundled digits, which need no download: owners hold stripes of the image."""

import importlib

import numpy as np

from vfbandits.datasets.owned import OwnedSet, own
from vfbandits.errors import DatasetError

STRIPES = ("rows 1-2", "rows 3-4", "rows 5-6", "rows 7-8")


def load_digits() -> OwnedSet:
    """1,797 images of 8 × 8 pixels; each of four owners holds two rows of pixels, from the top."""
    try:
        module = importlib.import_module("sklearn.datasets")
    except ModuleNotFoundError as error:
        raise DatasetError(
            "the digits come with scikit-learn, got none installed: "
            "pip install 'vfbandits[experiments]'"
        ) from error
    bunch = module.load_digits()
    images = np.asarray(bunch.images, dtype=np.float64)
    stripes = np.split(images, len(STRIPES), axis=1)
    owners, features = own(
        {n: s.reshape(len(images), -1) for n, s in zip(STRIPES, stripes, strict=True)}
    )
    return OwnedSet(
        name="digits",
        owners=owners,
        features=features,
        labels=np.asarray(bunch.target, dtype=np.intp),
        n_arms=10,
        citation="E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits, UCI (80)",
        licence="CC BY 4.0 (as stated by UCI); the copy bundled with scikit-learn",
    )
