"""Fetched records on their way to the program: decoded when asked for, counted when given. A rule.

A fetch buffer holds what one stream of a consumer (the consumer itself is one, too) may have next:
batches of completed fetches, in the order of their arrival. They are decoded one at a time into a
run of records. What has been given is known exactly, without work for each record: the iterator
of the run tells how much is left in it. A buffer belongs to one thread at a time; background tasks
never touch it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import islice
from operator import length_hint
from typing import Literal, NamedTuple, Protocol, TypeAlias

from moldau.client.rules.arguments import require_function
from moldau.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    LookUpNeededError,
    MoldauError,
    RecordDeserializationError,
    UnsupportedForMessageFormatError,
)
from moldau.model import TopicPartition
from moldau.records.batch_header import (
    CONTROL_FLAG,
    CURRENT_MAGIC,
    LOG_OVERHEAD_BYTES,
    MAGIC_AT,
    BatchHeader,
    Buffer,
    crc_matches,
    read_size,
    walk_headers,
)
from moldau.records.codec import decode_consumer_records, decode_records
from moldau.records.compression import Codec
from moldau.records.record import Headers
from moldau.records.record_batch import ControlType, find_control_type, payload_of

HEAVY_BYTES = 64 * 1024
"""From this size on a compressed batch takes milliseconds to unpack."""


class Position(NamedTuple):
    """The offset to be given next, and the leader epoch of the record before it, if known."""

    offset: int
    leader_epoch: int = -1


class CompletedFetch:
    """What one fetch brought of one partition."""

    __slots__ = ("at", "batches", "end", "epoch", "partition", "position")

    def __init__(
        self,
        partition: TopicPartition,
        epoch: int,
        position: Position,
        batches: list[FetchedBatch],
        end: Position,
    ) -> None:
        self.partition = partition
        self.epoch = epoch  # of the partition's position: another one after each seek
        self.position = position  # records before it are not given
        self.batches = batches
        self.at = 0  # the next batch
        self.end = end  # the position behind the last batch, whether it is given or not

    @property
    def size_bytes(self) -> int:
        return sum(len(batch.data) for batch in self.batches[self.at :])


class RawBatch(NamedTuple):
    """A whole batch as it was stored, its CRC checked.

    Records before `from_offset` are not to be seen. `next_offset` is the position behind it.
    """

    partition: TopicPartition
    data: memoryview
    header: BatchHeader
    from_offset: int
    next_offset: int


class Decoding(NamedTuple):
    """How records are made of bytes."""

    check_crcs: bool = True
    key_deserializer: GivenDeserializer | None = None
    value_deserializer: GivenDeserializer | None = None


class HeavyBatch(NamedTuple):
    """A batch whose decoding takes long enough to be done elsewhere."""

    partition: TopicPartition
    batch: FetchedBatch
    from_offset: int
    check_crc: bool

    def decode(self) -> list[ConsumerRecord]:
        """In any thread."""
        return decode_batch(self.batch, self.partition, self.from_offset, check_crc=self.check_crc)


class _Run:
    """Decoded records of one batch, on their way out."""

    __slots__ = ("completed", "end", "is_whole", "records", "rest")

    def __init__(
        self,
        completed: CompletedFetch,
        records: list[ConsumerRecord],
        end: Position,
        *,
        is_whole: bool,
    ) -> None:
        self.completed = completed
        self.records = records
        self.rest = iter(records)
        self.end = end  # the position when all are given
        self.is_whole = is_whole  # else a record follows that cannot be read

    @property
    def left_count(self) -> int:
        return length_hint(self.rest)

    @property
    def last_given(self) -> ConsumerRecord | None:
        given = len(self.records) - length_hint(self.rest)
        return self.records[given - 1] if given else None

    @property
    def position(self) -> Position:
        if not length_hint(self.rest):
            return self.end
        last = self.last_given
        if last is None:
            return self.completed.position
        return Position(last.offset + 1, last.leader_epoch)


class FetchBuffer:
    """Completed fetches in, records out."""

    def __init__(self, decoding: Decoding) -> None:
        self._decoding = decoding
        self._completed: deque[CompletedFetch] = deque()  # with that of the run
        self._paused: frozenset[TopicPartition] = frozenset()
        self._run: _Run | None = None
        self._passed: dict[TopicPartition, Position] = {}  # by runs that are over
        self._began: dict[TopicPartition, Position] = {}  # where the last call began to give
        self._is_iterating = False
        self._call_count = 0
        self._decoded_ahead: tuple[HeavyBatch, list[ConsumerRecord]] | None = None
        self.has_given = False  # since `mark_processed`

    # Giving

    def take_records(self, limit: int) -> list[ConsumerRecord]:
        """The next records, as many as there are up to the limit; raises what is wrong with one.

        What was wrong is raised again until the position is moved past it.
        """
        began = self._begin_call(is_iterating=False)
        taken: list[ConsumerRecord] = []
        while True:
            if self._run is not None:
                began.setdefault(self._run.completed.partition, self._run.position)
                taken += islice(self._run.rest, limit - len(taken))
            try:
                if len(taken) >= limit or not self._start_run():
                    break
            except MoldauError:
                if not taken:
                    raise
                break
        self.has_given = self.has_given or bool(taken)
        return taken

    def next_run(self) -> Iterator[ConsumerRecord] | None:
        """An iterator over some of the next records, or None when there are none.

        A record counts as given when the iterator has given it. Another call takes over where
        the iterator stopped.
        """
        self._begin_call(is_iterating=True)
        if (self._run is None or not self._run.left_count) and not self._start_run():
            return None
        self.has_given = True
        return None if self._run is None else self._run.rest

    def take_batches(self, limit_bytes: int) -> list[RawBatch]:
        """The next batches undecoded, at least one if there is any."""
        began = self._begin_call(is_iterating=False)
        self._retire_run()
        taken: list[RawBatch] = []
        size_bytes = 0
        while (not taken or size_bytes < limit_bytes) and (completed := self._take_completed()):
            began.setdefault(completed.partition, completed.position)
            taken.append(self._take_batch(completed))
            size_bytes += len(taken[-1].data)
            self._passed[completed.partition] = completed.position
        self.has_given = self.has_given or bool(taken)
        return taken

    def _begin_call(self, *, is_iterating: bool) -> dict[TopicPartition, Position]:
        self._is_iterating = is_iterating
        self._call_count += 1
        self._began = {}
        return self._began

    def _take_batch(self, completed: CompletedFetch) -> RawBatch:
        batch = completed.batches[completed.at]
        if self._decoding.check_crcs:
            require_crc(batch, completed.partition)
        end = _find_batch_end(completed)
        taken = RawBatch(
            completed.partition, batch.data, batch.header, completed.position.offset, end.offset
        )
        completed.position = end
        completed.at += 1
        return taken

    # Positions

    def position(self, partition: TopicPartition) -> Position | None:
        """What is given next of a partition of which something was given since `mark_processed`."""
        run = self._run
        if run is not None and run.completed.partition == partition:
            return run.position
        return self._passed.get(partition)

    def positions_after(self, count: int) -> Mapping[TopicPartition, Position]:
        """Where so many more records of the run, or all of them, end."""
        run = self._run
        if run is None:
            return {}
        if count >= run.left_count:
            return {run.completed.partition: run.end}
        last = run.records[len(run.records) - run.left_count + count - 1]
        return {run.completed.partition: Position(last.offset + 1, last.leader_epoch)}

    def mark_processed(self) -> Mapping[TopicPartition, Position]:
        """The program has dealt with all that was given: the positions that moved since."""
        moved, self._passed = self._passed, {}
        if self._run is not None:
            moved[self._run.completed.partition] = self._run.position
        self._began = {}
        self.has_given = False
        return moved

    def find_failed(self) -> Mapping[TopicPartition, Position]:
        """Where the program was before what was given last: to be asked before `mark_processed`."""
        if not self._is_iterating or self._run is None:
            return dict(self._began)
        last = self._run.last_given
        if last is None:
            return {}
        return {self._run.completed.partition: Position(last.offset, last.leader_epoch)}

    @property
    def sign_of_life(self) -> tuple[int, int]:
        """Changes whenever something is given. May be read from any thread."""
        run = self._run
        return self._call_count, 0 if run is None else run.left_count

    # Filling

    def add(self, fetches: Iterable[CompletedFetch]) -> None:
        self._completed += fetches

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Forget what there is of these partitions."""
        if self._run is not None and self._run.completed.partition in partitions:
            self._run = None
        self._drop_completed(partitions)
        for partition in partitions:
            self._passed.pop(partition, None)
            self._began.pop(partition, None)

    def pause(self, partitions: frozenset[TopicPartition]) -> None:
        """Give nothing of exactly these for now; what there is of them stays."""
        self._paused = partitions
        self._interrupt_run(partitions)

    def stop(self, partitions: Collection[TopicPartition]) -> None:
        """Forget what would be given of these; what was given counts still."""
        self._interrupt_run(partitions)
        self._drop_completed(partitions)

    def _interrupt_run(self, partitions: Collection[TopicPartition]) -> None:
        if self._run is not None and self._run.completed.partition in partitions:
            self._began = dict(self.find_failed())  # the program may be at work on that
            self._retire_run()

    def _drop_completed(self, partitions: Collection[TopicPartition]) -> None:
        if any(completed.partition in partitions for completed in self._completed):
            self._completed = deque(
                one for one in self._completed if one.partition not in partitions
            )

    @property
    def has_more(self) -> bool:
        """Whether there is something to give; what turns out empty may be among it."""
        if self._run is not None and self._run.left_count:
            return True
        return any(
            completed.partition not in self._paused and completed.at < len(completed.batches)
            for completed in self._completed
        )

    # Decoding elsewhere

    def find_heavy_batch(self) -> HeavyBatch | None:
        """The batch that has to be decoded before anything else is given, if it is large."""
        if self._run is not None and self._run.left_count:
            return None
        self._retire_run()
        completed = self._take_completed()
        if completed is None:
            return None
        batch = completed.batches[completed.at]
        if batch.header.codec == Codec.NONE or len(batch.data) < HEAVY_BYTES:
            return None
        return HeavyBatch(
            completed.partition, batch, completed.position.offset, self._decoding.check_crcs
        )

    def keep_decoded(self, heavy: HeavyBatch, records: list[ConsumerRecord]) -> None:
        """For when the batch is due, if it still is then."""
        self._decoded_ahead = heavy, records

    # Runs

    def _start_run(self) -> bool:
        """Decode batches until one has records; False when none is left."""
        while True:
            self._retire_run()
            completed = self._take_completed()
            if completed is None:
                return False
            self._run = self._decode(completed)
            if self._run.records:
                return True

    def _decode(self, completed: CompletedFetch) -> _Run:
        decoding = self._decoding
        batch = completed.batches[completed.at]
        offset = completed.position.offset
        ahead, self._decoded_ahead = self._decoded_ahead, None
        if ahead is not None and ahead[0].batch is batch and ahead[0].from_offset == offset:
            records = ahead[1]
        else:
            records = decode_batch(
                batch, completed.partition, offset, check_crc=decoding.check_crcs
            )
        if decoding.key_deserializer is None and decoding.value_deserializer is None:
            return _Run(completed, records, _find_batch_end(completed), is_whole=True)
        read, failure = deserialize_all(
            records, decoding.key_deserializer, decoding.value_deserializer
        )
        if failure is None:
            return _Run(completed, read, _find_batch_end(completed), is_whole=True)
        if not read:
            raise failure
        # The failure comes when what precedes it was given: by decoding the batch again.
        return _Run(completed, read, Position(records[len(read)].offset), is_whole=False)

    def _retire_run(self) -> None:
        """Let the fetch continue where the run is, be it over or not."""
        run, self._run = self._run, None
        if run is None:
            return
        run.completed.position = run.position
        if run.is_whole and not run.left_count:
            run.completed.at += 1
        self._passed[run.completed.partition] = run.completed.position

    def _take_completed(self) -> CompletedFetch | None:
        """The first that may be given and has a batch left. Those without are passed."""
        for completed in tuple(self._completed):
            if completed.partition in self._paused:
                continue
            if completed.at < len(completed.batches):
                return completed
            self._passed[completed.partition] = completed.end
            self._completed.remove(completed)
        return None


