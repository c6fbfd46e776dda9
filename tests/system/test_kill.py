"""kill -9 at random moments, under load: what was acknowledged is there, once and in order."""

from __future__ import annotations

import dataclasses
import random
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from support import confluent_client
from support.broker_process import BrokerProcess, broker_process
from support.load import Load, Tail, assert_log_is_what_was_sent
from support.requests import full_request
from support.rows import numbered_rows
from support.topics import Topics, fresh_name
from support.waiting import PATIENCE_SECONDS, eventually
from support.wire_client import ClosedByBroker, WireClient

TINY_SEGMENTS = {
    "internal.segment.bytes": "20000",
    "index.interval.bytes": "512",
    "segment.index.bytes": "4096",
}
PARTITIONS = 3
CREATE_TOPICS = 19
DELETE_TOPICS = 20


@pytest.fixture
def chance() -> random.Random:
    """Moments at random; the seed is shown when a test fails."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201 pytest shows it with a failure
    return random.Random(seed)


@pytest.mark.parametrize(
    ("config", "codec"),
    [({}, "none"), (TINY_SEGMENTS, "none"), (TINY_SEGMENTS, "lz4")],
    ids=["one segment", "tiny segments", "tiny segments, compressed"],
)
def test_every_acknowledged_record_survives_kills(
    broker: BrokerProcess, chance: random.Random, config: dict[str, str], codec: str
) -> None:
    broker.start()
    topic = Topics(broker.bootstrap).create(PARTITIONS, config)
    with (
        Load(broker.bootstrap, topic, PARTITIONS, compression_type=codec) as load,
        Tail(broker.bootstrap, topic, PARTITIONS) as tail,
    ):
        for _ in range(5):
            load.wait_for_more(chance.randrange(1, 3_000))
            broker.kill()
            broker.start()
        load.wait_for_more(500)
        load.finish()
        tail.wait_until_seen(load.sent)
    assert_log_is_what_was_sent(broker.bootstrap, topic, load)


def test_a_kill_while_it_starts_up_loses_nothing_either(
    broker: BrokerProcess, chance: random.Random
) -> None:
    broker.start()
    topic = Topics(broker.bootstrap).create(PARTITIONS, TINY_SEGMENTS)
    with Load(broker.bootstrap, topic, PARTITIONS) as load:
        for _ in range(3):
            load.wait_for_more(chance.randrange(1, 1_500))
            broker.kill()
            for _ in range(3):
                broker.launch()
                time.sleep(chance.uniform(0.1, 0.6))  # a moment at random, not a synchronisation
                broker.kill()
            broker.start()
        load.wait_for_more(500)
        load.finish()
    assert_log_is_what_was_sent(broker.bootstrap, topic, load)


def test_batches_of_many_producers_that_are_flushed_before_they_are_acknowledged(
    broker: BrokerProcess,
) -> None:
    broker.start()
    topic = Topics(broker.bootstrap).create(config={"flush.messages": "1"})
    producers = [
        confluent_client.producer(broker.bootstrap, linger_ms=0, batch_num_messages=1)
        for _ in range(8)
    ]
    for number in range(60):
        for name, producer in enumerate(producers):
            producer.produce(topic, b"%d %d" % (name, number))
            producer.poll(0)
    assert [producer.flush(PATIENCE_SECONDS) for producer in producers] == [0] * 8
    broker.kill()
    broker.start()
    got = [one.value for one in confluent_client.consume(broker.bootstrap, topic, 480)]
    assert sorted(got) == sorted(b"%d %d" % (n, m) for n in range(8) for m in range(60))


def test_topics_configs_and_ids_survive_a_kill(broker: BrokerProcess) -> None:
    broker.start()
    topics = Topics(broker.bootstrap)
    kept = topics.create(4, {"retention.ms": "123456"})
    gone = topics.create()
    topics.delete(gone)
    before = topics.describe(kept)

    broker.kill()
    broker.start()

    assert topics.describe(kept) == before
    assert topics.config(kept)["retention.ms"] == "123456"
    assert gone not in topics.names()


def test_a_broker_killed_with_several_log_directories_recovers_all_of_them(folder: Path) -> None:
    directories = [folder / "one", folder / "two"]
    settings = {"log.dirs": ",".join(map(str, directories))}
    with broker_process(folder / "broker", settings=settings) as broker:
        broker.start()
        topic = Topics(broker.bootstrap).create(4, TINY_SEGMENTS)
        with Load(broker.bootstrap, topic, 4) as load:
            load.wait_for_more(500)
            broker.kill()
            broker.start()
            load.wait_for_more(500)
            load.finish()
        assert_log_is_what_was_sent(broker.bootstrap, topic, load)
        for directory in directories:
            assert list(directory.glob(f"{topic}-*")), f"{directory} holds no partition"


def test_topics_that_come_and_go_while_the_broker_is_killed(
    broker: BrokerProcess, chance: random.Random
) -> None:
    """What was answered holds; what was on its way may have happened or not, but whole."""
    broker.start()
    churn = Churn()
    for _ in range(4):
        thread = threading.Thread(target=churn.run, args=(broker.port,))
        thread.start()
        target = churn.answers + chance.randrange(1, 60)
        eventually(lambda: churn.answers >= target, "topics are made and deleted")  # noqa: B023
        broker.kill()
        thread.join()
        broker.start()
        topics = Topics(broker.bootstrap)
        names = topics.names()
        assert churn.made <= names
        assert not churn.deleted & names
        for name in names - {"__consumer_offsets"}:
            assert len(topics.describe(name)[1]) == PARTITIONS
    for name in churn.made:
        assert confluent_client.produce(broker.bootstrap, name, numbered_rows(1)) == [0]


class Churn:
    """Makes and deletes topics until the broker is gone."""

    def __init__(self) -> None:
        self.made: set[str] = set()  # answered, and nobody asked to delete them
        self.deleted: set[str] = set()  # answered
        self.answers = 0

    def run(self, port: int) -> None:
        try:
            with WireClient(port) as client:
                while True:
                    self._step(client)
        except (ClosedByBroker, OSError):
            pass

    def _step(self, client: WireClient) -> None:
        name = fresh_name("churn")
        values = {"name": name, "num_partitions": PARTITIONS, "replication_factor": 1}
        request = full_request(CREATE_TOPICS, 5, values)
        request = dataclasses.replace(
            request,
            topics=(dataclasses.replace(request.topics[0], assignments=(), configs=()),),
            timeout=timedelta(seconds=30),
        )
        (answer,) = client.ask(request).topics
        assert answer.error_code is ErrorCode.none, answer
        self.made.add(name)
        self.answers += 1
        if len(self.made) > 10:
            victim = self.made.pop()
            removal = full_request(DELETE_TOPICS, 5, {"topic_names": victim})
            removal = dataclasses.replace(removal, timeout=timedelta(seconds=30))
            (deleted,) = client.ask(removal).responses
            assert deleted.error_code is ErrorCode.none, deleted
            self.deleted.add(victim)
            self.answers += 1
