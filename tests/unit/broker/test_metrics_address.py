"""Where metrics are served: host and port, or a port alone; several brokers count on."""

from __future__ import annotations

import pytest

from moldau.broker.broker_places import count_metrics_on, plan_places
from moldau.config.broker_options import BrokerOptions
from moldau.config.declarations.network import split_address
from moldau.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9404", ("127.0.0.1", 9404)),
        ("0.0.0.0:9404", ("0.0.0.0", 9404)),
        ("[::1]:0", ("::1", 0)),
        (" host:1 ", ("host", 1)),
    ],
)
def test_an_address_is_read(text: str, address: tuple[str, int]) -> None:
    assert split_address(text) == address


@pytest.mark.parametrize("text", ["", "host", ":9404", "host:", "host:70000", "::1:9404", "h:x"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="9404"):
        split_address(text)


def test_the_ports_of_several_brokers_count_on() -> None:
    options = BrokerOptions.resolve({"metrics.listener": "9404"})
    told = [place.settings()["metrics.listener"] for place in plan_places(options, 3, 1)]
    assert told == ["127.0.0.1:9404", "127.0.0.1:9405", "127.0.0.1:9406"]
    assert count_metrics_on("[::1]:0", 2) == "[::1]:0"
    with pytest.raises(ConfigurationError):
        count_metrics_on("65535", 1)
    assert "metrics.listener" not in plan_places(BrokerOptions.resolve({}), 1, 1)[0].settings()
