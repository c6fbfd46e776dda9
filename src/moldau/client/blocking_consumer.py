"""The consumer for threads: `moldau.Consumer`. `consumer.AsyncConsumer` is the same for asyncio.

Answers for the face; records come through `blocking_streams`, the work is `ConsumerCore`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from moldau.client.blocking_streams import Engine, Stream
from moldau.client.consumer import POLL_BYTES, Some
from moldau.client.consumer_setup import (
    CLOSE_SECONDS,
    ConsumerArguments,
    GivenOffsets,
    make_core,
    partitions_or_all,
    read_offsets,
    read_time_ms,
)
from moldau.client.group_values import GroupOffset
from moldau.client.rules.assignors import Assignor
from moldau.client.rules.cluster_metadata import TopicMetadata
from moldau.client.rules.consumer_record import ConsumerRecord
from moldau.client.rules.delivery import Deserializer, Position, RawBatch
from moldau.client.rules.subscription import Pattern, subscribe_to
from moldau.client.user_calls import Listener
from moldau.errors import ConfigurationError
from moldau.model import TopicPartition
from moldau.model.protocol_numbers import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

if TYPE_CHECKING:
    import pyarrow as pa

    from moldau.arrow.schema import TimestampUnit

T = TypeVar("T")


class Consumer:
    """Reads topics, alone or in a group. Safe from any thread; `with` closes it.

        with Consumer("127.0.0.1:9092", group="g", topics=["clicks"]) as consumer:
            for record in consumer: ...

    `group` shares the partitions of the topics among all consumers of that name, and remembers
    how far they have read. Without it, a subscription means all partitions, and nothing is
    committed.

    `topics` are names; `pattern` is a regular expression for whole names, `deny` one for names to
    leave out. Both find topics that are made later.

    `commit` says when offsets are committed: `"after"` the program has dealt with the records
    (it asks for the next ones, or leaves the `with` block without an exception), so that each is
    seen at least once; `"before"` it gets them, so that each is seen at most once; `"manual"`,
    by `commit()` alone.

    `on_assigned`, `on_revoked` and `on_lost` are functions of a frozenset of partitions, called
    in the thread that waits for records. When `on_revoked` is called, everything was dealt with,
    and can still be committed; when `on_lost` is called (or `on_revoked`, without it), others
    have the partitions already.

    `key_deserializer` and `value_deserializer` are functions of bytes. Other keyword arguments
    are Kafka's options with underscores for dots: `auto_offset_reset="earliest"`.

    Records come one thread at a time; several threads share a consumer by `streams`.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        group: str | None = None,
        topics: str | Collection[str] | None = None,
        pattern: Pattern | None = None,
        deny: Pattern | None = None,
        commit: str | None = None,
        assignors: Sequence[str | Assignor] | None = None,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
        **options: object,
    ) -> None:
        arguments = ConsumerArguments(
            group=group,
            commit=commit,
            assignors=assignors,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            on_lost=on_lost,
        )
        self._core = make_core(bootstrap, arguments, options)
        self._engine = Engine(self._core)
        self._stream = Stream(self._engine, self._core.readers.first)
        self._has_streams = False
        if topics is not None or pattern is not None:
            self.subscribe(topics, pattern=pattern, deny=deny)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._engine.close(CLOSE_SECONDS, has_failed=error is not None)

    def close(self, timeout_seconds: float = CLOSE_SECONDS) -> None:
        """Commit as the mode says, leave the group, end everything. A second call does nothing.

        Raises what a function for rebalances raised meanwhile, when all is done.
        """
        self._engine.close(timeout_seconds, has_failed=False)

    # What to read

    def subscribe(
        self,
        topics: str | Collection[str] | None = None,
        *,
        pattern: Pattern | None = None,
        deny: Pattern | None = None,
    ) -> None:
        """Read these topics, or all whose whole name matches `pattern` and not `deny`."""
        internal = not self._core.options.exclude_internal_topics
        subscription = subscribe_to(topics, pattern, deny, with_internal=internal)
        self._do(lambda: self._core.subscribe(subscription))

    def unsubscribe(self) -> None:
        """Give up all partitions and leave the group; the consumer can subscribe again."""
        self._engine.drive(self._core.unsubscribe)

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these partitions, whatever others of the group read."""
        self._do(lambda: self._core.assign(partitions))

    @property
    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed to; of a pattern those that match now."""
        return self._core.topics

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self._core.table.partitions

    def partitions_for(self, topic: str) -> TopicMetadata:
        """The topic and its partitions; raises UnknownTopicError."""
        return self._engine.wait_for(self._core.client.wait_until_topic_is_ready(topic))

    # Records

    def poll(
        self, timeout_seconds: float = 1.0, max_records: int | None = None
    ) -> list[ConsumerRecord]:
        """The next records; an empty list when none come in time.

        The records that were given before count as dealt with.
        """
        return self._require_stream().poll(timeout_seconds, max_records)

    def poll_batches(
        self, timeout_seconds: float = 1.0, max_bytes: int = POLL_BYTES
    ) -> list[RawBatch]:
        """The next batches as they are stored, for whoever decodes them in bulk."""
        return self._require_stream().poll_batches(timeout_seconds, max_bytes)

    def poll_arrow(
        self,
        timeout_seconds: float = 1.0,
        max_bytes: int = POLL_BYTES,
        *,
        columns: Sequence[str] | None = None,
        timestamp_unit: TimestampUnit = "ms",
    ) -> pa.Table:
        """The next records as an Arrow table, with the columns of `moldau.read_table`.

        `max_bytes` are of batches as they are stored. The table is empty when nothing comes in
        time. No record is touched by Python: the fastest way to read.
        """
        stream = self._require_stream()
        return stream.poll_arrow(
            timeout_seconds, max_bytes, columns=columns, timestamp_unit=timestamp_unit
        )

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Record after record; waits for more, until the consumer is closed."""
        return iter(self._require_stream())

    def streams(self, count: int) -> tuple[Stream, ...]:
        """So many streams for as many threads; each partition is in one of them at a time.

        From now on records come through the streams only.
        """
        if count < 1:
            raise ConfigurationError(f"{count} streams are none")
        self._has_streams = True
        readers = self._do(lambda: self._core.split_readers(count))
        return tuple(Stream(self._engine, reader) for reader in readers)

    def _require_stream(self) -> Stream:
        if self._has_streams:
            raise ConfigurationError("this consumer's records come through its streams")
        return self._stream

    # Where to read

    def pause(self, partitions: Some = None) -> None:
        """Give nothing of these partitions until `resume`; they stay assigned."""
        self._pause(partitions, is_paused=True)

    def resume(self, partitions: Some = None) -> None:
        self._pause(partitions, is_paused=False)

    def _pause(self, partitions: Some, *, is_paused: bool) -> None:
        core = self._core
        self._do(lambda: core.pause(partitions_or_all(partitions, core), is_paused=is_paused))

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return self._do(lambda: self._core.table.paused)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on at this offset."""
        if offset < 0:
            raise ConfigurationError(f"{offset} is no offset; see seek_to_beginning, seek_to_end")
        self._do(lambda: self._core.seek(TopicPartition(*partition), Position(offset)))

    def seek_to_beginning(self, partitions: Some = None) -> None:
        self._reset(partitions, EARLIEST_TIMESTAMP)

    def seek_to_end(self, partitions: Some = None) -> None:
        self._reset(partitions, LATEST_TIMESTAMP)

    def seek_to_time(self, time: int | datetime, partitions: Some = None) -> None:
        """Read on at the first record that is not older (milliseconds since 1970, or a datetime);
        at the end where there is none."""
        self._reset(partitions, read_time_ms(time))

    def _reset(self, partitions: Some, timestamp: int) -> None:
        def reset() -> None:
            for partition in partitions_or_all(partitions, self._core):
                self._core.reset(partition, timestamp)

        self._do(reset)

    def position(self, partition: TopicPartition) -> int:
        """The offset of the record that is given next, looked up if it has to be."""
        timeout = self._core.options.default_api_timeout_ms / 1000
        wait = self._core.wait_for_position(TopicPartition(*partition), timeout)
        return self._engine.wait_for(wait).offset

    def lag(self, partition: TopicPartition) -> int | None:
        """How many offsets the position is behind the end, as the last fetch knew it."""
        return self._do(lambda: self._core.lag(TopicPartition(*partition)))

    def beginning_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        work = self._core.find_offsets(dict.fromkeys(partitions, EARLIEST_TIMESTAMP))
        return self._engine.wait_for(work)

    def end_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offsets behind the last records (that are committed, with read_committed)."""
        work = self._core.find_offsets(dict.fromkeys(partitions, LATEST_TIMESTAMP))
        return self._engine.wait_for(work)

    # What was read

    def commit(self, offsets: GivenOffsets = None, *, timeout_seconds: float | None = None) -> None:
        """Have the group begin here next time: behind all records that were given, behind these
        records, or at these offsets."""
        wanted = self._offsets_to_commit(offsets)
        self._engine.wait_for(self._core.commit(wanted, timeout_seconds))

    def commit_nowait(self, offsets: GivenOffsets = None) -> Future[None]:
        """As `commit`, in the background; the future tells how it went."""
        return self._engine.submit(self._core.commit(self._offsets_to_commit(offsets), None))

    def _offsets_to_commit(self, offsets: GivenOffsets) -> Mapping[TopicPartition, GroupOffset]:
        wanted = read_offsets(offsets)
        return self._do(self._core.given_offsets) if wanted is None else wanted

    def committed(self, partitions: Some = None) -> Mapping[TopicPartition, GroupOffset | None]:
        """What the group has committed; None where it has nothing."""
        some = (partitions,) if isinstance(partitions, TopicPartition) else partitions
        wanted = [TopicPartition(*one) for one in (self.assignment if some is None else some)]
        timeout = self._core.options.default_api_timeout_ms / 1000
        return self._engine.wait_for(self._core.committed(wanted, timeout))

    def _do(self, work: Callable[[], T]) -> T:
        """Something short, on the loop."""

        async def do() -> T:
            return work()

        return self._engine.run(do())
