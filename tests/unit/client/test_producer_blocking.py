"""The blocking producer: threads, futures, forks, and the end of the program."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

import moldau
import moldau.testing
from moldau.client.admin.values import OffsetSpec
from moldau.errors import (
    BatchTooLargeError,
    BufferFullError,
    ClosedClientError,
    ConfigurationError,
    UnknownTopicError,
)
from moldau.model import TopicPartition
from moldau.testing import RunningBroker

PATIENCE_SECONDS = 60.0
_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with moldau.testing.broker() as running:
        yield running


@pytest.fixture
def topic(broker: RunningBroker) -> str:
    """A topic of three partitions."""
    name = f"topic-{next(_numbers)}"
    with moldau.Admin(broker.bootstrap) as admin:
        made = admin.create_topics([moldau.NewTopic(name=name, partitions=3)])
    assert not isinstance(made[name], Exception)
    return name


def count_records(broker: RunningBroker, topic: str, partitions: int = 3) -> int:
    wanted = {TopicPartition(topic, number): OffsetSpec.LATEST for number in range(partitions)}
    with moldau.Admin(broker.bootstrap) as admin:
        found = admin.list_offsets(wanted)
    return sum(one.offset for one in found.values())  # type: ignore[union-attr]


def test_a_record_is_sent_and_its_future_waits(broker: RunningBroker, topic: str) -> None:
    with moldau.Producer(broker.bootstrap) as producer:
        future = producer.send(topic, b"v", partition=1, timestamp_ms=5)
        metadata = future.result(PATIENCE_SECONDS)
    assert metadata == (topic, 1, 0, 5)
    assert future.done()
    assert future.exception() is None
    assert "finished" in repr(future)


def test_what_somebody_waits_for_does_not_linger(broker: RunningBroker, topic: str) -> None:
    with moldau.Producer(broker.bootstrap, linger_ms=50_000) as producer:
        lingering = producer.send(topic, b"v", partition=0)
        producer.send(topic, b"v", partition=1).result(PATIENCE_SECONDS)
        producer.send_many(topic, [b"v"] * 3, partition=2).result(PATIENCE_SECONDS)
        assert not lingering.done()
        assert lingering.running()


def test_with_sends_everything_before_it_ends(broker: RunningBroker, topic: str) -> None:
    with moldau.Producer(broker.bootstrap, linger_ms=50_000) as producer:
        for number in range(1_000):
            producer.send(topic, b"%d" % number)
    assert count_records(broker, topic) == 1_000


def test_many_threads_share_a_producer(broker: RunningBroker, topic: str) -> None:
    def work(producer: moldau.Producer, name: int) -> list[int]:
        futures = [
            producer.send(topic, b"%d-%d" % (name, number), partition=0) for number in range(500)
        ]
        producer.send_many(topic, [b"many"] * 100, partition=1)
        return [future.result(PATIENCE_SECONDS).offset for future in futures]

    options = {"batch_size": 4_000, "buffer_memory": 20_000, "linger_ms": 1}
    with (
        moldau.Producer(broker.bootstrap, **options) as producer,
        concurrent.futures.ThreadPoolExecutor(8) as pool,
    ):
        offsets = list(pool.map(lambda name: work(producer, name), range(8)))
    assert sorted(itertools.chain(*offsets)) == list(range(4_000))
    assert all(mine == sorted(mine) for mine in offsets)
    assert count_records(broker, topic) == 4_000 + 800


def test_futures_work_with_the_standard_library(broker: RunningBroker, topic: str) -> None:
    with moldau.Producer(broker.bootstrap, batch_size=200) as producer:
        futures = [producer.send(topic, b"%d" % number) for number in range(50)]
        futures[0].result(PATIENCE_SECONDS)  # some are done before the waiting begins
        done, left = concurrent.futures.wait(futures, PATIENCE_SECONDS)
        assert (len(done), len(left)) == (50, 0)

        futures = [producer.send(topic, b"%d" % number) for number in range(50)]
        completed = list(concurrent.futures.as_completed(futures, PATIENCE_SECONDS))
        assert set(completed) == set(futures)

        async def wait() -> moldau.RecordMetadata:
            return await asyncio.wrap_future(producer.send(topic, b"v", partition=0))

        assert asyncio.run(wait()).partition == 0


def test_callbacks_are_called_with_the_future(broker: RunningBroker, topic: str) -> None:
    called = threading.Event()
    seen: list[object] = []

    def note(future: object) -> None:
        seen.append(future)
        called.set()

    with moldau.Producer(broker.bootstrap) as producer:
        future = producer.send(topic, b"v")
        future.add_done_callback(note)
        assert called.wait(PATIENCE_SECONDS)
        future.add_done_callback(note)  # it is done: at once
    assert seen == [future, future]


def test_a_callback_that_fails_is_logged_and_stops_nothing(
    broker: RunningBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with moldau.Producer(broker.bootstrap) as producer:
        producer.send(topic, b"v").add_done_callback(lambda future: 1 // 0)
        producer.flush()
        producer.send(topic, b"w").result(PATIENCE_SECONDS)
    assert "ZeroDivisionError" in caplog.text


def test_a_callback_may_send_but_not_wait_for_itself(broker: RunningBroker, topic: str) -> None:
    outcomes: list[object] = []
    finished = threading.Event()

    def go_on(future: object) -> None:
        following = producer.send(topic, b"from a callback")
        for attempt in (following.result, producer.flush, producer.close):
            try:
                attempt()
            except RuntimeError as error:
                outcomes.append(str(error))
        outcomes.append(following)
        finished.set()

    with moldau.Producer(broker.bootstrap, linger_ms=50) as producer:
        producer.send(topic, b"v").add_done_callback(go_on)
        assert finished.wait(PATIENCE_SECONDS)
        *refusals, following = outcomes
        assert ["cannot wait for the producer itself" in str(one) for one in refusals] == [True] * 3
        assert following.result(PATIENCE_SECONDS)  # type: ignore[attr-defined]


def test_a_future_cannot_be_cancelled(broker: RunningBroker, topic: str) -> None:
    with moldau.Producer(broker.bootstrap) as producer:
        for future in (producer.send(topic, b"v"), producer.send_many(topic, [b"v"])):
            assert not future.cancel()
            assert not future.cancelled()


def test_waiting_for_a_result_can_be_bounded(topic: str) -> None:
    producer = moldau.Producer("127.0.0.1:1", max_block_ms=100)
    try:
        with pytest.raises(moldau.errors.ClientError, match="no broker answers"):
            producer.send(topic, b"v")
    finally:
        producer.close()


def test_an_error_is_raised_for_each_record_with_a_traceback_of_its_own(
    broker: RunningBroker,
) -> None:
    name = f"topic-{next(_numbers)}"
    with moldau.Admin(broker.bootstrap) as admin:
        admin.create_topics(
            [moldau.NewTopic(name=name, partitions=1, configs={"max.message.bytes": "200"})]
        )
    with moldau.Producer(broker.bootstrap) as producer:
        future = producer.send(name, bytes(500))
        for _ in range(3):
            with pytest.raises(BatchTooLargeError) as caught:
                future.result(PATIENCE_SECONDS)
            assert len(caught.traceback) < 5
        assert isinstance(future.exception(), BatchTooLargeError)


def test_an_unknown_partition_is_named(broker: RunningBroker, topic: str) -> None:
    with moldau.Producer(broker.bootstrap) as producer:
        assert producer.partition_count(topic) == 3
        with pytest.raises(UnknownTopicError, match="no partition 3; it has 3"):
            producer.send(topic, b"v", partition=3)


def test_memory_blocks_or_raises_by_choice(broker: RunningBroker, topic: str) -> None:
    values = [bytes(900)] * 50
    with moldau.Producer(broker.bootstrap, buffer_memory=3_000, linger_ms=10_000) as producer:
        for value in values:
            producer.send(topic, value)
        producer.send_many(topic, values).result(PATIENCE_SECONDS)
    options = {"buffer_memory": 3_000, "linger_ms": 10_000, "block_on_buffer_full": False}
    with moldau.Producer(broker.bootstrap, **options) as producer:
        with pytest.raises(BufferFullError):
            producer.send_many(topic, values)
        producer.flush()
    assert count_records(broker, topic) == 103


def test_a_closed_producer_takes_nothing(broker: RunningBroker, topic: str) -> None:
    producer = moldau.Producer(broker.bootstrap)
    producer.send(topic, b"v")
    producer.close()
    producer.close()
    with pytest.raises(ClosedClientError):
        producer.send(topic, b"v")
    with pytest.raises(ClosedClientError):
        producer.send("another", b"v")
    with pytest.raises(ClosedClientError):
        producer.flush()


def test_no_thread_is_left_behind(broker: RunningBroker, topic: str) -> None:
    before = threading.active_count()
    with moldau.Producer(broker.bootstrap, compression_type="zstd") as producer:
        producer.send(topic, b"v").result(PATIENCE_SECONDS)
    assert threading.active_count() == before


def test_everything_that_may_happen_to_a_record_before_it_is_sent(
    broker: RunningBroker, topic: str
) -> None:
    diary = Diary()
    with moldau.Producer(
        broker.bootstrap,
        key_serializer=lambda key: None if key is None else str(key).encode(),
        value_serializer=lambda value: str(value).encode(),
        partitioner=lambda topic, key, value, count: len(value or b"") % count,
        interceptors=[diary],
    ) as producer:
        assert producer.send(topic, 7, 1).result(PATIENCE_SECONDS).partition == 1
        assert producer.send(topic, 77, partition=0).result(PATIENCE_SECONDS).partition == 0
        ranges = producer.send_many(topic, [777, 7777], [3, 4]).result(PATIENCE_SECONDS)
    assert sorted(one.partition for one in ranges) == [0, 1]
    assert diary.seen == [(7, 1), (77, None), (777, 3), (7777, 4)]
    assert sorted(diary.places) == [(0, 0), (0, 1), (1, 0), (1, 1)]


class Diary:
    """An interceptor that only looks."""

    def __init__(self) -> None:
        self.seen: list[tuple[object, object]] = []
        self.places: list[tuple[int, int]] = []

    def on_send(self, record: moldau.OutgoingRecord) -> moldau.OutgoingRecord:
        self.seen.append((record.value, record.key))
        return record

    def on_acknowledgement(
        self, metadata: moldau.RecordMetadata | None, error: BaseException | None
    ) -> None:
        assert error is None
        assert metadata is not None
        self.places.append((metadata.partition, metadata.offset))


def test_two_threads_may_close_at_once(broker: RunningBroker, topic: str) -> None:
    producer = moldau.Producer(broker.bootstrap, linger_ms=50_000)
    producer.send(topic, b"v")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: producer.close(), range(4)))
    assert count_records(broker, topic) == 1


def test_a_wrong_option_leaves_nothing_behind() -> None:
    before = threading.active_count()
    with pytest.raises(ConfigurationError):
        moldau.Producer("127.0.0.1:9092", lingerms=5)
    with pytest.raises(ConfigurationError):
        moldau.Producer("", linger_ms=5)
    assert threading.active_count() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # forking with threads: what is tested
def test_a_forked_producer_says_so_and_its_parent_goes_on(
    broker: RunningBroker, topic: str
) -> None:
    with moldau.Producer(broker.bootstrap) as producer:
        pending = producer.send(topic, b"v")
        producer.flush()
        child = os.fork()
        if not child:
            os._exit(_try_as_a_child(producer, topic))
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert pending.result(PATIENCE_SECONDS)
        producer.send(topic, b"w").result(PATIENCE_SECONDS)


def _try_as_a_child(producer: moldau.Producer, topic: str) -> int:
    """0 when every call refuses, or does nothing, as it should."""
    failures = 0
    attempts = (
        lambda: producer.send(topic, b"v"),
        lambda: producer.send("unknown", b"v"),
        lambda: producer.send_many(topic, [b"v"]),
        producer.flush,
    )
    for attempt in attempts:
        try:
            attempt()
        except ClosedClientError as error:
            failures += "forked" not in str(error)
        else:
            failures += 1
    producer.close()
    return failures


def test_a_program_that_forgets_to_close_loses_nothing(broker: RunningBroker, topic: str) -> None:
    program = (
        "import moldau, sys\n"
        "producer = moldau.Producer(sys.argv[1], linger_ms=50_000)\n"
        "for number in range(100): producer.send(sys.argv[2], b'%d' % number)\n"
    )
    subprocess.run(
        [sys.executable, "-c", program, broker.bootstrap, topic],
        check=True,
        timeout=PATIENCE_SECONDS,
    )
    assert count_records(broker, topic) == 100


def test_importing_moldau_loads_no_client() -> None:
    program = "import moldau, sys; sys.exit('asyncio' in sys.modules or 'kio' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE_SECONDS)


def test_every_exported_name_is_there() -> None:
    for name in moldau.__all__:
        assert getattr(moldau, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        moldau.nonsense  # noqa: B018
