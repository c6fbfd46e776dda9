"""Kafka's own tools: quotas and levels of loggers with kafka-configs, and what has no quorum."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

import moldau
import moldau.testing
from moldau.quotas import DEFAULT, QuotaEntity
from moldau.testing.running_broker import RunningBroker
from support.kafka_jars import CORE, JarsUnavailableError, require_class_path

CONFIGS = "kafka.admin.ConfigCommand"
_SECONDS = 120


@pytest.fixture(scope="module")
def class_path() -> str:
    try:
        return require_class_path(CORE)
    except JarsUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with moldau.testing.broker() as broker:
        yield broker


def tool(class_path: str, bootstrap: str, *arguments: str) -> str:
    command = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", class_path, CONFIGS]
    done = subprocess.run(
        [*command, "--bootstrap-server", bootstrap, *arguments],
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_kafka_configs_sets_shows_and_removes_quotas(
    class_path: str, running: RunningBroker
) -> None:
    bootstrap = running.bootstrap
    user = ("--entity-type", "users", "--entity-name", "alice o'hara")
    both = (*user, "--entity-type", "clients", "--entity-default")
    ip = ("--entity-type", "ips", "--entity-name", "10.0.0.1")
    limits = "producer_byte_rate=1024,request_percentage=12.5"
    tool(class_path, bootstrap, "--alter", "--add-config", limits, *user)
    tool(class_path, bootstrap, "--alter", "--add-config", "consumer_byte_rate=2048", *both)
    tool(class_path, bootstrap, "--alter", "--add-config", "connection_creation_rate=7", *ip)
    with moldau.Admin(bootstrap) as admin:
        assert admin.describe_client_quotas() == {
            QuotaEntity("alice o'hara"): {"producer_byte_rate": 1024.0, "request_percentage": 12.5},
            QuotaEntity("alice o'hara", DEFAULT): {"consumer_byte_rate": 2048.0},
            QuotaEntity(ip="10.0.0.1"): {"connection_creation_rate": 7.0},
        }
    client = ("--entity-type", "clients", "--entity-name", "app")
    tool(class_path, bootstrap, "--alter", "--add-config", limits, *client)
    shown = tool(class_path, bootstrap, "--describe", *client)
    assert "producer_byte_rate=1024.0" in shown
    assert "request_percentage=12.5" in shown
    assert "consumer_byte_rate=2048.0" in tool(class_path, bootstrap, "--describe", *both)
    assert "connection_creation_rate=7.0" in tool(class_path, bootstrap, "--describe", *ip)
    tool(class_path, bootstrap, "--alter", "--delete-config", "producer_byte_rate", *user)
    with moldau.Admin(bootstrap) as admin:
        left = admin.describe_client_quotas(user="alice o'hara", strict=True)
    assert left == {QuotaEntity("alice o'hara"): {"request_percentage": 12.5}}


def test_kafka_configs_shows_and_changes_levels_of_loggers(
    class_path: str, running: RunningBroker
) -> None:
    loggers = ("--entity-type", "broker-loggers", "--entity-name", "1")
    bootstrap = running.bootstrap
    tool(class_path, bootstrap, "--alter", "--add-config", "moldau.broker=DEBUG", *loggers)
    assert "moldau.broker=DEBUG" in tool(class_path, bootstrap, "--describe", *loggers)
    tool(class_path, bootstrap, "--alter", "--delete-config", "moldau.broker", *loggers)
    assert "moldau.broker=DEBUG" not in tool(class_path, bootstrap, "--describe", *loggers)