def _find_batch_end(completed: CompletedFetch) -> Position:
    """The position behind the next batch, and behind what is left out after the last."""
    if completed.at + 1 >= len(completed.batches):
        return completed.end
    header = completed.batches[completed.at].header
    return Position(header.next_offset, header.leader_epoch)


# From the bytes of a fetch answer to the batches that a consumer is to see. A broker answers with
# whole batches from the one that holds the offset asked for; the last one may be cut short and
# comes whole with the next fetch. Control batches are not for users. A reader of committed records
# gets the aborted transactions with the answer, and leaves their batches out. The bytes stay as
# they came.


AbortedTransactions = Sequence[tuple[int, int]]
"""Producer id and first offset of each."""


class FetchedBatch(NamedTuple):
    """One whole batch with its header. The CRC has not been checked yet."""

    data: memoryview
    header: BatchHeader


class FetchedBatches(NamedTuple):
    """The batches to be given, and the offset and leader epoch behind all that was there."""

    batches: list[FetchedBatch]
    next_offset: int
    leader_epoch: int


def split_batches(
    data: memoryview, from_offset: int, aborted: AbortedTransactions | None = None
) -> FetchedBatches:
    """The batches at or after an offset; `aborted` is given by readers of committed records."""
    batches: list[FetchedBatch] = []
    next_offset, leader_epoch = from_offset, -1
    is_aborted = _AbortedFilter(aborted).is_aborted if aborted else None
    found_any = False
    for position, header in walk_headers(data):
        if header.magic != CURRENT_MAGIC:
            require_current_format(header)
        found_any = True
        batch = data[position : position + header.batch_length + LOG_OVERHEAD_BYTES]
        left_out = is_aborted is not None and is_aborted(batch, header)
        end_offset = header.base_offset + header.last_offset_delta + 1
        if end_offset <= from_offset:
            continue
        next_offset, leader_epoch = end_offset, header.leader_epoch
        if not (left_out or header.attributes & CONTROL_FLAG):
            batches.append(FetchedBatch(batch, header))
    if not found_any and len(data) > LOG_OVERHEAD_BYTES:
        explain_no_batch(data)
    return FetchedBatches(batches, next_offset, leader_epoch)


