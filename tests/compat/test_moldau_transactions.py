"""Transactions with our producer: all or nothing, for our readers and for others."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections import defaultdict
from collections.abc import Iterator

import confluent_kafka
import pytest

import moldau
import moldau.errors
from moldau.client.producer import transaction_coordinator
from moldau.client.transform import Transformation
from support.topics import Topics, fresh_name
from support.waiting import PATIENCE_SECONDS, eventually


class StumbleError(Exception):
    """A program fails in the middle of its work."""


@pytest.fixture(params=[2, 1], autouse=True)
def transaction_version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """As the cluster has finalized it, and as older ones have it."""
    version: int = request.param
    if version < 2:
        monkeypatch.setattr(transaction_coordinator, "_speaks_version_2", lambda link: False)
    return version


def read_all(
    bootstrap: str, topic: str, count: int, isolation_level: str
) -> list[moldau.ConsumerRecord]:
    """So many records, and whatever comes in the second after them."""
    found: list[moldau.ConsumerRecord] = []
    with moldau.Consumer(
        bootstrap, topics=topic, auto_offset_reset="earliest", isolation_level=isolation_level
    ) as consumer:
        while len(found) < count:
            some = consumer.poll(PATIENCE_SECONDS)
            assert some, f"{len(found)} of {count} records came"
            found += some
        return found + consumer.poll(1.0)


def committed_values(bootstrap: str, topic: str) -> list[bytes]:
    """All values that a reader of committed records finds now, in order."""
    found = moldau.read_table(topic, bootstrap=bootstrap, read_committed=True)
    values: list[bytes] = found["value"].to_pylist()
    return values


def values_of(records: list[moldau.ConsumerRecord]) -> list[bytes | None]:
    return sorted(record.value for record in records)


def test_what_is_committed_is_read_and_what_is_aborted_is_not(
    bootstrap: str, topics: Topics
) -> None:
    topic = topics.create(partitions=2)
    with moldau.Producer(bootstrap, transactional_id=fresh_name()) as producer:
        with producer.transaction():
            sent = [producer.send(topic, b"a%d" % number, partition=number) for number in (0, 1)]
        assert [future.result(0).partition for future in sent] == [0, 1]
        with contextlib.suppress(StumbleError), producer.transaction():
            producer.send(topic, b"aborted", partition=0).result(PATIENCE_SECONDS)
            raise StumbleError
        with producer.transaction():
            producer.send(topic, b"b", partition=0)
    assert values_of(read_all(bootstrap, topic, 3, "read_committed")) == [b"a0", b"a1", b"b"]
    uncommitted = values_of(read_all(bootstrap, topic, 4, "read_uncommitted"))
    assert uncommitted == [b"a0", b"a1", b"aborted", b"b"]


def test_others_read_our_transactions(bootstrap: str, topic: str) -> None:
    with moldau.Producer(bootstrap, transactional_id=fresh_name()) as producer:
        for number in range(6):
            with contextlib.suppress(StumbleError), producer.transaction():
                producer.send(topic, b"%d" % number).result(PATIENCE_SECONDS)
                if number % 2:
                    raise StumbleError
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": fresh_name(),
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    try:
        found = [message.value() for message in consumer.consume(3, PATIENCE_SECONDS)]
        assert found == [b"0", b"2", b"4"]
        assert consumer.poll(1.0) is None
    finally:
        consumer.close()


def test_a_second_producer_of_the_same_name_fences_the_first(bootstrap: str, topic: str) -> None:
    name = fresh_name()
    with (
        moldau.Producer(bootstrap, transactional_id=name) as first,
        moldau.Producer(bootstrap, transactional_id=name) as second,
    ):
        first.begin_transaction()
        first.send(topic, b"left open").result(PATIENCE_SECONDS)
        with second.transaction():
            second.send(topic, b"second")
        with pytest.raises(moldau.errors.MoldauError):
            first.commit_transaction()
        with (
            pytest.raises(moldau.errors.ProducerFencedError, match="close it"),
            first.transaction(),
        ):
            first.send(topic, b"too late")
    assert values_of(read_all(bootstrap, topic, 1, "read_committed")) == [b"second"]


def committed(admin: moldau.Admin, group: str) -> dict[moldau.TopicPartition, int]:
    found = admin.list_group_offsets(group)
    return {
        partition: one.offset
        for partition, one in found.items()
        if isinstance(one, moldau.GroupOffset)
    }


def test_offsets_count_with_the_transaction(bootstrap: str, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    group = fresh_name()
    partition, other = (moldau.TopicPartition(topic, number) for number in (0, 1))
    with (
        moldau.Producer(bootstrap, transactional_id=fresh_name()) as producer,
        moldau.Admin(bootstrap) as admin,
    ):
        with producer.transaction():
            producer.send(topic, b"with it")
            producer.send_offsets({partition: 7}, group)
        eventually(lambda: committed(admin, group) == {partition: 7}, "offsets are there")
        with contextlib.suppress(StumbleError), producer.transaction():
            producer.send_offsets({partition: 8}, group)
            raise StumbleError
        with producer.transaction():
            producer.send_offsets({other: 1}, group)
        # Whatever the transactions before it have led to is there by now.
        eventually(lambda: committed(admin, group) == {partition: 7, other: 1}, "offsets are there")


def test_tasks_have_transactions_too(bootstrap: str, topic: str) -> None:
    async def story() -> None:
        async with moldau.AsyncProducer(bootstrap, transactional_id=fresh_name()) as producer:
            async with producer.transaction():
                await producer.send(topic, b"a")
            with contextlib.suppress(StumbleError):
                async with producer.transaction():
                    await producer.send(topic, b"b")
                    raise StumbleError
            with pytest.raises(moldau.errors.TransactionStateError, match="within a transaction"):
                await producer.send(topic, b"outside")

    asyncio.run(story())
    assert values_of(read_all(bootstrap, topic, 1, "read_committed")) == [b"a"]


def test_transform_writes_the_results_of_each_record_once_and_in_order(
    bootstrap: str, topics: Topics
) -> None:
    source, target = topics.create(partitions=3), topics.create(partitions=3)
    count, keys = 300, 7
    with moldau.Producer(bootstrap) as producer:
        producer.send_many(
            source,
            [b"%d" % number for number in range(count)],
            [b"%d" % (number % keys) for number in range(count)],
        )
    stop, chance, group = threading.Event(), random.Random(3), fresh_name()

    def double(record: moldau.ConsumerRecord) -> Iterator[moldau.OutgoingRecord]:
        if chance.random() < 0.02:
            raise StumbleError
        value = b"%d" % (2 * int(record.value or b""))
        yield moldau.OutgoingRecord(target, value, key=record.key)

    def work(name: str) -> None:
        while not stop.is_set():
            with contextlib.suppress(StumbleError):
                moldau.transform(
                    bootstrap,
                    source,
                    double,
                    group=group,
                    transactional_id=name,
                    stop=stop,
                    consumer_options={"max_poll_records": 20},
                )

    workers = [threading.Thread(target=work, args=(f"{group}-{number}",)) for number in range(2)]
    for worker in workers:
        worker.start()
    try:
        found = read_all(bootstrap, target, count, "read_committed")
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    assert sorted(int(one.value or b"") for one in found) == [2 * one for one in range(count)]
    by_key: defaultdict[bytes | None, list[int]] = defaultdict(list)
    for record in found:
        by_key[record.key].append(int(record.value or b""))
    assert all(values == sorted(values) for values in by_key.values())


def test_a_worker_that_was_too_slow_adds_nothing_to_what_another_has_done(
    bootstrap: str, topics: Topics
) -> None:
    """It works on records that the group has given to another one meanwhile."""
    source, target = topics.create(partitions=1), topics.create(partitions=1)
    count, group = 20, fresh_name()
    with moldau.Producer(bootstrap) as producer:
        producer.send_many(source, [b"%d" % number for number in range(count)])
    has_begun, goes_on, stop = threading.Event(), threading.Event(), threading.Event()

    def copy(record: moldau.ConsumerRecord) -> Iterator[moldau.OutgoingRecord]:
        yield moldau.OutgoingRecord(target, record.value)

    def copy_late(record: moldau.ConsumerRecord) -> Iterator[moldau.OutgoingRecord]:
        has_begun.set()
        goes_on.wait(PATIENCE_SECONDS)
        yield from copy(record)

    def work(name: str, function: Transformation) -> None:
        moldau.transform(
            bootstrap,
            source,
            function,
            group=group,
            transactional_id=f"{group}-{name}",
            stop=stop,
            consumer_options={"max_poll_interval_ms": 2_000, "heartbeat_interval_ms": 200},
        )

    workers = [threading.Thread(target=work, args=("slow", copy_late))]
    workers[0].start()
    try:
        assert has_begun.wait(PATIENCE_SECONDS)
        workers.append(threading.Thread(target=work, args=("other", copy)))
        workers[1].start()
        read_all(bootstrap, target, count, "read_committed")  # the other one has done all
        goes_on.set()
        with moldau.Producer(bootstrap) as producer:
            producer.send(source, b"last")
        eventually(
            lambda: b"last" in committed_values(bootstrap, target), "the last one is through"
        )
    finally:
        goes_on.set()
        stop.set()
        for worker in workers:
            worker.join()
    assert committed_values(bootstrap, target) == [
        *(b"%d" % number for number in range(count)),
        b"last",
    ]
