"""Criteo-shaped files small enough to check by hand, and the shared data where it is."""

import numpy as np
import pytest

from vfbandits.datasets.criteo.columns import COLUMNS
from vfbandits.datasets.shared_files import data_folder


@pytest.fixture
def shared_data():
    folder = data_folder()
    if not folder.is_dir():
        pytest.skip(f"needs the shared data, which is not at {folder}")
    return folder


@pytest.fixture
def line():
    """A line of the file from the fields that are not empty: ``line(label=1, I2=3, C1="a")``."""

    def write(label=0, **fields):
        values = {"label": label, **fields}
        return "\t".join(str(values.get(name, "")) for name in COLUMNS)

    return write


@pytest.fixture
def random_lines():
    """Lines whose columns have few values and many gaps, some of them mostly gaps."""

    def write(n_lines, seed):
        rng = np.random.default_rng(seed)
        gaps = rng.choice([0.0, 0.1, 0.3, 0.7], size=len(COLUMNS), p=[0.4, 0.3, 0.2, 0.1])
        gaps[:3] = 0.0
        gaps[-1] = 0.2
        lines = []
        for _ in range(n_lines):
            fields = [str(rng.integers(2))]
            for place, name in enumerate(COLUMNS[1:], start=1):
                if rng.random() < gaps[place]:
                    fields.append("")
                elif name.startswith("I"):
                    fields.append(str(rng.integers(-3, 10_000)))
                else:
                    fields.append(f"{rng.integers(3 + place) * 104_729_001 % 2**32:08x}")
            lines.append("\t".join(fields))
        return lines

    return write
