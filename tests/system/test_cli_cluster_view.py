"""`moldau cluster info` and `health`, of our clusters and of one that is not ours."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from moldau.cli.main import run
from moldau.testing import RunningCluster, cluster
from support.command_line import Cli


@pytest.fixture(scope="module")
def three() -> Iterator[RunningCluster]:
    with cluster(3, {"broker.rack": "south"}) as running:
        running.create_topic("clicks", partitions=3, replication_factor=3)
        running.wait_until_whole()
        yield running


@pytest.fixture
def cli(three: RunningCluster, capsysbinary: pytest.CaptureFixture[bytes]) -> Cli:
    return Cli(three.bootstrap, capsysbinary)


@pytest.fixture(scope="module")
def mock() -> Iterator[str]:
    """librdkafka's own broker, which speaks less than Kafka does."""
    owner = Producer({"bootstrap.servers": "", "test.mock.num.brokers": 2, "log_level": 0})
    brokers = owner.list_topics(timeout=60).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    owner.flush(0)


def test_info_shows_brokers_features_and_counts(cli: Cli) -> None:
    shown = cli("cluster", "info")
    assert max(map(len, shown.splitlines())) <= 80
    for words in ("controller  broker", "3 with 9 replicas", "transaction.version=", "south"):
        assert words in shown
    assert shown.count("Kafka 4.1 or later") == 3
    assert "Fetch" not in shown
    assert "Fetch" in cli("cluster", "info", "--apis")


def test_info_for_machines_says_the_same(cli: Cli) -> None:
    found = cli.json("cluster", "info")
    assert (found["partitions"], found["replicas"]) == (3, 9)
    assert (found["under_replicated"], found["offline"]) == (0, 0)
    assert found["controller"] in [broker["id"] for broker in found["brokers"]]
    assert sum(broker["leads"] for broker in found["brokers"]) == 3
    assert found["brokers"][0]["apis"]["Fetch"]["last"] >= 17


def test_health_changes_with_the_cluster(cli: Cli, three: RunningCluster) -> None:
    assert cli("cluster", "health").startswith("healthy: 3 brokers")
    three.kill(3)
    three.wait_until(lambda: len(three.in_sync("clicks")) == 2, "the loss is seen")
    three.wait_until(
        lambda: all(3 not in three.in_sync("clicks", index) for index in range(3)), "all shrunk"
    )
    assert (
        "under-replicated"
        in json.loads(cli("cluster", "health", "--json", code=1))["findings"][0]["check"]
    )
    shown = cli("cluster", "health", code=1)
    assert "not healthy" in shown
    assert "do: " in shown
    three.restart(3)
    three.wait_until_whole()
    assert cli.json("cluster", "health")["healthy"] is True


def test_a_cluster_of_others_is_shown(mock: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cluster", "info", "--bootstrap", mock, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["brokers"]) == 2


def test_what_a_cluster_of_others_does_not_tell_is_said(
    mock: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cluster", "health", "--bootstrap", mock, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [one["check"] for one in found["findings"]] == ["no-controller"]  # it names none
    assert any("disks" in text for text in found["unchecked"])
