"""Bootstrap lists."""

from __future__ import annotations

import pytest

from moldau.client.rules.cluster_metadata import Address, parse_bootstrap
from moldau.errors import ConfigurationError


def test_a_list_of_addresses_is_read_in_order() -> None:
    assert parse_bootstrap("one:1, two:2,,") == (Address("one", 1), Address("two", 2))


def test_a_missing_port_is_kafkas() -> None:
    assert parse_bootstrap("one,[::1]") == (Address("one", 9092), Address("::1", 9092))


def test_ipv6_addresses_stand_in_brackets_and_are_shown_so() -> None:
    (address,) = parse_bootstrap("[::1]:9093")
    assert address == Address("::1", 9093)
    assert str(address) == "[::1]:9093"


@pytest.mark.parametrize(
    "text", ["", " , ", "host:port", "host:0", "host:65536", ":9092", "::1", "[::1", "[::1]9092"]
)
def test_what_is_no_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"127\.0\.0\.1:9092"):
        parse_bootstrap(text)
