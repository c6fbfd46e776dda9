"""How a broker logs in to others: with the password that is in force now."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from moldau.broker.ports import Ports
from moldau.broker.security import BrokerSecurity
from moldau.config.broker_options import CurrentBrokerOptions
from moldau.errors import ConfigurationError
from moldau.metrics.figures import BrokerFigures
from moldau.simulation.manual_clock import ManualClock
from moldau.workers import InlineWorkers

JAAS = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
}


def jaas(password: str) -> str:
    return f'x.PlainLoginModule required username="broker" password="{password}";'


def security_of(current: CurrentBrokerOptions) -> BrokerSecurity:
    ports = SimpleNamespace(clock=ManualClock(), workers=InlineWorkers(), network=None)
    return BrokerSecurity(cast(Ports, ports), current, BrokerFigures())


def test_a_password_that_is_changed_counts_for_the_next_connection() -> None:
    async def story() -> None:
        current = CurrentBrokerOptions({**SETTINGS, JAAS: jaas("first")})
        security = security_of(current)
        await security.load()
        client = security._client
        assert client is not None
        assert client.new_login is not None
        assert (await client.new_login()).first() == b"\0broker\0first"
        current.apply({JAAS: jaas("second")}, {})
        assert (await client.new_login()).first() == b"\0broker\0second"

    asyncio.run(story())


def test_a_broker_without_a_password_for_others_is_told_at_its_start() -> None:
    with pytest.raises(ConfigurationError, match="PLAIN needs a user and a password"):
        asyncio.run(security_of(CurrentBrokerOptions(SETTINGS)).load())
