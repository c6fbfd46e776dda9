"""Listeners that strangers can reach: refused, or said at each start."""

from __future__ import annotations

import logging

import pytest

from moldau.broker.run import refuse_insecure
from moldau.config.broker_options import BrokerOptions
from moldau.errors import StartupError

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def options_of(listener: str, **settings: str) -> BrokerOptions:
    protocol = listener.partition("://")[0]
    return BrokerOptions.resolve(
        {
            "listeners": listener,
            "security.inter.broker.protocol": protocol,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]", "10.0.0.1", "broker.example.com", "127.1"])
def test_one_without_security_needs_the_word_insecure(host: str) -> None:
    listener = f"PLAINTEXT://{host}:9092"
    with pytest.raises(StartupError, match="--insecure"):
        refuse_insecure(options_of(listener))
    refuse_insecure(options_of(listener, insecure_listeners_enable="true"))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "127.3.2.1"])
def test_one_on_this_machine_needs_nothing(host: str) -> None:
    refuse_insecure(options_of(f"PLAINTEXT://{host}:9092"))


@pytest.mark.parametrize(
    ("listener", "settings", "is_told"),
    [
        ("SSL://0.0.0.0:9092", {}, True),
        ("SSL://0.0.0.0:9092", {"ssl_client_auth": "requested"}, True),
        ("SSL://0.0.0.0:9092", {"ssl_client_auth": "required"}, False),
        ("SSL://0.0.0.0:9092", {"authorizer_class_name": AUTHORIZER}, False),
        ("SSL://127.0.0.1:9092", {}, False),
        ("SASL_SSL://0.0.0.0:9092", {}, False),
    ],
)
def test_encryption_alone_keeps_nobody_out(
    listener: str, settings: dict[str, str], is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        refuse_insecure(options_of(listener, **settings))
    assert ["nobody has to say who he is" in line for line in caplog.messages] == [True] * is_told


def test_settings_that_no_listener_uses_are_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        refuse_insecure(options_of("PLAINTEXT://127.0.0.1:9092", ssl_client_auth="required"))
        refuse_insecure(options_of("SSL://127.0.0.1:9092", ssl_client_auth="required"))
    (line,) = caplog.messages
    assert line.startswith("ssl.client.auth is set and protects nothing")
