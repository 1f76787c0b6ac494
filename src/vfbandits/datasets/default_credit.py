"""Default of credit card clients: will this client pay next month?  Two arms."""

from vfbandits.datasets.encode import categories, money, numbers
from vfbandits.datasets.owned_csv import OwnedCsv

DEFAULT_CREDIT = OwnedCsv(
    name="default_credit",
    path="default_credit/UCI_Credit_Card.csv.gz",
    sha256="a0f0ab49d6326671d6cd83be5c88dcf18007025fe9a53ecd699119c871176ca1",
    origin=(
        "https://archive.ics.uci.edu/dataset/350/default+of+credit+card+clients, as CSV at "
        "https://github.com/FederatedAI/FATE/blob/5a06d9e4c4cd/examples/data/UCI_Credit_Card.csv"
    ),
    separator=",",
    target="default.payment.next.month",
    is_balanced=True,
    owners={
        "demographics": (*categories("SEX", "EDUCATION", "MARRIAGE"), *numbers("AGE")),
        "credit line": money("LIMIT_BAL"),
        "bills and payments": money(
            *(f"BILL_AMT{month}" for month in range(1, 7)),
            *(f"PAY_AMT{month}" for month in range(1, 7)),
        ),
        "repayment status": numbers("PAY_0", *(f"PAY_{month}" for month in range(2, 7))),
    },
    citation='I-C. Yeh, "Default of Credit Card Clients", UCI, doi 10.24432/C55S3H',
    licence="CC BY 4.0 (as stated by UCI)",
)
