"""One replica of one partition, as its leader serves it.

A shell, owned by the event loop: no method that changes state awaits in its middle. It decides
nothing itself: `storage.rules.append_checks` says which batches are good, `storage.log` which
sequence numbers are, `replication.rules.high_watermark` what is committed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from moldau.clock import Clock
from moldau.cluster.rules.metadata_image import PartitionState
from moldau.config.topic_options import TopicOptions
from moldau.errors import (
    FencedLeaderEpochError,
    NotEnoughReplicasError,
    NotLeaderError,
    OffsetOutOfRangeError,
    UnknownLeaderEpochError,
)
from moldau.model import BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from moldau.records.batch_header import BatchHeader, read_header
from moldau.records.compression import Codec
from moldau.replication.rules.high_watermark import advance_high_watermark
from moldau.storage.files import FileSlice
from moldau.storage.log import AppendResult, Log
from moldau.storage.log_reader import LogRead, TimestampedOffset
from moldau.storage.rules.append_checks import (
    AppendLimits,
    check_batch,
    check_records,
    check_records_if_quick,
    check_size,
    rewrite_batch,
    wanted_codec,
)
from moldau.storage.rules.epoch_cache import EpochEnd
from moldau.workers import Workers

ALL_IN_SYNC = -1
"""acks=all."""

EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6


class PartitionRead(NamedTuple):
    """What a fetch found in one partition."""

    records: FileSlice | None
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    aborted_transactions: tuple[tuple[int, int], ...] | None  # (producer id, first offset)
    diverging_epoch: tuple[int, int] | None  # (epoch, end offset), KIP-595


class FoundOffset(NamedTuple):
    """An answer to ListOffsets; offset -1 where nothing fits."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class Partition:
    """The replica that this broker holds. Invariants HW-1 and HW-2 hold after every method."""

    def __init__(
        self,
        log: Log,
        topic_id: TopicId,
        *,
        broker_id: BrokerId,
        clock: Clock,
        workers: Workers,
        on_append: Callable[[TopicPartition, int], None],
    ) -> None:
        self.log = log
        self.topic_partition: TopicPartition = log.topic_partition
        self.topic_id = topic_id
        self.high_watermark = log.log_start_offset  # log start <= high watermark <= log end
        self.leader_epoch = LeaderEpoch(-1)
        self.leader_id = BrokerId(-1)
        self.in_sync: tuple[BrokerId, ...] = ()
        self.is_leader = False
        self._broker_id = broker_id
        self._clock = clock
        self._workers = workers
        self._on_append = on_append
        self.on_commit: Callable[[], None] | None = None  # told when the high watermark moves
        self._limits = _limits_of(log.options)

    def apply_state(self, state: PartitionState) -> None:
        """Take the part in the partition that the cluster's metadata gives this broker."""
        self.leader_id = state.leader
        self.leader_epoch = state.leader_epoch
        self.in_sync = state.isr
        self.is_leader = state.leader == self._broker_id
        if self.is_leader:
            self._advance_high_watermark()

    def update_options(self, options: TopicOptions) -> None:
        self.log.update_options(options)
        self._limits = _limits_of(options)

    # Produce

    def append_as_leader(self, records: memoryview, required_acks: int) -> AppendResult | None:
        """Check and append one batch; None when looking inside it would hold up the event loop.

        In that case nothing has happened yet, and `append_in_worker` does the same with patience.
        """
        self._require_leader(required_acks)
        now_ms = self._clock.now_ms()
        limits = self._limits
        header = check_batch(records, limits, now_ms)
        if self._rewrite_codec(header) is not None:
            return None
        if not check_records_if_quick(records, header, limits):
            return None
        return self._append(records, header, now_ms)

    async def append_in_worker(self, records: memoryview, required_acks: int) -> AppendResult:
        """As `append_as_leader`, with the look inside and any recompression in a worker."""
        self._require_leader(required_acks)
        now_ms = self._clock.now_ms()
        limits = self._limits
        header = check_batch(records, limits, now_ms)
        codec = self._rewrite_codec(header)
        level = None if codec is None else _level_of(codec, self.log.options)

        def look_inside() -> memoryview | bytearray:
            check_records(records, header, limits)
            if codec is None:
                return records
            return rewrite_batch(records, header, codec=codec, level=level, log_append_time_ms=None)

        batch = await self._workers.run(look_inside)
        self._require_leader(required_acks)  # it may have changed while the worker was busy
        if batch is not records:
            check_size(len(batch), limits)
            header = read_header(batch)
        return self._append(batch, header, now_ms)

    def append_internal(self, batch: bytearray) -> AppendResult:
        """Append a batch that the broker has made itself, as a coordinator does (acks=all)."""
        self._require_leader(ALL_IN_SYNC)
        check_size(len(batch), self._limits)
        return self._append(batch, read_header(batch), self._clock.now_ms())

    def _append(
        self, batch: memoryview | bytearray, header: BatchHeader, now_ms: int
    ) -> AppendResult:
        result = self.log.append(batch, header, leader_epoch=self.leader_epoch, now_ms=now_ms)
        if not result.duplicate:
            self._advance_high_watermark()
            self._on_append(self.topic_partition, len(batch))
        return result

    def _require_leader(self, required_acks: int) -> None:
        if not self.is_leader:
            raise NotLeaderError(f"{self.topic_partition} is led by broker {self.leader_id}")
        if required_acks == ALL_IN_SYNC:
            wanted = self.log.options.min_insync_replicas
            if len(self.in_sync) < wanted:
                raise NotEnoughReplicasError(
                    f"{self.topic_partition} has {len(self.in_sync)} in-sync replicas, "
                    f"min.insync.replicas is {wanted}"
                )

    def _rewrite_codec(self, header: BatchHeader) -> Codec | None:
        wanted = self.log.options.compression_type
        return None if wanted == "producer" else wanted_codec(wanted, header)

    def _advance_high_watermark(self) -> None:
        former = self.high_watermark
        self.high_watermark = advance_high_watermark(former, self.log.log_end_offset, ())
        if self.on_commit is not None and self.high_watermark != former:
            self.on_commit()

    # Fetch

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Compare the epoch that a client believes in (KIP-320); -1 believes in none."""
        if current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise FencedLeaderEpochError(
                f"{self.topic_partition} is at epoch {self.leader_epoch}, the request at "
                f"{current_leader_epoch}"
            )
        raise UnknownLeaderEpochError(
            f"{self.topic_partition} is at epoch {self.leader_epoch}, the request at "
            f"{current_leader_epoch}"
        )

    @property
    def last_stable_offset(self) -> Offset:
        """Up to here every transaction is decided."""
        unstable = self.log.first_unstable_offset(self.high_watermark)
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        read_committed: bool,
        min_one: bool,
        last_fetched_epoch: int = -1,
    ) -> PartitionRead:
        """A consumer's read: committed records from an offset on, whole batches, at least one."""
        log = self.log
        last_stable_offset = self.last_stable_offset
        diverging = self._find_divergence(offset, last_fetched_epoch)
        end_offset = last_stable_offset if read_committed else self.high_watermark
        read: LogRead | None = None
        if diverging is None:
            if not log.log_start_offset <= offset <= log.log_end_offset:
                raise OffsetOutOfRangeError(
                    f"offset {offset} of {self.topic_partition} is outside "
                    f"{log.log_start_offset} to {log.log_end_offset}"
                )
            if offset < end_offset and (max_bytes > 0 or min_one):
                read = log.read(Offset(offset), max_bytes, end_offset=end_offset, min_one=min_one)
        aborted: tuple[tuple[int, int], ...] | None = None
        if read_committed:
            found = () if read is None else log.aborted_transactions(offset, read.end_offset)
            aborted = tuple((one.producer_id, one.first_offset) for one in found)
        return PartitionRead(
            None if read is None else read.slice,
            self.high_watermark,
            last_stable_offset,
            log.log_start_offset,
            aborted,
            diverging,
        )

    def _find_divergence(self, offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
        """Where the reader's history leaves ours, if it does (KIP-595)."""
        if last_fetched_epoch < 0:
            return None
        epoch, end_offset = self.log.end_offset_for_epoch(last_fetched_epoch)
        if epoch < 0 or (epoch == last_fetched_epoch and end_offset >= offset):
            return None
        return epoch, end_offset

    # Offsets

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """OffsetForLeaderEpoch: the current epoch ends where the log does."""
        if epoch == self.leader_epoch:
            return EpochEnd(epoch, self.log.log_end_offset)
        return self.log.end_offset_for_epoch(epoch)

    async def find_offset(self, timestamp_ms: int, *, read_committed: bool) -> FoundOffset:
        """ListOffsets: the first offset at or after a time, or one of the special times."""
        log = self.log
        if timestamp_ms in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            epoch = log.epochs.find_epoch_at(log.log_start_offset)
            return FoundOffset(log.log_start_offset, -1, -1 if epoch is None else epoch)
        end_offset = self.last_stable_offset if read_committed else self.high_watermark
        if timestamp_ms == LATEST_TIMESTAMP:
            return FoundOffset(end_offset, -1, self.leader_epoch)
        found: TimestampedOffset | None
        if timestamp_ms == MAX_TIMESTAMP:
            found = await self._workers.run(log.max_timestamp_offset)
        elif timestamp_ms in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
            found = None  # nothing is tiered
        else:
            found = await self._workers.run(lambda: log.find_offset_by_timestamp(timestamp_ms))
        if found is None or found.offset >= end_offset:
            return FoundOffset(-1, -1, -1)
        return FoundOffset(*found)

    def delete_records(self, before: int) -> Offset:
        """DeleteRecords: -1 means up to the high watermark. Returns the new log start offset."""
        offset = self.high_watermark if before == -1 else before
        if not 0 <= offset <= self.high_watermark:
            raise OffsetOutOfRangeError(
                f"offset {offset} of {self.topic_partition} is past the high watermark "
                f"{self.high_watermark}"
            )
        self.log.advance_start(Offset(offset))
        return self.log.log_start_offset


def _level_of(codec: Codec, options: TopicOptions) -> int | None:
    match codec:
        case Codec.GZIP:
            return options.compression_gzip_level
        case Codec.LZ4:
            return options.compression_lz4_level
        case Codec.ZSTD:
            return options.compression_zstd_level
        case Codec.NONE | Codec.SNAPPY:
            return None


def _limits_of(options: TopicOptions) -> AppendLimits:
    return AppendLimits(
        max_message_bytes=options.max_message_bytes,
        segment_bytes=options.segment_bytes,
        compacted="compact" in options.cleanup_policy,
        log_append_time=options.message_timestamp_type == "LogAppendTime",
        timestamp_before_max_ms=options.message_timestamp_before_max_ms,
        timestamp_after_max_ms=options.message_timestamp_after_max_ms,
        inspect_records=options.record_validation == "full",
    )