def decode_batch(
    batch: FetchedBatch, partition: TopicPartition, from_offset: int, *, check_crc: bool = True
) -> list[ConsumerRecord]:
    """The records of a batch at or after an offset; raises CorruptBatchError and its kin."""
    header = batch.header
    if check_crc:
        require_crc(batch, partition)
    return decode_consumer_records(
        payload_of(batch.data, header),
        header.record_count,
        header.base_offset,
        header.base_timestamp,
        header.max_timestamp if header.is_log_append_time else None,
        from_offset,
        ConsumerRecord,
        partition.topic,
        partition.partition,
        header.leader_epoch,
    )


def require_crc(batch: FetchedBatch, partition: TopicPartition) -> None:
    if not crc_matches(batch.data, batch.header):
        raise CorruptBatchError(
            f"{partition}: the batch at offset {batch.header.base_offset} fails its CRC"
        )


class _AbortedFilter:
    """Knows, batch by batch in order, which transactions are open that will be aborted."""

    def __init__(self, aborted: AbortedTransactions) -> None:
        self._assigning = sorted(aborted, key=lambda one: one[1], reverse=True)
        self._open: set[int] = set()  # producer ids

    def is_aborted(self, batch: Buffer, header: BatchHeader) -> bool:
        while self._assigning and self._assigning[-1][1] <= header.last_offset:
            self._open.add(self._assigning.pop()[0])
        if header.is_control:
            if _is_abort_marker(batch, header):
                self._open.discard(header.producer_id)
            return False
        return header.is_transactional and header.producer_id in self._open


