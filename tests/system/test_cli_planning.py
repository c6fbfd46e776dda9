"""`moldau bench`, `plan` and `rebalance` against real brokers; nothing here asserts how fast."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import moldau
import moldau.testing
from moldau.testing.running_broker import RunningBroker, broker
from support.command_line import Cli

SHORT = ("--seconds", "0.3")


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningBroker]:
    with broker({"num.partitions": "1"}) as running:
        yield running


@pytest.fixture
def cli(shared: RunningBroker, capsysbinary: pytest.CaptureFixture[bytes]) -> Cli:
    return Cli(shared.bootstrap, capsysbinary)


@pytest.mark.parametrize(
    "arguments",
    [
        ("produce", "--compression", "zstd", "--acks", "1", "--partitions", "3"),
        ("consume",),
        ("consume", "--decode", "--record-size", "100"),
        ("latency", "--rate", "50"),
        ("requests", "--in-flight", "4"),
    ],
    ids=" ".join,
)
def test_a_measurement_gives_figures_and_leaves_nothing_behind(
    cli: Cli, arguments: tuple[str, ...]
) -> None:
    (found,) = cli.json("bench", *arguments, *SHORT)["clusters"]
    assert found["per_second"] > 0
    assert found["rounds"][0]["count"] > 0
    if arguments[0] != "consume":
        assert 0 < found["p50_ms"] <= found["max_ms"]
    assert "moldau-bench" not in cli("topics", "list")
    assert "/s" in cli("bench", *arguments, *SHORT)


def test_two_clusters_are_measured_in_turns(cli: Cli, shared: RunningBroker) -> None:
    host, _, port = shared.bootstrap.rpartition(":")
    other = f"localhost:{port}" if host == "127.0.0.1" else shared.bootstrap
    found = cli.json("bench", "requests", *SHORT, "--against", other, "--rounds", "2")
    assert [len(one["rounds"]) for one in found["clusters"]] == [2, 2]
    assert found["ratio"]["per_second"] > 0
    assert cli.err.count("round 1 of 2") == 2


def test_a_topic_that_is_there_stays(cli: Cli) -> None:
    cli("topics", "create", "kept")
    cli("bench", "produce", "--topic", "kept", *SHORT)
    assert cli.json("bench", "consume", "--topic", "kept", *SHORT)["clusters"][0]["per_second"] > 0
    assert "kept" in cli("topics", "list")


def test_a_plan_says_how_many_partitions_and_what_they_cost(cli: Cli) -> None:
    known = ("--produce-rate", "10MB/s", "--consume-rate", "25MB/s")
    found = cli.json("plan", "--target", "200MB/s", *known, "--brokers", "3")
    assert (found["partitions"], found["for_consuming"], found["brokers"]) == (20, 8, 3)
    assert found["costs"]["replicas_per_broker"] == 7
    shown = cli("plan", "--target", "1MB/s", *SHORT)
    assert shown.startswith("1 partitions for 1 MB/s\n")
    assert "file handles per broker" in shown
    assert "moldau-bench" not in cli("topics", "list")


def test_a_cluster_is_rebalanced(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    with moldau.testing.cluster(3) as running:
        cli = Cli(running.bootstrap, capsysbinary)
        with moldau.Admin(running.bootstrap) as admin:
            rows = {n: [running.broker_ids[0], running.broker_ids[1]] for n in range(6)}
            made = admin.create_topics([moldau.NewTopic(name="skewed", assignments=rows)])
            assert not isinstance(made["skewed"], Exception)
            with moldau.Producer(running.bootstrap) as producer:
                for number in range(6):
                    producer.send("skewed", bytes(100_000), partition=number)
            plan = cli.json("rebalance", "--topic", "skewed")
            assert plan["partitions"]
            assert len({one["leaders_after"] for one in plan["brokers"]}) == 1
            before = admin.describe_topics(["skewed"])["skewed"]
            assert all(row.leader_id == running.broker_ids[0] for row in before.partitions)
            cli("rebalance", "--topic", "skewed", "--execute", "--throttle", "50000000")
            after = admin.describe_topics(["skewed"])["skewed"]
            assert {row.leader_id for row in after.partitions} == set(running.broker_ids)
            cli("rebalance", "--topic", "skewed")
            assert "nothing has to move" in cli.err
            ends = admin.list_offsets({moldau.TopicPartition("skewed", n): -1 for n in range(6)})
            assert {one.offset for one in ends.values()} == {1}
