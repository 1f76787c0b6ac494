"""A server whose journal has lost acknowledged records does not start, unless that is accepted."""

import pytest
from http_world import HttpWorld

from vfbandits.admin.preflight import preflight
from vfbandits.campaign.events import LossAccepted
from vfbandits.errors import LinkError
from vfbandits.journal.open import open_reader


def flip_a_bit_of_the_wal(journal):
    wal = journal.with_name("journal.db-wal")
    data = bytearray(wal.read_bytes())
    data[len(data) * 3 // 4] ^= 1
    wal.write_bytes(data)


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    """A busy machine takes its time to start a process."""
    monkeypatch.setattr("vfbandits.demo.processes.READY_S", 240.0)


@pytest.mark.timeout(600)
def test_lost_records_are_refused_until_they_are_accepted_which_is_recorded(tmp_path):
    with HttpWorld(tmp_path) as world:
        local = world.local
        with world.client() as client:
            client.timeout = 60.0
            for number in range(30):
                assert world.rank(client, event_id=f"e{number}").status_code == 200
        local.kill("shop")
        journal = local.folder / "shop" / "state" / "journal.db"
        flip_a_bit_of_the_wal(journal)
        report = preflight(local.config("shop"), timeout_s=0.5)
        told = [line.says for line in report.findings if line.what == "journal"]
        assert "acknowledged up to record 30" in told[0]
        assert "--accept-loss" in told[0]
        with pytest.raises(LinkError, match="acknowledged up to 30, got an end at"):
            local.start("shop")
        local.processes.pop("shop").stdout.close()
        local.start("shop", flags=["--accept-loss"])
        with world.client() as client:
            assert client.get("/readyz").status_code == 200
            assert world.rank(client, event_id="after").status_code == 200
        reader = open_reader(journal)
        events = [event for _, event in reader.read()]
        reader.close()
        (accepted,) = [event for event in events if isinstance(event, LossAccepted)]
        assert (accepted.expected, events[accepted.found]) == (30, accepted)
        assert "@" in accepted.by
        warned = [line for line in local.events("shop") if line["event"] == "loss_accepted"]
        assert [line["records"] for line in warned] == [30 - accepted.found]
        local.kill("shop")
        local.start("shop")  # once is enough
