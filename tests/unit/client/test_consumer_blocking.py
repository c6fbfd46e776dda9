"""The consumer for threads, against a broker in this process."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from moldau.client.admin.values import NewTopic
from moldau.client.blocking import Admin, Consumer, Producer, SimpleConsumer
from moldau.errors import (
    ClosedClientError,
    ConfigurationError,
    KafkaError,
    NotLeaderError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from moldau.model import TopicPartition
from moldau.testing.running_broker import RunningBroker, broker

PATIENCE_SECONDS = 30.0


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker() as made:
        yield made


@pytest.fixture
def bootstrap(running: RunningBroker) -> str:
    return running.bootstrap


_numbers = iter(range(1_000_000))


@pytest.fixture
def topic(bootstrap: str) -> str:
    """Four partitions with a hundred records each, their offsets as values."""
    name = f"t{next(_numbers)}"
    with Admin(bootstrap) as admin, Producer(bootstrap) as producer:
        admin.create_topics([NewTopic(name=name, partitions=4)])
        for partition in range(4):
            values = [b"%d" % number for number in range(100)]
            producer.send_many(name, values, partition=partition).result(PATIENCE_SECONDS)
    return name


def committed(bootstrap: str, group: str) -> dict[int, int]:
    with Admin(bootstrap) as admin:
        found = admin.list_group_offsets(group)
    return {one.partition: at.offset for one, at in found.items() if not isinstance(at, KafkaError)}


def make(bootstrap: str, **options: Any) -> Consumer:
    options.setdefault("auto_offset_reset", "earliest")
    return Consumer(bootstrap, **options)


def test_polling_and_iterating_give_every_record_once(bootstrap: str, topic: str) -> None:
    expected = {(partition, offset) for partition in range(4) for offset in range(100)}
    with make(bootstrap, topics=topic, group=f"{topic}-poll") as consumer:
        polled = []
        while len(polled) < 400:
            polled += consumer.poll(PATIENCE_SECONDS, max_records=37)
    assert {(one.partition, one.offset) for one in polled} == expected
    with make(bootstrap, topics=topic, group=f"{topic}-iterate") as consumer:
        seen = []
        for record in consumer:
            seen.append((record.partition, record.offset))
            if len(seen) == 400:
                break
    assert set(seen) == expected
    assert committed(bootstrap, f"{topic}-iterate") == dict.fromkeys(range(4), 100)


def test_polls_and_iterations_can_be_mixed(bootstrap: str, topic: str) -> None:
    with make(bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        seen = []
        for record in consumer:
            seen.append(record.offset)
            if len(seen) % 2:
                seen += [one.offset for one in consumer.poll(1.0, max_records=2)]
            if len(seen) >= 99:
                break
        assert seen == list(range(len(seen)))
        assert consumer.position(TopicPartition(topic, 0)) == len(seen)


def test_functions_for_rebalances_are_called_where_records_are_waited_for(
    bootstrap: str, topic: str
) -> None:
    threads: list[tuple[str, str]] = []

    def note(sign: str) -> Callable[[object], None]:
        return lambda _: threads.append((sign, threading.current_thread().name))

    consumer = make(
        bootstrap, topics=topic, group=topic, on_assigned=note("+"), on_revoked=note("-")
    )
    worker = threading.Thread(target=lambda: consumer.poll(PATIENCE_SECONDS), name="worker")
    worker.start()
    worker.join()
    consumer.close()
    assert threads == [("+", "worker"), ("-", threading.current_thread().name)]


def test_a_function_for_rebalances_can_use_the_consumer_but_not_read(
    bootstrap: str, topic: str
) -> None:
    problems: list[BaseException] = []

    def on_assigned(partitions: frozenset[TopicPartition]) -> None:
        for partition in partitions:
            consumer.seek(partition, 90)
        consumer.commit(dict.fromkeys(partitions, 90))
        assert set(consumer.committed(partitions)) == partitions
        try:
            consumer.poll(0.0)
        except ConfigurationError as error:
            problems.append(error)

    with make(
        bootstrap, topics=topic, group=topic, commit="manual", on_assigned=on_assigned
    ) as consumer:
        records = consumer.poll(PATIENCE_SECONDS)
        assert {record.offset for record in records[:1]} == {90}
    assert len(problems) == 1
    assert committed(bootstrap, topic) == dict.fromkeys(range(4), 90)


def test_closing_in_another_thread_ends_an_iteration(bootstrap: str, topic: str) -> None:
    consumer = make(bootstrap, topics=topic, group=topic)
    seen: list[int] = []
    has_read = threading.Event()

    def work() -> None:
        for record in consumer:
            seen.append(record.offset)
            if len(seen) == 400:
                has_read.set()

    worker = threading.Thread(target=work)
    worker.start()
    assert has_read.wait(PATIENCE_SECONDS)
    consumer.close()
    worker.join(PATIENCE_SECONDS)
    assert not worker.is_alive()
    assert committed(bootstrap, topic) == dict.fromkeys(range(4), 100)
    with pytest.raises(ClosedClientError):
        consumer.poll()
    assert list(consumer) == []
    consumer.close()


def test_other_threads_can_use_a_consumer_that_waits(bootstrap: str, topic: str) -> None:
    zero = TopicPartition(topic, 0)
    with make(bootstrap, auto_offset_reset="latest") as consumer:
        consumer.assign([zero])
        assert consumer.position(zero) == 100
        found: list[Any] = []
        worker = threading.Thread(target=lambda: found.extend(consumer.poll(PATIENCE_SECONDS)))
        worker.start()
        consumer.seek(zero, 95)  # while the other one waits for the hundredth record
        worker.join(PATIENCE_SECONDS)
        assert [record.offset for record in found] == [95, 96, 97, 98, 99]


def test_pausing_in_another_thread_takes_effect(bootstrap: str, topic: str) -> None:
    zero = TopicPartition(topic, 0)
    with make(bootstrap) as consumer:
        consumer.assign([zero])
        seen = []
        for record in consumer:
            seen.append(record.offset)
            if record.offset == 9:
                thread = threading.Thread(target=consumer.pause)
                thread.start()
                thread.join()
                break
        assert consumer.poll(0.2) == []
        consumer.resume(zero)
        assert consumer.poll(PATIENCE_SECONDS, max_records=1)[0].offset == 10


def test_streams_feed_as_many_threads(bootstrap: str, topic: str) -> None:
    seen: list[tuple[str, int, int]] = []
    lock = threading.Lock()
    everything = threading.Event()

    def work(stream: Any) -> None:
        for record in stream:
            with lock:
                seen.append((threading.current_thread().name, record.partition, record.offset))
                if len(seen) == 400:
                    everything.set()

    consumer = make(bootstrap, topics=topic, group=topic)
    streams = consumer.streams(3)
    with pytest.raises(ConfigurationError, match="streams"):
        consumer.poll(0.0)
    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(work, stream) for stream in streams]
        assert everything.wait(PATIENCE_SECONDS)
        consumer.close()
        for future in futures:
            future.result(PATIENCE_SECONDS)
    assert sorted((p, at) for _, p, at in seen) == [(p, at) for p in range(4) for at in range(100)]
    owners = {(partition, name) for name, partition, _ in seen}
    assert len(owners) == 4  # one thread for each partition
    for partition in range(4):
        offsets = [at for _, p, at in seen if p == partition]
        assert offsets == sorted(offsets)
    assert committed(bootstrap, topic) == dict.fromkeys(range(4), 100)


def test_a_stream_that_is_closed_leaves_its_partitions_to_the_others(
    bootstrap: str, topic: str
) -> None:
    with make(bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, index) for index in range(2)])
        first, second = consumer.streams(2)
        with first:
            seen = [(one.partition, one.offset) for one in first.poll(PATIENCE_SECONDS, 30)]
        assert len(seen) == 30
        while len(seen) < 200:
            seen += [(one.partition, one.offset) for one in second.poll(PATIENCE_SECONDS)]
        assert sorted(seen) == [(p, at) for p in range(2) for at in range(100)]
        assert list(first) == []


def test_commits_in_the_background_tell_how_it_went(bootstrap: str, topic: str) -> None:
    with make(bootstrap, group=topic, commit="manual") as consumer:
        zero = TopicPartition(topic, 0)
        consumer.assign([zero])
        records = consumer.poll(PATIENCE_SECONDS, max_records=10)
        consumer.commit_nowait(records[3]).result(PATIENCE_SECONDS)
        assert committed(bootstrap, topic) == {0: 4}
        consumer.commit_nowait().result(PATIENCE_SECONDS)
        found = consumer.committed(zero)[zero]
        assert found is not None
        assert found.offset == 10


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupted_wait_leaves_a_usable_consumer(bootstrap: str, topic: str) -> None:
    """As Ctrl-C does: an exception arrives in the middle of a poll."""
    with make(bootstrap, auto_offset_reset="latest") as consumer:
        zero = TopicPartition(topic, 0)
        consumer.assign([zero])
        consumer.position(zero)
        timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))

        def poll() -> None:
            timer.start()
            consumer.poll(PATIENCE_SECONDS)

        with pytest.raises(KeyboardInterrupt):
            poll()
        timer.join()
        consumer.seek(zero, 99)
        assert [record.offset for record in consumer.poll(PATIENCE_SECONDS)] == [99]


def test_topics_and_offsets_can_be_asked_for(bootstrap: str, topic: str) -> None:
    with make(bootstrap) as consumer:
        assert len(consumer.partitions_for(topic).partitions) == 4
        zero = TopicPartition(topic, 0)
        assert consumer.beginning_offsets([zero]) == {zero: 0}
        assert consumer.end_offsets([zero]) == {zero: 100}


def test_tables_come_as_records_do(bootstrap: str, topic: str) -> None:
    pytest.importorskip("pyarrow")
    with make(bootstrap, topics=topic, group=topic) as consumer:
        rows = 0
        while rows < 400:
            table = consumer.poll_arrow(PATIENCE_SECONDS, columns=["partition", "offset", "value"])
            assert table.num_rows
            assert [str(at).encode() for at in table["offset"].to_pylist()] == table[
                "value"
            ].to_pylist()
            rows += table.num_rows
        assert consumer.poll_arrow(0.0).num_rows == 0
    assert committed(bootstrap, topic) == dict.fromkeys(range(4), 100)


def test_a_forked_child_is_told(bootstrap: str, topic: str) -> None:
    with make(bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.poll(PATIENCE_SECONDS, max_records=1)
        child = os.fork()
        if not child:
            try:
                consumer.poll(1.0)
            except ClosedClientError:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert consumer.poll(PATIENCE_SECONDS, max_records=1)[0].offset == 1


# --- the low-level consumer ---------------------------------------------------------------------


def test_a_simple_consumer_fetches_by_offset(bootstrap: str, topic: str) -> None:
    with SimpleConsumer(bootstrap) as consumer:
        found = consumer.fetch(topic, 1, 40)
        assert [record.offset for record in found.records] == list(range(40, 100))
        assert found.records[0][:3] == (topic, 1, 40)
        assert (found.next_offset, found.high_watermark, found.log_start_offset) == (100, 100, 0)
        assert consumer.fetch(topic, 1, 40) == found  # it remembers nothing
        behind = SimpleConsumer(bootstrap, fetch_max_wait_ms=1)
        with behind:
            assert behind.fetch(topic, 1, 100).records == []


def test_a_simple_consumer_fetches_several_partitions(bootstrap: str, topic: str) -> None:
    zero, nowhere = TopicPartition(topic, 0), TopicPartition(topic, 9)
    with SimpleConsumer(bootstrap) as consumer:
        found = consumer.fetch_many({zero: 98, nowhere: 0})
        assert isinstance(found[nowhere], UnknownTopicError | NotLeaderError)
        (first, second) = found[zero].records  # type: ignore[union-attr]
        assert (first.offset, second.offset) == (98, 99)


def test_a_simple_consumer_says_what_the_broker_says(bootstrap: str, topic: str) -> None:
    with SimpleConsumer(bootstrap) as consumer:
        with pytest.raises(OffsetOutOfRangeError):
            consumer.fetch(topic, 0, 101)
        with pytest.raises(UnknownTopicError):
            consumer.fetch("nowhere", 0, 0)
    with pytest.raises(ClosedClientError):
        consumer.fetch(topic, 0, 0)


def test_a_simple_consumer_finds_offsets(bootstrap: str, topic: str) -> None:
    with SimpleConsumer(bootstrap) as consumer:
        assert consumer.find_offset(topic, 0, "earliest") == 0
        assert consumer.find_offset(topic, 0, "latest") == 100
        first = consumer.fetch(topic, 0, 0).records[0]
        assert consumer.find_offset(topic, 0, first.timestamp_ms) == 0
        assert consumer.find_offset(topic, 0, first.timestamp_ms + 10**9) is None
        with pytest.raises(ConfigurationError, match="yesterday"):
            consumer.find_offset(topic, 0, "yesterday")