def _is_abort_marker(batch: Buffer, header: BatchHeader) -> bool:
    records = decode_records(
        payload_of(batch, header), header.record_count, header.base_offset, header.base_timestamp
    )
    # Compaction can leave a batch without its record, to remember the producer.
    return bool(records) and find_control_type(records[0].key) is ControlType.ABORT


def require_current_format(header: BatchHeader) -> None:
    if header.magic != CURRENT_MAGIC:
        raise UnsupportedForMessageFormatError(
            f"the batch at offset {header.base_offset} has format {header.magic}; only 2 is read"
        )


def explain_no_batch(data: memoryview) -> None:
    """Bytes came, but no whole batch: older formats are shorter than a header, or it was cut."""
    if len(data) > MAGIC_AT and data[MAGIC_AT] < CURRENT_MAGIC:
        raise UnsupportedForMessageFormatError(
            f"the records have format {data[MAGIC_AT]}; only 2 is read"
        )
    raise BatchTooLargeError(
        f"a batch of {read_size(data)} bytes was cut to {len(data)}; fetch with a higher limit"
    )


class TimestampType(IntEnum):
    """Who set a record's timestamp."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class ConsumerRecord(NamedTuple):
    """A record, where it is from, and what its partition knew of it.

    With deserializers, `key` and `value` are what these made of the bytes.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_type: int = TimestampType.CREATE_TIME
    leader_epoch: int = -1


