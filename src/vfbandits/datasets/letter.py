"""Letter recognition: which of 26 letters is it?  Owners by kind of measurement."""

from vfbandits.datasets.encode import numbers
from vfbandits.datasets.owned_csv import OwnedCsv

BOX = ("x-box", "y-box", "width", "high", "onpix")
MOMENTS = ("x-bar", "y-bar", "x2bar", "y2bar")
CORRELATIONS = ("xybar", "x2ybar", "xy2bar")
EDGES = ("x-ege", "xegvy", "y-ege", "yegvx")

LETTER = OwnedCsv(
    name="letter",
    path="letter/letter-recognition.data.gz",
    sha256="2b89f3602cf768d3c8355267d2f13f2417809e101fc2b5ceee10db19a60de6e2",
    origin="https://archive.ics.uci.edu/dataset/59/letter+recognition",
    separator=",",
    target="letter",
    header=("letter", *BOX, *MOMENTS, *CORRELATIONS, *EDGES),
    owners={
        "box": numbers(*BOX),
        "moments": numbers(*MOMENTS),
        "correlations": numbers(*CORRELATIONS),
        "edges": numbers(*EDGES),
    },
    citation="D. Slate, Letter Recognition, UCI Machine Learning Repository (59)",
    licence="CC BY 4.0 (as stated by UCI)",
)
