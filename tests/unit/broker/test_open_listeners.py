"""Listeners that strangers can reach: refused, or said at each start."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from moldau.broker.listeners import refuse_insecure, warn_of_open_keys
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


def test_metrics_for_strangers_need_the_word_insecure(caplog: pytest.LogCaptureFixture) -> None:
    near = "PLAINTEXT://127.0.0.1:9092"
    for address in ("9404", "127.0.0.1:9404", "[::1]:9404", "localhost:0"):
        refuse_insecure(options_of(near, metrics_listener=address))
    for address in ("0.0.0.0:9404", "[::]:9404", "10.0.0.1:9404"):
        with pytest.raises(StartupError, match=r"metrics\.listener=.*--insecure"):
            refuse_insecure(options_of(near, metrics_listener=address))
        with caplog.at_level(logging.WARNING):
            refuse_insecure(
                options_of(near, metrics_listener=address, insecure_listeners_enable="true")
            )
        assert f"the metrics on {address} are not secured" in caplog.text


@pytest.mark.parametrize(("mode", "is_told"), [(0o600, False), (0o640, False), (0o644, True)])
def test_a_key_that_everybody_can_read_is_told(
    mode: int, is_told: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys = {one: tmp_path / f"{one}.pem" for one in ("broker", "zookeeper")}
    for key in keys.values():
        key.write_text("secret")
        key.chmod(mode)
    options = options_of(
        "SSL://127.0.0.1:9092",
        ssl_keystore_location=str(keys["broker"]),
        zookeeper_ssl_keystore_location=str(keys["zookeeper"]),
        zookeeper_ssl_client_enable="true",
    )
    with caplog.at_level(logging.WARNING):
        warn_of_open_keys(options)
    told = [str(key) in line for key, line in zip(keys.values(), caplog.messages, strict=False)]
    assert told == [True, True] * is_told


def test_settings_that_no_listener_uses_are_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        refuse_insecure(options_of("PLAINTEXT://127.0.0.1:9092", ssl_client_auth="required"))
        refuse_insecure(options_of("SSL://127.0.0.1:9092", ssl_client_auth="required"))
    (line,) = caplog.messages
    assert line.startswith("ssl.client.auth is set and protects nothing")
