"""Tables of three organisations about the same users: a shop with a log, a bank and a news site."""

import numpy as np
import polars as pl

ARMS = ("tea", "coffee", "cake")


def write_tables(folder, *, n_users=200, seed=0):
    """``shop.csv`` (with the arm shown and the click), ``bank.csv`` and ``news.parquet``.

    Arms were shown at random.  Clicks depend on a feature of each organisation; the bank does not
    know every tenth user.
    """
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    users = [f"u{number:04d}" for number in range(n_users)]
    shop = {"visits": rng.gamma(2.0, 3.0, n_users), "basket": rng.normal(40.0, 12.0, n_users)}
    bank = {"age": rng.normal(45.0, 13.0, n_users), "income": rng.lognormal(8.0, 0.4, n_users)}
    bank["balance"] = rng.normal(3000.0, 900.0, n_users)
    news = {name: rng.normal(size=n_users) for name in ("sport", "politics", "minutes")}
    drive = np.column_stack(
        [_scaled(shop["basket"]), _scaled(bank["income"]), _scaled(news["sport"])]
    )
    arms = rng.integers(len(ARMS), size=n_users)
    chance = 1.0 / (1.0 + np.exp(1.0 - 2.0 * drive[np.arange(n_users), arms]))
    log = {
        "device": rng.choice(["mobile", "desktop", "tablet"], n_users),
        "arm": [ARMS[arm] for arm in arms],
        "clicked": (rng.random(n_users) < chance).astype(int),
    }
    pl.DataFrame({"user": users, **_rounded(shop), **log}).write_csv(folder / "shop.csv")
    known = rng.permutation(n_users)[: n_users - n_users // 10]
    pl.DataFrame({"user": users, **_rounded(bank)})[np.sort(known)].write_csv(folder / "bank.csv")
    pl.DataFrame({"user": users, **news}).write_parquet(folder / "news.parquet")
    return [folder / name for name in ("shop.csv", "bank.csv", "news.parquet")]


def _scaled(column):
    return (column - column.mean()) / column.std()


def _rounded(columns):
    return {name: np.round(column, 2) for name, column in columns.items()}
