"""Addresses in configuration files."""

import pytest

from vfbandits.errors import ConfigError
from vfbandits.settings.address import split_address


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("127.0.0.1:0", ("127.0.0.1", 0)),
        ("shop.example:65535", ("shop.example", 65_535)),
        ("[fe80::1]:7443", ("fe80::1", 7_443)),
    ],
)
def test_host_and_port_are_told_apart(text, parts):
    assert split_address(text) == parts


@pytest.mark.parametrize(
    "text",
    ["", "shop", ":80", "shop:", "shop:http", "shop:-1", "::1:80", "a b:80", 'a"b:80', "a\n:80",
     "http://shop:80", "shöp:80", "shop:8²", "[]:80", "shop:80\n"],
)  # fmt: skip
def test_anything_else_is_refused(text):
    with pytest.raises(ConfigError, match="an address is written host:port"):
        split_address(text)


def test_a_port_has_16_bits():
    with pytest.raises(ConfigError, match="a port is at most 65535, got 65536"):
        split_address("shop:65536")
