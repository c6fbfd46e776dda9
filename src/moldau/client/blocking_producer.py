"""The blocking face of the producer, safe from any thread.

Users' threads put records into batches themselves; a loop in a thread of its own sends them. A
thread waits only where it has to: for a topic that is new, for memory, or for a result.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Self, TypeVar, cast

from moldau.client.batch_promises import BatchPromise, SharedPromise
from moldau.client.loop_thread import LoopThread
from moldau.client.open_producers import watch
from moldau.client.producer_core import CustomPartitioner, ProducerCore
from moldau.client.producer_values import Interceptor, OutgoingRecord, RecordMetadata
from moldau.client.record_futures import ManyFuture, Placed, RecordFuture
from moldau.client.record_preparer import (
    GivenHeaders,
    Serializer,
    as_payload,
    make_headers,
    require_timestamp,
)
from moldau.client.rules.topic_target import TopicTarget
from moldau.config.client_options import ProducerOptions
from moldau.errors import ClosedClientError
from moldau.model import TopicPartition
from moldau.records.record import RecordRow

_LOOK_AGAIN_SECONDS = 0.1

T = TypeVar("T")
Target = TopicTarget[BatchPromise]
Add = Callable[[Target, int | None, RecordRow], tuple[SharedPromise, int] | None]


class Producer:
    """Sends records to a cluster.

        with moldau.Producer("127.0.0.1:9092") as producer:
            producer.send("clicks", b"value", key=b"key")

    Options are Kafka's, with underscores for dots: `linger_ms=20`, `acks="all"`,
    `compression_type="zstd"`. A serializer turns keys or values into bytes. The partitioner is
    "sticky", "round_robin", or a function of topic, key, value and the number of partitions.
    `with` sends everything before it ends; so does `close`.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        key_serializer: Serializer | None = None,
        value_serializer: Serializer | None = None,
        partitioner: str | CustomPartitioner = "sticky",
        interceptors: Sequence[Interceptor] = (),
        **options: object,
    ) -> None:
        self._options = ProducerOptions.read(options)
        self._core = ProducerCore(
            bootstrap,
            self._options,
            make_promise=self._make_promise,
            schedule=self._schedule,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            partitioner=partitioner,
            interceptors=interceptors,
        )
        self._intake = self._core.intake
        self._intake.announce_room = self._announce_room
        # The promises are the shared ones that are made below.
        self._add = cast("Add", self._intake.add)
        self._room = threading.Condition(self._intake.lock)
        self._targets = self._core.topics.targets
        self._now_ms = self._core.clock.now_ms
        self._is_plain = self._core.preparer.is_plain and self._core.custom_partitioner is None
        self._is_forked = False
        self._closing = threading.Lock()  # of two threads that close, the second one waits
        self._loop = LoopThread("moldau-producer")
        self._loop.call_soon(self._core.begin)
        watch(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # One record

    def send(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: GivenHeaders = (),
    ) -> RecordFuture:
        """Have a record sent; its future tells when it is in the log, and where.

        Waits only when the topic is new, or while memory is used up (`max.block.ms`). Raises what
        is wrong with the record itself; what happens later is the future's.
        """
        if not self._is_plain:
            given = make_headers(headers) if headers else ()
            return self._send_prepared(
                OutgoingRecord(topic, value, key, partition, timestamp_ms, given)
            )
        row = (
            self._now_ms() if timestamp_ms is None else require_timestamp(timestamp_ms),
            key if key is None or type(key) is bytes else as_payload(key, "key"),
            value if type(value) is bytes else as_payload(value, "value"),
            make_headers(headers) if headers else (),
        )
        target = self._targets.get(topic)
        if target is None or partition is not None:
            target = self._require_target(topic, partition)
        added = self._add(target, partition, row)
        if added is None:
            added = self._add_later(target, partition, row)
        return RecordFuture(added, row[0])

    def _send_prepared(self, record: OutgoingRecord) -> RecordFuture:
        """`send` with serializers, interceptors or a partitioner of the user's own."""
        preparer = self._core.preparer
        topic, value, key, partition, timestamp_ms, headers = preparer.intercept(record)
        row = preparer.make_row(value, key, timestamp_ms, headers)
        target = self._require_target(topic, partition)
        if partition is None and self._core.custom_partitioner is not None:
            partition = self._core.choose_partition(target, row)
        added = self._add(target, partition, row) or self._add_later(target, partition, row)
        future = RecordFuture(added, row[-4])
        if preparer.interceptors:
            future.add_done_callback(self._acknowledge)
        return future

    def _add_later(
        self, target: Target, partition: int | None, row: RecordRow
    ) -> tuple[SharedPromise, int]:
        return self._wait_for_room(lambda: self._add(target, partition, row))

    def _acknowledge(self, future: Future[RecordMetadata]) -> None:
        error = future.exception(0)
        metadata = None if error is not None else future.result(0)
        self._core.preparer.acknowledge(metadata, error)

    # Many records

    def send_many(
        self,
        topic: str,
        values: Iterable[object],
        keys: Iterable[object] | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: GivenHeaders = (),
    ) -> ManyFuture:
        """Have many records sent, at a fraction of the cost of as many calls of `send`.

        `values` are bytes or None, with `keys` beside them if there are any; or whole rows, such
        as `moldau.NewRecord`, each with timestamp, key, value and headers of its own. The future
        is done when all of them are in the log, and tells in which ranges of offsets. When one of
        them cannot be sent, its error is raised here, and those before it are on their way.
        """
        preparer = self._core.preparer
        if preparer.interceptors or self._core.custom_partitioner is not None:
            rows = preparer.pair(values, keys, timestamp_ms, headers)
            return self._send_one_by_one(topic, partition, rows)
        target = self._require_target(topic, partition)
        placed: list[Placed] = []
        for chunk in preparer.make_rows(values, keys, timestamp_ms, headers):
            for place, part in target.split(partition, chunk):
                self._place(target, place, part, placed)
        return ManyFuture(placed)

    def _place(
        self, target: Target, partition: int | None, rows: list[RecordRow], placed: list[Placed]
    ) -> None:
        """Put rows into batches, waiting for memory as often as it takes."""
        start = 0
        while start < len(rows):
            added = self._intake.add_some(target, partition, rows, start)
            if added is None:
                added = self._wait_for_room(
                    lambda: self._intake.add_some(target, partition, rows, start)  # noqa: B023 it is called before the loop goes on
                )
            placed.append(Placed(*added))
            start += added.record_count

    def _send_one_by_one(
        self, topic: str, partition: int | None, records: Iterable[OutgoingRecord]
    ) -> ManyFuture:
        futures = [
            self._send_prepared(record._replace(topic=topic, partition=partition))
            for record in records
        ]
        return ManyFuture([future.place for future in futures])

    # Waiting

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has; it is made if that is allowed and it is missing."""
        return len(self._require_target(topic, None).queues)

    def flush(self, timeout_seconds: float | None = None) -> None:
        """Wait until everything sent so far is in the log or has failed.

        Raises TimeoutError; without a time it waits no longer than `delivery.timeout.ms`.
        """
        self._require_running()
        self._loop.run(self._core.flush(timeout_seconds))

    def close(self, timeout_seconds: float | None = None) -> None:
        """Send everything, then end; what is not confirmed in time fails. A second call does
        nothing. Without a time it waits no longer than `delivery.timeout.ms`."""
        if self._is_forked:
            return
        self._require_other_thread()
        with self._closing:
            if self._loop.is_open:
                self._loop.run(self._core.close(timeout_seconds))
                self._loop.close()

    def _require_target(self, topic: str, partition: int | None) -> Target:
        """The topic, asked for if it is new, or if it may have got that partition since."""
        target = self._targets.get(topic)
        if target is None or (partition is not None and partition >= len(target.queues)):
            if self._intake.refusal is not None:
                raise self._intake.refusal.with_traceback(None)
            self._require_running()
            target = self._loop.run(self._core.topics.learn(topic))
        if partition is not None:
            target.require_queue(partition)
        return target

    def _wait_for_room(self, add: Callable[[], T | None]) -> T:
        """Add once there is memory; raises BufferFullError after max.block.ms, or at once."""
        if not self._options.block_on_buffer_full or self._loop.is_current:
            raise self._core.no_room()
        clock = self._core.clock
        deadline = clock.monotonic() + self._options.max_block_ms / 1000
        with self._room:
            self._intake.begin_waiting()
        try:
            while True:
                added = add()
                if added is not None:
                    return added
                with self._room:
                    left = deadline - clock.monotonic()
                    if left <= 0:
                        raise self._core.no_room()
                    # Room may have been announced between adding and here: look again soon.
                    self._room.wait(min(left, _LOOK_AGAIN_SECONDS))
        finally:
            with self._room:
                self._intake.end_waiting()

    def _announce_room(self) -> None:
        with self._room:
            self._room.notify_all()

    # Between threads

    def _make_promise(self, partition: TopicPartition) -> SharedPromise:
        return SharedPromise(partition, self._hurry)

    def _hurry(self, promise: BatchPromise) -> None:
        if self._is_forked:
            raise _forked()
        self._require_other_thread()
        self._core.hurry(promise)

    def _schedule(self, work: Callable[[], None]) -> None:
        self._loop.call_soon(work)

    def on_fork(self) -> None:
        """Called in a child process: the thread that sends is the parent's alone."""
        self._is_forked = True
        self._intake.on_fork(_forked())

    def _require_running(self) -> None:
        if self._is_forked:
            raise _forked()
        if not self._loop.is_open:
            raise ClosedClientError("the producer is closed")
        self._require_other_thread()

    def _require_other_thread(self) -> None:
        if self._loop.is_current:
            raise RuntimeError("a callback of a producer cannot wait for the producer itself")


def _forked() -> ClosedClientError:
    return ClosedClientError(
        "this producer was made before the process was forked; make a new one in the child"
    )
