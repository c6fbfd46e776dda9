"""Fixtures of the tests with other people's clients: a real broker for each module."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

from support import aiokafka_client, confluent_client, kafka_python_client
from support.broker_process import BrokerProcess, running_broker
from support.topics import Topics

CLIENTS = (confluent_client, aiokafka_client, kafka_python_client)


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    """One broker for the module's tests; its settings are the module's `BROKER_SETTINGS`."""
    with running_broker(getattr(request.module, "BROKER_SETTINGS", {})) as process:
        yield process


@pytest.fixture(scope="module")
def bootstrap(broker: BrokerProcess) -> str:
    return broker.bootstrap


@pytest.fixture(scope="module")
def topics(bootstrap: str) -> Topics:
    return Topics(bootstrap)


@pytest.fixture
def topic(topics: Topics) -> str:
    """A topic of one partition with the defaults."""
    return topics.create()


@pytest.fixture(params=CLIENTS, ids=lambda client: client.NAME)
def client(request: pytest.FixtureRequest) -> ModuleType:
    """Each of the clients in turn."""
    module: ModuleType = request.param
    return module