# What deserializers make of the bytes of records. Most are functions of bytes. One that wants a
# record's headers, too, or has to ask others before it can read, is an object
# (`HeadedDeserializer`).


Deserializer = Callable[[bytes], object]


class HeadedDeserializer(Protocol):
    """A deserializer for which a record's headers count; `moldau.schemas` has one.

    It may have to ask others: then it raises LookUpNeededError, and is called again.
    """

    def deserialize_field(
        self, data: bytes, headers: Headers, field: Literal["key", "value"], /
    ) -> object: ...


GivenDeserializer: TypeAlias = Deserializer | HeadedDeserializer
Deserialized: TypeAlias = tuple[list[ConsumerRecord], MoldauError | None]
"""Records up to the first that cannot be read, and what is wrong with it, or needed for it."""


def require_deserializers(key: GivenDeserializer | None, value: GivenDeserializer | None) -> None:
    for field, one in (("key", key), ("value", value)):
        name = f"{field}_deserializer"
        require_function(one, name, example="bytes.decode", method="deserialize_field")


def deserialize_all(
    records: list[ConsumerRecord],
    key_deserializer: GivenDeserializer | None,
    value_deserializer: GivenDeserializer | None,
) -> Deserialized:
    if _is_headed(key_deserializer) or _is_headed(value_deserializer):
        return _deserialize_with_headers(records, key_deserializer, value_deserializer)
    read_key: Deserializer | None = key_deserializer  # type: ignore[assignment]
    read_value: Deserializer | None = value_deserializer  # type: ignore[assignment]
    read: list[ConsumerRecord] = []
    for record in records:
        key: object = record.key
        value: object = record.value
        try:
            if read_key is not None and key is not None:
                key = read_key(record.key or b"")
            if read_value is not None and value is not None:
                value = read_value(record.value or b"")
        except Exception as error:  # noqa: BLE001 the user's function may raise anything
            return read, _explain_unreadable(record, error)
        read.append(record._replace(key=key, value=value))  # type: ignore[arg-type]
    return read, None


def _is_headed(deserializer: GivenDeserializer | None) -> bool:
    return hasattr(deserializer, "deserialize_field")


def _deserialize_with_headers(
    records: list[ConsumerRecord],
    key_deserializer: GivenDeserializer | None,
    value_deserializer: GivenDeserializer | None,
) -> Deserialized:
    read: list[ConsumerRecord] = []
    for record in records:
        try:
            read.append(deserialize_record(record, key_deserializer, value_deserializer))
        except LookUpNeededError as needed:
            return read, needed
        except Exception as error:  # noqa: BLE001 the user's function may raise anything
            return read, _explain_unreadable(record, error)
    return read, None


def deserialize_record(
    record: ConsumerRecord,
    key_deserializer: GivenDeserializer | None,
    value_deserializer: GivenDeserializer | None,
) -> ConsumerRecord:
    """The record with what the deserializers make of its bytes; raises what they raise."""
    key: object = record.key
    value: object = record.value
    if key_deserializer is not None and record.key is not None:
        key = _read_field(key_deserializer, record.key, record.headers, "key")
    if value_deserializer is not None and record.value is not None:
        value = _read_field(value_deserializer, record.value, record.headers, "value")
    return record._replace(key=key, value=value)  # type: ignore[arg-type]


def _read_field(
    deserializer: GivenDeserializer,
    data: bytes,
    headers: Headers,
    field: Literal["key", "value"],
) -> object:
    headed: Callable[..., object] | None = getattr(deserializer, "deserialize_field", None)
    if headed is not None:
        return headed(data, headers, field)
    return deserializer(data)  # type: ignore[operator]  # a function


def _explain_unreadable(record: ConsumerRecord, cause: Exception) -> RecordDeserializationError:
    partition = TopicPartition(record.topic, record.partition)
    failure = RecordDeserializationError(
        f"the record at offset {record.offset} of {partition} cannot be deserialized: {cause}; "
        f"seek to {record.offset + 1} to go on behind it",
        partition,
        record.offset,
    )
    failure.__cause__ = cause
    return failure
