"""A restart takes the last snapshot and the events behind it, however long the log is."""

import asyncio
import time

import pytest
from benchmarks.long_log import make_bandit, write_long_log
from durables import parts
from journals import KEY, OnPostgres, OnSqlite

from vfbandits.serving.durable import DurableBandit

READY_S = 5.0


def restart(places, n_events, dim, behind):
    journals = [place.open() for place in places]
    model = write_long_log(journals, n_events=n_events, dim=dim, behind=behind)
    for journal in journals:
        journal.close()
    for place in places:
        start = time.process_time()
        bandit = DurableBandit.open(place.open(), lambda: make_bandit(dim))
        elapsed = time.process_time() - start
        assert bandit.recovery.start == n_events - behind
        assert bandit.recovery.replayed == behind
        assert parts(bandit.bandit) == parts(model.bandit)
        assert elapsed < READY_S
        asyncio.run(bandit.close())


@pytest.mark.parametrize("kind", [OnSqlite, OnPostgres])
def test_a_log_of_twenty_thousand_events_is_ready_at_once(tmp_path, kind):
    restart([kind(tmp_path, KEY)], n_events=20_000, dim=5, behind=5_000)


@pytest.mark.long
def test_a_log_of_a_million_events_is_ready_in_five_seconds(tmp_path):
    restart([OnSqlite(tmp_path), OnPostgres(tmp_path)], n_events=1_000_000, dim=100, behind=5_000)
