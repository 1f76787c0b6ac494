"""Bank marketing: will this client take the deposit?  Two arms.

``duration`` is left out: how long the call took is known only after it.
"""

from vfbandits.datasets.encode import categories, numbers
from vfbandits.datasets.owned_csv import OwnedCsv

BANK_MARKETING = OwnedCsv(
    name="bank_marketing",
    path="bank_marketing/bank-additional-full.csv.gz",
    sha256="74adfc578bf77a7ff4bb1ba4a9f8709d9e3c6907342959c2c8416847e0afb4d8",
    origin=(
        "https://archive.ics.uci.edu/dataset/222/bank+marketing "
        "(bank-additional-full.csv in bank-additional.zip)"
    ),
    separator=";",
    target="y",
    is_balanced=True,
    owners={
        "client": (
            *numbers("age"),
            *categories("job", "marital", "education", "default", "housing", "loan"),
        ),
        "contact": (*categories("contact", "month", "day_of_week"), *numbers("campaign")),
        "history": (*numbers("pdays", "previous"), *categories("poutcome")),
        "economy": numbers(
            "emp.var.rate", "cons.price.idx", "cons.conf.idx", "euribor3m", "nr.employed"
        ),
    },
    citation=(
        'S. Moro, P. Cortez, P. Rita, "A Data-Driven Approach to Predict the Success of Bank '
        'Telemarketing", Decision Support Systems 2014, doi 10.24432/C5K306'
    ),
    licence="CC BY 4.0",
)
