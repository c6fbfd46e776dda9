"""`moldau explain` and `moldau doctor` against a real broker, after things really happened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import moldau
from moldau.clock import SystemClock
from moldau.ops.cluster_survey import SurveyReader
from moldau.ops.rules.checks import ClusterSurvey, Severity, find_all
from moldau.testing import broker as start_broker
from moldau.testing.free_ports import take_port
from moldau.testing.running_broker import RunningBroker
from support.command_line import Cli
from support.waiting import PATIENCE_SECONDS, eventually

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "100",
    "log.segment.bytes": "1048576",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with start_broker({**SETTINGS, "metrics.listener": f"127.0.0.1:{take_port()}"}) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        wanted = [
            NewTopic("plain", 1, 1),
            NewTopic("grouped", 1, 1),
            NewTopic(
                "keys",
                1,
                1,
                config={
                    "cleanup.policy": "compact",
                    "segment.bytes": "1048576",
                    "min.cleanable.dirty.ratio": "0.01",
                    "max.compaction.lag.ms": "1",
                },
            ),
        ]
        for made in admin.create_topics(wanted).values():
            made.result(PATIENCE_SECONDS)
        yield running


@pytest.fixture
def cli(broker: RunningBroker, capfdbinary: pytest.CaptureFixture[bytes]) -> Cli:
    return Cli(broker.bootstrap, capfdbinary)


def produce(running: RunningBroker, topic: str, *values: bytes, key: bytes | None = None) -> None:
    producer = Producer({"bootstrap.servers": running.bootstrap, "linger.ms": 0})
    for value in values:
        producer.produce(topic, value, key)
        producer.flush(PATIENCE_SECONDS)


def test_records_that_are_here_deleted_aborted_or_undecided(
    broker: RunningBroker, cli: Cli
) -> None:
    produce(broker, "plain", b"0", b"1", b"2")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "x"})
    producer.init_transactions(PATIENCE_SECONDS)
    producer.begin_transaction()
    producer.produce("plain", b"3")
    producer.flush(PATIENCE_SECONDS)
    producer.abort_transaction(PATIENCE_SECONDS)  # its marker is 4
    producer.begin_transaction()
    producer.produce("plain", b"5")
    producer.flush(PATIENCE_SECONDS)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    asked = admin.delete_records([TopicPartition("plain", 0, 2)])
    next(iter(asked.values())).result(PATIENCE_SECONDS)
    verdicts = {
        offset: cli.json("explain", "record", "plain", "0", str(offset)) for offset in range(1, 8)
    }
    assert {offset: one["verdict"] for offset, one in verdicts.items()} == {
        1: "deleted",
        2: "here",
        3: "aborted",
        4: "transaction marker",
        5: "undecided",
        6: "never written",
        7: "never written",
    }
    assert "DeleteRecords asked for it" in str(verdicts[1]["explanation"])
    held = cli.json("explain", "partition", "plain", "0")
    assert held["verdict"] == "held back: last stable offset"
    assert "transactional id x" in str(held["explanation"])
    producer.commit_transaction(PATIENCE_SECONDS)
    eventually(
        lambda: cli.json("explain", "record", "plain", "0", "5")["verdict"] == "here",
        "the transaction is committed",
    )


def test_a_record_that_compaction_removed(broker: RunningBroker, cli: Cli) -> None:
    produce(broker, "keys", b"old", key=b"k")
    produce(broker, "keys", b"new", key=b"k")
    told = cli.json("explain", "record", "keys", "0", "0")
    assert (told["verdict"], told["later_offset_with_same_key"]) == ("here", 1)
    filling = b"x" * 500_000
    produce(broker, "keys", filling, filling, filling, key=b"other")
    eventually(
        lambda: cli.json("explain", "record", "keys", "0", "0")["verdict"] == "compacted",
        "the cleaner has been there",
    )


def test_a_topic_is_explained_with_its_options(cli: Cli) -> None:
    told = cli.json("explain", "topic", "keys")
    assert "max.compaction.lag.ms=1  (set on the topic" in str(told["explanation"])
    assert "the latest record of each key stays" in str(told["notes"])


def test_a_group_is_explained_with_its_rebalances(broker: RunningBroker, cli: Cli) -> None:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    produce(broker, "grouped", b"read")
    consumer.subscribe(["grouped"])
    assert consumer.poll(PATIENCE_SECONDS) is not None
    consumer.commit(asynchronous=False)
    told = cli.json("explain", "group", "g", "--watch", "0")
    assert told["state"] == "Stable"
    assert "grouped-0" in str(told["members"])
    assert "preparing to rebalance" in str(told["rebalances"])
    consumer.close()


def test_a_share_group_is_explained_with_what_its_members_hold(
    broker: RunningBroker, cli: Cli
) -> None:
    cli("topics", "create", "jobs", "--partitions", "1")
    cli("configs", "alter", "--group", "workers", "--set", "share.auto.offset.reset=earliest")
    with moldau.Queue(broker.bootstrap, group="workers", topic="jobs") as queue:
        produce(broker, "jobs", b"a", b"b", b"c")
        with queue.next(PATIENCE_SECONDS) as job:
            first = job.record.offset
            job.release()
        held = [queue.next(PATIENCE_SECONDS)]
        while held[-1].record.offset != first:  # others may have come with it
            held.append(queue.next(PATIENCE_SECONDS))
        eventually(lambda: deliveries(cli).get("redelivered") == 1, "the delivery is told")
        told = cli.json("explain", "group", "workers", "--watch", "0")
        (row,) = told["deliveries"]
        assert (row["topic"], row["partition"], row["oldest_offset"]) == ("jobs", 0, first)
        assert (row["most_deliveries"], row["start_offset"]) == (2, first)
        assert sum(row["members"].values()) == row["acquired"] > 0
        text = cli("explain", "group", "workers", "--watch", "0")
        assert "1 delivered more than once (at most 2 times)" in text
        assert f"offset {first} is the oldest that nobody has acknowledged" in text
        for job in held:
            job.accept()


def deliveries(cli: Cli) -> dict[str, object]:
    rows = cli.json("explain", "group", "workers", "--watch", "0")["deliveries"]
    return rows[0] if rows else {}


def test_the_doctor_says_what_is_dangerous(broker: RunningBroker, cli: Cli) -> None:
    found = cli.json("doctor", "--watch", "0")
    assert (found["unchecked"], found["brokers"]) == ([], 1), found
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    config = {"unclean.leader.election.enable": "true"}
    admin.create_topics([NewTopic("risky", 1, 1, config=config)])["risky"].result(PATIENCE_SECONDS)
    text = cli("doctor", "--watch", "0")
    assert "WARNING  risky" in text
    assert "unclean.leader.election.enable=true" in text


def test_what_does_not_exist_is_said_so(cli: Cli) -> None:
    for words in (("topic", "nothing"), ("record", "plain", "9", "0"), ("group", "nobody")):
        cli("explain", *words, code=1)
        assert "moldau: " in cli.err


class _StopsTheBroker(SystemClock):
    """Groups are watched for a while: that is when the broker ends."""

    def __init__(self, stop: Callable[[], object]) -> None:
        self._stop = stop

    async def sleep(self, seconds: float) -> None:
        await asyncio.to_thread(self._stop)


def test_a_broker_that_ends_under_the_doctors_eyes_is_not_well() -> None:
    async def look(bootstrap: str, stop: Callable[[], object]) -> ClusterSurvey:
        async with moldau.AsyncAdmin(bootstrap) as admin:
            return await SurveyReader(admin, clock=_StopsTheBroker(stop)).read_survey()

    with ExitStack() as stack:
        running = stack.enter_context(start_broker(SETTINGS))
        running.produce("brief", b"a")
        with moldau.Consumer(
            running.bootstrap, group="readers", topics=["brief"], auto_offset_reset="earliest"
        ) as consumer:
            eventually(lambda: consumer.poll(1), "a record")
        survey = asyncio.run(look(running.bootstrap, stack.close))
    critical = [one.subject for one in find_all(survey) if one.severity is Severity.CRITICAL]
    assert critical == ["broker 1"]
