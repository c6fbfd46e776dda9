"""One replica of one partition: a log, how far it is committed, and whom it follows.

What a replica can do whether this broker leads or not: show what is committed, say where leader
epochs end, copy from its leader and go back to where histories part. `partition` adds leading.

A shell, owned by the event loop: no method that changes state awaits in its middle. It decides
nothing itself: `rules.high_watermark` says what is committed, `rules.truncation` how far a follower
goes back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from moldau.clock import Clock
from moldau.errors import (
    FencedLeaderEpochError,
    OffsetNotAvailableError,
    OffsetOutOfRangeError,
    UnknownLeaderEpochError,
)
from moldau.model import BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from moldau.model.protocol_numbers import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    NO_BROKER,
)
from moldau.records.batch_reader import DEFAULT_LIMIT_BYTES
from moldau.replication.rules.high_watermark import (
    follow_high_watermark,
    restored_high_watermark,
)
from moldau.replication.rules.truncation import decide_truncation, find_last_epoch
from moldau.replication.unpacking import SMALL_BYTES, Unpacker
from moldau.storage.files import FileSlice
from moldau.storage.log import Log
from moldau.storage.log_reader import LogRead, TimestampedOffset
from moldau.storage.rules.epoch_cache import EpochEnd

_log = logging.getLogger(__name__)

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


class FollowPosition(NamedTuple):
    """Where a follower goes on: what it asks its leader for."""

    leader_epoch: LeaderEpoch
    offset: Offset
    last_epoch: int  # of the record before it, -1 when there is none
    log_start_offset: Offset


class ReplicaObserver(Protocol):
    """Who wants to know what happens to a replica."""

    def on_commit(self, topic_partition: TopicPartition, high_watermark: Offset) -> None:
        """The high watermark has moved."""
        ...

    def on_change(self, topic_partition: TopicPartition) -> None:
        """Leadership, existence, the log start or damage changed, or the log was cut off."""
        ...


class Replica:
    """The replica that this broker holds. Invariants HW-1 and HW-2 hold after every method."""

    def __init__(
        self,
        log: Log,
        topic_id: TopicId,
        *,
        broker_id: BrokerId,
        clock: Clock,
        unpacker: Unpacker,
        observer: ReplicaObserver,
        known_high_watermark: int,
    ) -> None:
        self.log = log
        self.topic_partition: TopicPartition = log.topic_partition
        self.topic_id = topic_id
        self.high_watermark = restored_high_watermark(
            known_high_watermark, log.log_start_offset, log.log_end_offset
        )  # log start <= high watermark <= log end
        self.leader_epoch = LeaderEpoch(-1)
        self.leader_id = NO_BROKER
        self.replicas: tuple[BrokerId, ...] = ()
        self.isr: tuple[BrokerId, ...] = ()  # as the state node has it
        self.is_leader = False
        self.is_settled = False  # leads, and all that was in the log when its epoch began is safe
        self.damaged_from: Offset | None = None  # here and behind, bytes may be bad
        self.truncating = asyncio.Lock()  # held until the checkpoints know of a truncation
        self.on_commit: Callable[[], None] | None = None  # told when the high watermark moves
        self._broker_id = broker_id
        self._clock = clock
        self._unpacker = unpacker
        self._watcher = observer
        self._is_suspended = False
        log.on_start_moved = self._tell_change

    # Reading

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
        """Up to here every transaction is decided, and every record committed (HW-4)."""
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
        """A consumer's read: committed records (HW-3) from an offset on, a whole batch at least."""
        log = self.log
        last_stable_offset = self.last_stable_offset
        diverging = self._find_divergence(offset, last_fetched_epoch)
        end_offset = last_stable_offset if read_committed else self.high_watermark
        read: LogRead | None = None
        if diverging is None:
            if offset > self.high_watermark and not self.is_leader:
                # Also behind the log's end: a follower that is late, or was made anew, cannot know
                # that nothing is there, and a consumer would leave its position for it.
                raise OffsetNotAvailableError(
                    f"offset {offset} of {self.topic_partition} is not known to be committed here"
                )
            self._require_in_log(offset)
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

    def _require_in_log(self, offset: int) -> None:
        log = self.log
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} of {self.topic_partition} is outside "
                f"{log.log_start_offset} to {log.log_end_offset}"
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

    def find_log_end(self) -> FoundOffset:
        """How far this log goes, whoever leads: what a recovery compares (ELR-4).

        The epoch is that of the last record, and of a log without records the one that begins
        at its end.
        """
        log = self.log
        start, end = log.log_start_offset, log.log_end_offset
        epoch = log.epochs.find_epoch_at(max(start, end - 1))
        return FoundOffset(end, -1, -1 if epoch is None else epoch)

    async def find_offset(
        self, timestamp_ms: int, *, read_committed: bool, for_replica: bool = False
    ) -> FoundOffset:
        """ListOffsets: the first offset at or after a time, or one of the special times.

        A replica hears of what is not committed, too.
        """
        log = self.log
        if timestamp_ms in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            epoch = log.epochs.find_epoch_at(log.log_start_offset)
            return FoundOffset(log.log_start_offset, -1, -1 if epoch is None else epoch)
        if for_replica:
            end_offset = log.log_end_offset
        else:
            end_offset = self.last_stable_offset if read_committed else self.high_watermark
        if timestamp_ms == LATEST_TIMESTAMP:
            if not for_replica:
                self._require_settled()
            return FoundOffset(end_offset, -1, self.leader_epoch)
        found: TimestampedOffset | None
        if timestamp_ms == MAX_TIMESTAMP:
            found = await self._look_up(log.max_timestamp_offset)
        elif timestamp_ms in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
            found = None  # nothing is tiered
        else:
            found = await self._look_up(partial(log.find_offset_by_timestamp, timestamp_ms))
        if found is None:
            return FoundOffset(-1, -1, -1)
        if found.offset >= end_offset:
            if not for_replica:
                self._require_settled()
            return FoundOffset(-1, -1, -1)
        return FoundOffset(*found)

    async def _look_up(
        self, find: Callable[[int], TimestampedOffset | None]
    ) -> TimestampedOffset | None:
        """Timestamps are inside of batches, which have to be unpacked one at a time."""
        return await self._unpacker.unpack(
            find, expected_bytes=SMALL_BYTES, limit_bytes=DEFAULT_LIMIT_BYTES
        )

    def _require_settled(self) -> None:
        """A new leader may know less of what is committed than clients have seen already."""
        if not self.is_settled:
            raise OffsetNotAvailableError(
                f"the leader of {self.topic_partition} has yet to learn what is committed"
            )

    # Following

    def note_damage(self, offset: Offset) -> None:
        """Bytes are bad here and behind; who follows has them copied again."""
        self.damaged_from = offset
        self._tell_change()

    @property
    def is_following(self) -> bool:
        """Whether there is a leader to fetch from."""
        return not self._is_suspended and self.leader_id not in (NO_BROKER, self._broker_id)

    def follow_position(self) -> FollowPosition:
        log = self.log
        start, end = log.log_start_offset, log.log_end_offset
        last_epoch = find_last_epoch(log.epochs, start, end)
        return FollowPosition(self.leader_epoch, end, last_epoch, start)

    def is_at(self, position: FollowPosition) -> bool:
        """Whether an answer to a request from there can still be used."""
        return (
            self.is_following
            and position.leader_epoch == self.leader_epoch
            and position.offset == self.log.log_end_offset
        )

    def append_as_follower(self, records: memoryview) -> None:
        """Append what the leader sent; it is checked batch by batch before (REP-5)."""
        self.log.append_replicated(records, newest_epoch=self.leader_epoch)

    def follow_offsets(self, high_watermark: int, log_start_offset: int) -> None:
        """Take over what the leader says of the log, as far as it reaches here."""
        former = self.high_watermark
        self.high_watermark = follow_high_watermark(former, high_watermark, self.log.log_end_offset)
        if log_start_offset > self.log.log_start_offset:
            self.log.advance_start(min(log_start_offset, self.high_watermark))
        if self.high_watermark != former:
            self._tell_commit()

    def find_divergence(self, epoch: int, end_offset: int) -> int:
        """Where our history and the leader's part."""
        log = self.log
        return decide_truncation(log.epochs, log.log_end_offset, epoch, end_offset)

    def truncate(self, offset: int) -> None:
        """Go back to an offset. Hold `truncating`."""
        if offset < self.high_watermark:
            _log.error(
                "%s: the records from %d to %d were committed, and its leader %d (epoch %d) does "
                "not have them: they are cut off here as well. An unclean election, or a "
                "coordination store that was set back, made a replica leader that lacked them",
                self.topic_partition,
                offset,
                self.high_watermark - 1,
                self.leader_id,
                self.leader_epoch,
            )
        self.log.truncate_to(offset)
        self._restore_high_watermark()

    def start_anew(self, offset: int) -> None:
        """Throw everything away: the leader's log begins later. Hold `truncating`."""
        log = self.log
        _log.info(
            "%s: all from offset %d to %d is deleted: the leader's log starts at %d",
            self.topic_partition,
            log.log_start_offset,
            log.log_end_offset - 1,
            offset,
        )
        log.truncate_fully(offset)
        self._restore_high_watermark()

    def _restore_high_watermark(self) -> None:
        log = self.log
        self.high_watermark = restored_high_watermark(
            self.high_watermark, log.log_start_offset, log.log_end_offset
        )
        self._tell_change()

    def _tell_change(self) -> None:
        self._watcher.on_change(self.topic_partition)

    def _tell_commit(self) -> None:
        if self.on_commit is not None:
            self.on_commit()
        self._watcher.on_commit(self.topic_partition, self.high_watermark)
