"""Options of one listener: read with all others, and refused with them."""

from __future__ import annotations

import pytest

from moldau.config.broker_options import BrokerOptions, CurrentBrokerOptions
from moldau.config.describe import (
    check_broker_settings,
    check_default_broker_settings,
    find_unknown,
)
from moldau.config.listener_options import is_listener_option
from moldau.errors import ConfigurationError, InvalidConfigError

STATIC = {"listeners": "SASL_SSL://127.0.0.1:0", "security.inter.broker.protocol": "SASL_SSL"}
OWN = "listener.name.sasl_ssl."


def test_its_own_come_before_those_of_all() -> None:
    given = {"ssl.client.auth": "requested", f"{OWN}ssl.client.auth": "required"}
    options = BrokerOptions.resolve({**STATIC, **given})
    assert options.ssl_client_auth == "requested"
    assert options.of_listener("SASL_SSL").ssl_client_auth == "required"


def test_the_options_of_oauthbearer_may_have_the_mechanism_in_their_name() -> None:
    name = "sasl.oauthbearer.expected.issuer"
    given = {
        name: "of all",
        f"{OWN}{name}": "of the listener",
        f"{OWN}oauthbearer.{name}": "of its mechanism",
        f"{OWN}oauthbearer.sasl.oauthbearer.jwks.endpoint.url": "https://keys",
    }
    options = BrokerOptions.resolve({**STATIC, **given})
    assert find_unknown({**STATIC, **given}) == []
    own = options.of_listener("SASL_SSL")
    assert own.sasl_oauthbearer_expected_issuer == "of its mechanism"
    assert own.sasl_oauthbearer_jwks_endpoint_url == "https://keys"
    assert options.sasl_oauthbearer_expected_issuer == "of all"
    assert not is_listener_option(f"{OWN}plain.{name}")
    assert not is_listener_option(f"{OWN}oauthbearer.sasl.oauthbearer.no.such.option")


def test_a_wrong_option_with_the_mechanism_in_its_name_stops_the_start() -> None:
    name = "oauthbearer.sasl.oauthbearer.clock.skew.seconds"
    with pytest.raises(ConfigurationError, match=r"clock\.skew\.seconds=soon"):
        BrokerOptions.resolve({**STATIC, f"{OWN}{name}": "soon"})


def test_the_protocol_tls_is_accepted() -> None:
    given = {"ssl.protocol": "TLS", f"{OWN}ssl.protocol": "TLS", "zookeeper.ssl.protocol": "TLS"}
    options = BrokerOptions.resolve({**STATIC, **given})
    assert options.of_listener("SASL_SSL").ssl_enabled_protocols == ("TLSv1.2", "TLSv1.3")


def test_a_wrong_one_stops_the_start() -> None:
    with pytest.raises(ConfigurationError, match=r"ssl\.client\.auth=bogus"):
        BrokerOptions.resolve({**STATIC, f"{OWN}ssl.client.auth": "bogus"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ssl.client.auth", "bogus"),
        ("sasl.enabled.mechanisms", "GSSAPI"),
        ("connections.max.reauth.ms", "500"),  # as without the listener's name
        ("plain.connections.max.reauth.ms", "abc"),
    ],
)
def test_a_wrong_one_is_not_taken_while_the_broker_runs(name: str, value: str) -> None:
    """Else nobody could connect any more, not even to take it back."""
    broker = BrokerOptions.resolve(STATIC)
    with pytest.raises(InvalidConfigError):
        check_broker_settings({OWN + name: value}, broker)


def test_those_that_can_change_do_for_one_broker() -> None:
    broker = BrokerOptions.resolve(STATIC)
    settings = {f"{OWN}ssl.client.auth": "required", f"{OWN}plain.sasl.jaas.config": "x y;"}
    check_broker_settings(settings, broker)
    with pytest.raises(InvalidConfigError, match="only be set for one broker"):
        check_default_broker_settings(settings, broker)


def test_what_was_written_past_the_brokers_leaves_what_is_in_force() -> None:
    current = CurrentBrokerOptions(STATIC)
    current.apply({f"{OWN}ssl.client.auth": "required"}, {})
    current.apply({f"{OWN}ssl.client.auth": "bogus"}, {})
    assert current.options.of_listener("SASL_SSL").ssl_client_auth == "required"


def test_brokers_have_a_listener_for_each_other() -> None:
    alone = {"listeners": "SASL_SSL://127.0.0.1:0"}
    assert BrokerOptions.resolve(alone).inter_broker_listener is None
    with pytest.raises(ConfigurationError, match="is the protocol of no listener"):
        BrokerOptions.resolve({**alone, "zookeeper.connect": "127.0.0.1:1"})
    BrokerOptions.resolve({**STATIC, "zookeeper.connect": "127.0.0.1:1"})
