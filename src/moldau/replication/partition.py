"""A partition as this broker leads or follows it.

A shell, owned by the event loop: no method that changes state awaits in its middle. It decides
nothing itself: `rules.replica_state` knows the part that this broker plays, what is committed, who
is in sync and how far the followers are; `incoming_batches` says which batches are good, the log
which sequence numbers are. What this broker does as a follower is in `follower`, what it does with
those of its own in `followers`, who hears of what happens in `partition_listeners`.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Protocol

from moldau.clock import Clock
from moldau.cluster.rules.metadata_image import PartitionState
from moldau.config.topic_options import TopicOptions
from moldau.errors import OffsetNotAvailableError, OffsetOutOfRangeError
from moldau.metrics.figures import TopicTraffic
from moldau.metrics.history import EventKind
from moldau.model import BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from moldau.records.batch_header import BatchHeader, read_header
from moldau.records.record_batch import EndTransactionMarker, build_marker_batch
from moldau.replication.follower import Follower
from moldau.replication.followers import Followers
from moldau.replication.incoming_batches import IncomingBatches
from moldau.replication.offset_lookup import FoundOffset, find_log_end, find_offset
from moldau.replication.partition_listeners import PartitionListeners
from moldau.replication.partition_reads import PartitionRead
from moldau.replication.rules.replica_state import ALL_IN_SYNC, Part, ReplicaState
from moldau.replication.rules.truncation import find_divergence
from moldau.replication.unpacking import Unpacker
from moldau.storage.log import AppendResult, Log
from moldau.storage.rules.epoch_cache import EpochEnd
from moldau.storage.rules.transaction_verification import NOT_REQUIRED
from moldau.storage.segment_search import LogRead

_log = logging.getLogger("moldau.replication")


class PartitionObserver(Protocol):
    """Who in the broker wants to know what happens to all partitions."""

    def on_append(self, topic_partition: TopicPartition, size_bytes: int) -> None:
        """Records were appended and are committed: there is one replica."""
        ...

    def on_replicable(self, topic_partition: TopicPartition, size_bytes: int) -> None:
        """Records were appended, and followers may fetch them."""
        ...

    def on_commit(self, topic_partition: TopicPartition, high_watermark: Offset) -> None:
        """The high watermark has moved."""
        ...

    def on_change(self, topic_partition: TopicPartition) -> None:
        """Leadership, existence, the log start or damage changed, or the log was cut off."""
        ...

    def on_catch_up(self, partition: Partition) -> None:
        """A follower may come into the in-sync set."""
        ...

    def on_suspicion(self, partition: Partition, offset: Offset) -> None:
        """A follower or a coordinator cannot use the records at an offset: they may be damaged."""
        ...


class Partition:
    """The replica that this broker holds, and the part that it plays.

    `lease_end` is the end of the lease on leading, in seconds of the clock (REP-4);
    `broker_epoch_of` tells the epoch of a broker that lives, -1 of one that does not.
    """

    def __init__(
        self,
        log: Log,
        topic_id: TopicId,
        *,
        broker_id: BrokerId,
        clock: Clock,
        unpacker: Unpacker,
        observer: PartitionObserver,
        lease_end: Callable[[], float] = lambda: math.inf,
        broker_epoch_of: Callable[[BrokerId], int] = lambda broker: -1,
        known_high_watermark: int = 0,
        refused_epoch: int = -1,
        origin_epoch: int = -1,
        traffic: TopicTraffic | None = None,
    ) -> None:
        self.log = log
        self.traffic = traffic or TopicTraffic(log.topic_partition.topic)  # of the whole topic
        self.topic_partition: TopicPartition = log.topic_partition
        self.topic_id = topic_id
        self.truncating = asyncio.Lock()  # held until the checkpoints know of a truncation
        # Everybody may read it. Who changes it, here or in `replica_fetcher` and `damage_watch`,
        # tells those who have to know.
        self.state = ReplicaState(
            log.topic_partition,
            broker_id,
            log_start=log.log_start_offset,
            log_end=log.log_end_offset,
            known_high_watermark=known_high_watermark,
            min_insync_replicas=log.options.min_insync_replicas,
            refused_epoch=refused_epoch,
        )
        self._origin_epoch = origin_epoch  # of a branch: up to it batches are the origin's
        self._clock = clock
        self._unpacker = unpacker
        self._observer = observer
        self._on_append = observer.on_append  # straight: this is the path of every produce
        self._lease_end = lease_end
        self.listeners = PartitionListeners(
            log.topic_partition,
            self.state,
            on_commit=observer.on_commit,
            on_change=observer.on_change,
        )
        self.follower = Follower(log, self.state, self.listeners, self.traffic)
        self.followers = Followers(
            log,
            self.state,
            self.listeners,
            clock=clock,
            broker_epoch_of=broker_epoch_of,
            on_catch_up=lambda: observer.on_catch_up(self),
            on_suspicion=lambda offset: observer.on_suspicion(self, offset),
        )
        self._incoming = IncomingBatches(log.options, unpacker)
        log.on_start_moved = self.listeners.changed

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else f"follower of {self.leader_id}"
        return f"Partition({self.topic_partition}, {role}, epoch {self.leader_epoch})"

    # Facts

    @property
    def is_leader(self) -> bool:
        return self.state.is_leader

    @property
    def is_following(self) -> bool:
        """Whether there is a leader to fetch from."""
        return self.state.is_following

    @property
    def leader_id(self) -> BrokerId:
        return self.state.leader_id

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self.state.leader_epoch

    @property
    def high_watermark(self) -> Offset:
        return self.state.high_watermark

    @property
    def last_stable_offset(self) -> Offset:
        """Up to here every transaction is decided, and every record committed (HW-4)."""
        return self.log.last_stable_offset(self.state.high_watermark)

    @property
    def holds_lease(self) -> bool:
        """Whether this broker leads, and nobody else can lead yet (REP-4).

        Somebody else may, from the moment in which a leader that hands over refuses records.
        """
        return self.state.is_accepting and self._clock.monotonic() < self._lease_end()

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Compare the epoch that a client believes in (KIP-320); -1 believes in none."""
        self.state.check_epoch(current_leader_epoch)

    # Following the cluster

    def apply_state(self, state: PartitionState) -> bool:
        """Take the part that the cluster's metadata gives this broker; whether it is news."""
        part = self.state.part_in(state)
        epoch_start = self.log.log_end_offset
        if part is Part.LEAD:
            self.log.begin_epoch(state.leader_epoch)
            epoch_start = Offset(self.log.epochs.entries[-1].start_offset)
            self._forget_producers_of_origin()
        now = self._clock.monotonic()
        self.state.apply(state, part, epoch_start=epoch_start, now=now)
        if not self.state.is_leader:
            self.followers.stop_waiting()
        self.followers.advance()
        return part not in (Part.OLDER, Part.SAME)

    def _forget_producers_of_origin(self) -> None:
        """Whoever writes to a branch has never written to it before (BRA-5). A follower that has
        copied batches of the origin, or read them again, knows who wrote them there."""
        if self._origin_epoch >= 0:
            own = self.log.end_offset_for_epoch(self._origin_epoch).end_offset
            self.log.producers.forget_before(own)

    def suspend(self) -> None:
        """The session is over: neither lead nor follow until a state is applied again."""
        self.state.suspend()
        self.followers.stop_waiting()

    def update_options(self, options: TopicOptions) -> None:
        self.log.update_options(options)
        self._incoming.update_options(options)
        may_be_enough = self.state.set_min_insync_replicas(options.min_insync_replicas)
        self.followers.advance()
        if may_be_enough:
            self._observer.on_catch_up(self)

    # Produce

    def append_as_leader(
        self, records: memoryview, required_acks: int, verification: int = NOT_REQUIRED
    ) -> AppendResult | None:
        """Check and append one batch; None when looking inside it would hold up the event loop.

        In that case nothing has happened yet, and `append_in_worker` does the same in a worker.
        A transactional batch comes with what `begin_verification` gave for it.
        """
        self._require_writable(required_acks)
        now_ms = self._clock.now_ms()
        header = self._incoming.check(records, now_ms)
        if header is None:
            return None
        if verification != NOT_REQUIRED:
            self.log.producers.require_verified(header, verification)
        return self._append(records, header, now_ms)

    async def append_in_worker(
        self, records: memoryview, required_acks: int, verification: int = NOT_REQUIRED
    ) -> AppendResult:
        """As `append_as_leader`, with the look inside and any recompression in a worker."""
        self._require_writable(required_acks)
        now_ms = self._clock.now_ms()
        batch, header = await self._incoming.check_in_worker(records, now_ms)
        self._require_writable(required_acks)  # it may have changed while the worker was busy
        if verification != NOT_REQUIRED:
            self.log.producers.require_verified(header, verification)
        return self._append(batch, header, now_ms)

    def append_internal(self, *batches: bytearray, verification: int = NOT_REQUIRED) -> None:
        """Append batches that the broker has made itself, as a coordinator does (acks=all).

        All or none, but for a disk that fails in the middle: then the directory is offline.
        """
        self._require_writable(ALL_IN_SYNC)
        for batch in batches:
            self._incoming.check_size(len(batch))
        if verification != NOT_REQUIRED:
            self.log.producers.require_verified(read_header(batches[0]), verification)
        now_ms = self._clock.now_ms()
        for batch in batches:
            self._append(batch, read_header(batch), now_ms)

    # Transactions

    def begin_verification(self, header: BatchHeader, *, bumps_epochs: bool) -> int:
        """What a transactional batch needs to be appended: `MUST_BE_OPEN`, or the number of a
        question that the transaction coordinator has to confirm before (TXP-2)."""
        return self.log.producers.begin_verification(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            bumps_epochs=bumps_epochs,
        )

    def end_verification(self, producer_id: int, verification: int) -> None:
        """The batch was not appended: the coordinator, or the log, has refused it."""
        self.log.producers.end_verification(producer_id, verification)

    def append_marker(
        self,
        marker: EndTransactionMarker,
        producer_id: int,
        producer_epoch: int,
        transaction_version: int,
    ) -> Offset:
        """End a producer's transaction, as its coordinator decided (acks=all).

        Returns the offset up to which the log has to be committed before the coordinator is told.
        A marker that is in the log already is not appended again (TXP-3).
        """
        self._require_writable(ALL_IN_SYNC)
        log, now_ms = self.log, self._clock.now_ms()
        batch = build_marker_batch(
            marker, timestamp_ms=now_ms, producer_id=producer_id, producer_epoch=producer_epoch
        )
        header = read_header(batch)
        if log.producers.check_marker(header, marker, transaction_version):
            self._append(batch, header, now_ms)
            log.producers.note_committed(self.state.high_watermark)
            if not self.state.has_followers:
                # A reader of decided transactions may wait for more bytes than a marker has.
                self._observer.on_commit(self.topic_partition, self.state.high_watermark)
        return log.log_end_offset

    def _append(
        self, batch: memoryview | bytearray, header: BatchHeader, now_ms: int
    ) -> AppendResult:
        state, log = self.state, self.log
        result = log.append(batch, header, leader_epoch=state.leader_epoch, now_ms=now_ms)
        if result.duplicate:
            return result
        traffic = self.traffic
        traffic.bytes_in += len(batch)
        traffic.records_in += header.last_offset_delta + 1
        if state.has_followers:
            self._observer.on_replicable(self.topic_partition, len(batch))
            self.followers.advance()
        else:
            log_end = log.log_end_offset
            state.set_high_watermark(log_end, log.log_start_offset, log_end)
            for listener in self.listeners.of_commits:
                listener()
            self._on_append(self.topic_partition, len(batch))
        return result

    def _require_writable(self, required_acks: int) -> None:
        lease_end = self._lease_end()
        has_lease = lease_end == math.inf or self._clock.monotonic() < lease_end
        self.state.require_writable(required_acks, has_lease)

    # Handing over

    def stop_accepting(self) -> None:
        """Refuse records from now on, as for a leader that is about to go; reads go on."""
        self.state.is_accepting = False

    def resume_accepting(self) -> None:
        """The hand-over did not come about."""
        self.state.is_accepting = self.state.is_leader

    # Reading

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
        log, state = self.log, self.state
        high_watermark = state.high_watermark
        last_stable_offset = self.last_stable_offset
        diverging: EpochEnd | None = None
        if last_fetched_epoch >= 0:
            diverging = find_divergence(log.epochs, log.log_end_offset, offset, last_fetched_epoch)
        end_offset = last_stable_offset if read_committed else high_watermark
        read: LogRead | None = None
        if diverging is None:
            if offset > high_watermark and not self.holds_lease:
                # Also behind the log's end: a follower that is late, or was made anew, cannot know
                # that nothing is there, nor can a leader that somebody else may have replaced; and
                # a consumer would leave its position for it.
                raise OffsetNotAvailableError(
                    f"offset {offset} of {self.topic_partition} is not known to be committed here"
                )
            log.require_offset(offset)
            if offset < end_offset and (max_bytes > 0 or min_one):
                read = log.read(Offset(offset), max_bytes, end_offset=end_offset, min_one=min_one)
        aborted: tuple[tuple[int, int], ...] | None = None
        if read_committed:
            found = () if read is None else log.aborted_transactions(offset, read.end_offset)
            aborted = tuple((one.producer_id, one.first_offset) for one in found)
        return PartitionRead(
            None if read is None else read.slice,
            high_watermark,
            last_stable_offset,
            log.log_start_offset,
            aborted,
            diverging,
            -1 if read is None else read.end_offset,
        )

    # Offsets

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """OffsetForLeaderEpoch: the current epoch ends where the log does."""
        if epoch == self.state.leader_epoch:
            return EpochEnd(epoch, self.log.log_end_offset)
        return self.log.end_offset_for_epoch(epoch)

    def find_log_end(self) -> FoundOffset:
        """How far this log goes, whoever leads: what a recovery compares (ELR-4)."""
        return find_log_end(self.log)

    async def find_offset(
        self, timestamp_ms: int, *, read_committed: bool, for_replica: bool = False
    ) -> FoundOffset:
        """ListOffsets: the first offset at or after a time, or one of the special times.

        A replica hears of what is not committed, too.
        """
        if for_replica:
            end_offset = self.log.log_end_offset
        else:
            end_offset = self.last_stable_offset if read_committed else self.high_watermark
        return await find_offset(
            timestamp_ms,
            self.log,
            self._unpacker,
            leader_epoch=self.state.leader_epoch,
            end_offset=end_offset,
            require_settled=None if for_replica else self._require_settled,
        )

    def _require_settled(self) -> None:
        """A new leader may know less of what is committed than clients have seen already."""
        if not self.state.is_settled:
            raise OffsetNotAvailableError(
                f"the leader of {self.topic_partition} has yet to learn what is committed"
            )

    # Damage

    def report_damage(self, offset: Offset) -> None:
        """A reader on this broker found a damaged batch; the bytes are checked once more."""
        self._observer.on_suspicion(self, offset)

    def note_damage(self, offset: Offset) -> None:
        """Bytes are bad here and behind; who follows has them copied again."""
        self.state.damaged_from = offset
        self.listeners.changed()

    # Deleting

    def delete_records(self, before: int) -> Offset:
        """DeleteRecords: -1 means up to the high watermark. Returns the new log start offset."""
        log, high_watermark = self.log, self.state.high_watermark
        offset = high_watermark if before == -1 else before
        if not 0 <= offset <= high_watermark:
            raise OffsetOutOfRangeError(
                f"offset {offset} of {self.topic_partition} is past the high watermark "
                f"{high_watermark}"
            )
        if offset > log.log_start_offset:
            message = (
                f"records with offsets {log.log_start_offset} to {offset - 1} are deleted: "
                "DeleteRecords asked for it"
            )
            _log.info("%s: %s", self.topic_partition, message)
            log.directory.history.note(
                EventKind.DELETION,
                str(self.topic_partition),
                message,
                first_offset=log.log_start_offset,
                end_offset=offset,
                reason="DeleteRecords",
            )
        log.advance_start(Offset(offset))  # followers hear of it at once
        return log.log_start_offset
