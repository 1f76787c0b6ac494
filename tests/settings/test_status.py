"""The table [status] of a passive participant: what it refuses, and why."""

import pytest

from vfbandits.errors import ConfigError
from vfbandits.settings.decode import decode
from vfbandits.settings.status import StatusSettings


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"address": "9464"}, "host:port"),
        ({"address": "0.0.0.0:9464"}, "wanted a certificate and a private_key"),
        ({"address": "127.0.0.1:0", "certificate": "a.crt"}, "go together"),
        ({"address": "127.0.0.1:0", "clients": "ca.crt"}, "clients need a certificate"),
        ({"address": "127.0.0.1:0", "keys": "keys.json"}, "keys"),
    ],
)
def test_a_port_that_could_not_be_served_or_is_in_plain_is_refused(table, words):
    with pytest.raises(ConfigError, match=words):
        decode(table, StatusSettings)


def test_beyond_this_machine_it_takes_a_certificate_and_on_loopback_none():
    assert decode({"address": "127.0.0.1:0"}, StatusSettings).http.certificate is None
    files = {"certificate": "a.crt", "private_key": "a.key", "clients": "ca.crt"}
    http = decode({"address": "0.0.0.0:9464", **files}, StatusSettings).http
    assert [str(http.certificate), str(http.private_key), str(http.clients)] == [*files.values()]
