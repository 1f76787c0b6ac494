"""The same rows in every kind of feature store."""

import uuid

import numpy as np
import polars as pl
import servers
import sqlalchemy as sa
from redis import Redis

from vfbandits.features.redis_hash import RedisStore, hash_name
from vfbandits.features.scaling import RawRows
from vfbandits.features.sql import SqlStore
from vfbandits.features.table_file import open_file

KINDS = ("parquet", "csv", "sqlite", "postgres", "redis")


CONSENT = "agreed"


def fill(kind, folder, rows, *, key, scaling, timeout_s=5.0, consents=None):
    """A store of this kind that holds ``rows``, from keys to cells.

    With ``consents``, a cell for each key, the table has one column more.
    """
    name = f"t{uuid.uuid4().hex}"
    options = {"scaling": scaling}
    if consents is not None:
        rows = {k: (*row, consents[k]) for k, row in rows.items()}
        options["consent"] = CONSENT
    if kind in ("parquet", "csv"):
        path = folder / f"{name}.{kind}"
        frame = as_frame(rows, key=key, scaling=scaling)
        (frame.write_parquet if kind == "parquet" else frame.write_csv)(path)
        return open_file(path, key=key, **options)
    if kind == "redis":
        url = servers.redis().url
        write_hashes(url, name, rows, columns=(*scaling.columns, CONSENT))
        return RedisStore(url, prefix=name, n_parts=len(key), timeout_s=timeout_s, **options)
    url = servers.postgres().url if kind == "postgres" else f"sqlite:///{folder / name}.db"
    write_table(url, name, rows, key=key, scaling=scaling)
    return SqlStore(url, table=name, key=key, timeout_s=timeout_s, **options)


def as_frame(rows, *, key, scaling):
    cells = [(*k, *row) for k, row in rows.items()]
    names = (*key, *scaling.columns, CONSENT)[: len(cells[0])]
    kinds = [pl.Float64 if name in scaling.numbers else pl.String for name in names]
    kinds = [
        pl.Boolean if name == CONSENT else kind for name, kind in zip(names, kinds, strict=True)
    ]
    return pl.DataFrame(cells, schema=dict(zip(names, kinds, strict=True)), orient="row")


def write_hashes(url, prefix, rows, *, columns):
    with Redis.from_url(url) as client, client.pipeline(transaction=False) as pipeline:
        for key, row in rows.items():
            cells = [repr(cell) if isinstance(cell, float | bool) else cell for cell in row]
            name = hash_name(prefix, key, n_parts=len(key))
            named = zip(columns, cells, strict=False)
            pipeline.hset(name, mapping={k: cell for k, cell in named if cell is not None})
        pipeline.execute()


def write_table(url, name, rows, *, key, scaling):
    table = sa.Table(
        name,
        sa.MetaData(),
        *(sa.Column(part, sa.Text, primary_key=True) for part in key),
        *(sa.Column(number, sa.Double) for number in scaling.numbers),
        *(sa.Column(category, sa.Text) for category in scaling.one_hot),
        sa.Column(CONSENT, sa.Boolean),
    )
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        table.create(connection)
        names = [column.name for column in table.columns]
        cells = [dict(zip(names, (*k, *row), strict=False)) for k, row in rows.items()]
        connection.execute(table.insert(), cells)
    engine.dispose()


def plain(rows, keys, scaling):
    """What a lookup must give, by a dictionary and row by row, and how many keys are missing."""
    n = len(scaling.numbers)
    values = np.zeros((len(keys), scaling.width))
    for place, key in enumerate(keys):
        if key in rows:
            numbers = np.array([rows[key][:n]], dtype=float)
            texts = tuple([text] for text in rows[key][n:])
            values[place] = scaling.apply(RawRows(numbers, texts))[0]
    return values, sum(key not in rows for key in keys)
