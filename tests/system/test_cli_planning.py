"""`moldau bench`, `plan` and `rebalance` against real brokers; nothing here asserts how fast."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections.abc import Iterator

import pytest

import moldau
import moldau.testing
from moldau.cli.bench_run import Load, bench_topic, measure_latency, measure_produce
from moldau.testing.running_broker import RunningBroker, broker
from support.command_line import Cli
from support.waiting import PATIENCE_SECONDS, eventually

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
    assert shown.startswith("1 partition for 1 MB/s\n")
    assert "file handles per broker" in shown
    assert "moldau-bench" not in cli("topics", "list")


@contextlib.contextmanager
def writing_all_the_time(bootstrap: str, topic: str) -> Iterator[None]:
    """To partition 0, one record after the other."""
    is_enough = threading.Event()

    def write() -> None:
        with moldau.Producer(bootstrap, linger_ms=0) as producer:
            while not is_enough.is_set():
                producer.send(topic, bytes(10_000), partition=0).result()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        is_enough.set()
        thread.join()


def measured_traffic(cli: Cli, topic: str) -> dict[int, dict[str, int]]:
    """Of brokers by id; nothing when nothing was written during the sample."""
    found = cli.json("rebalance", "--topic", topic, "--sample", "1")["brokers"]
    by_id = {one["broker"]: one for one in found}
    return by_id if any(one["bytes_in_per_second_before"] for one in found) else {}


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
            by_size = ("rebalance", "--topic", "skewed", "--sample", "0")
            plan = cli.json(*by_size)
            assert plan["partitions"]
            assert len({one["leaders_after"] for one in plan["brokers"]}) == 1
            before = admin.describe_topics(["skewed"])["skewed"]
            assert all(row.leader_id == running.broker_ids[0] for row in before.partitions)
            assert all(one["bytes_in_per_second_before"] == 0 for one in plan["brokers"])
            with writing_all_the_time(running.bootstrap, "skewed"):
                loads = eventually(
                    lambda: measured_traffic(cli, "skewed"), "no traffic was measured"
                )
            leader, follower, other = (loads[one] for one in running.broker_ids)
            assert leader["bytes_in_per_second_before"] == follower["bytes_in_per_second_before"]
            assert other["bytes_in_per_second_before"] == 0
            assert (
                leader["leader_bytes_per_second_before"] == 2 * leader["bytes_in_per_second_before"]
            )
            assert "MB/s in before" in cli("rebalance", "--topic", "skewed", "--sample", "0.1")
            cli(*by_size, "--execute", "--throttle", "50000000")
            after = admin.describe_topics(["skewed"])["skewed"]
            assert {row.leader_id for row in after.partitions} == set(running.broker_ids)
            cli(*by_size)
            assert "nothing has to move" in cli.err
            ends = admin.list_offsets({moldau.TopicPartition("skewed", n): -1 for n in range(1, 6)})
            assert {one.offset for one in ends.values()} == {1}


def test_a_partition_without_a_leader_hinders_no_plan(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    with moldau.testing.cluster(2) as running:
        cli = Cli(running.bootstrap, capsysbinary)
        dead, alive = running.broker_ids
        with moldau.Admin(running.bootstrap) as admin:
            rows = {0: [dead], 1: [alive]}
            made = admin.create_topics([moldau.NewTopic(name="lost", assignments=rows)])
            assert not isinstance(made["lost"], Exception)
        running.stop(dead)
        running.wait_until(lambda: running.leader_of("lost", 0) is None, "a leaderless partition")
        plan = cli.json("rebalance", "--topic", "lost", "--sample", "0.1")
        assert [one["broker"] for one in plan["brokers"]] == [alive]


@pytest.mark.parametrize("kind", ["produce", "latency"])
def test_a_measurement_that_is_stopped_leaves_no_task_behind(
    shared: RunningBroker, kind: str
) -> None:
    """As by Ctrl-C: nobody is told of producers that are closed under tasks."""
    complaints: list[object] = []

    async def stop_in_between() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: complaints.append(context)
        )
        begun = asyncio.Event()

        def on_progress(records: int, size_bytes: int) -> None:
            if records:
                begun.set()

        load = Load(record_bytes=100, seconds=3600.0)
        async with bench_topic(shared.bootstrap, load) as topic:
            work = (
                measure_produce(shared.bootstrap, topic, load, on_progress)
                if kind == "produce"
                else measure_latency(
                    shared.bootstrap, topic, load, on_progress, records_per_second=200.0
                )
            )
            before = asyncio.all_tasks()
            task = asyncio.create_task(work)
            await asyncio.wait_for(begun.wait(), PATIENCE_SECONDS)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert asyncio.all_tasks() <= before

    asyncio.run(stop_in_between())
    gc.collect()
    assert not complaints
