"""`moldau explain` and `moldau doctor` against a real broker, after things really happened."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from moldau.testing import broker as start_broker
from moldau.testing.running_broker import RunningBroker
from support.broker_process import free_port
from support.command_line import Cli
from support.waiting import PATIENCE_SECONDS, eventually

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "100",
    "log.segment.bytes": "1048576",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with start_broker({**SETTINGS, "metrics.listener": f"127.0.0.1:{free_port()}"}) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        wanted = [
            NewTopic("plain", 1, 1),
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
    consumer.subscribe(["plain"])
    assert consumer.poll(PATIENCE_SECONDS) is not None
    consumer.commit(asynchronous=False)
    told = cli.json("explain", "group", "g", "--watch", "0")
    assert told["state"] == "Stable"
    assert "plain-0" in str(told["members"])
    assert "preparing to rebalance" in str(told["rebalances"])
    consumer.close()


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
