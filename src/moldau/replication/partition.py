"""A partition as this broker leads or follows it.

A shell, owned by the event loop: no method that changes state awaits in its middle. It decides
nothing itself: `rules.replica` knows the part that this broker plays, what is committed, which
replicas are in sync and how far the followers are; `incoming_batches` says which batches are good,
the log which sequence numbers are. `replica_fetcher` asks the leader for what this broker follows.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

from moldau.clock import Clock, Timer
from moldau.cluster.rules.metadata_image import PartitionState
from moldau.config.topic_options import TopicOptions
from moldau.errors import OffsetNotAvailableError, OffsetOutOfRangeError
from moldau.metrics.figures import TopicTraffic
from moldau.metrics.history import EventKind
from moldau.model import BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from moldau.records.batch_header import BatchHeader, read_header
from moldau.records.record_batch import EndTransactionMarker, build_marker_batch
from moldau.replication.incoming_batches import IncomingBatches, Unpacker
from moldau.replication.offset_lookup import FoundOffset, find_log_end, find_offset
from moldau.replication.rules.isr import FollowerFetch
from moldau.replication.rules.replica import ALL_IN_SYNC, Part, ReplicaState
from moldau.replication.rules.truncation import (
    decide_truncation,
    find_cut,
    find_divergence,
    find_last_epoch,
    find_missed_deletions,
)
from moldau.storage.files import FileSlice
from moldau.storage.local_log import LogRead
from moldau.storage.log import AppendResult, Log
from moldau.storage.rules.epoch_cache import EpochEnd
from moldau.storage.rules.producer_state import NOT_REQUIRED

_log = logging.getLogger("moldau.replication")
_fetcher_log = logging.getLogger("moldau.replication.fetcher")


class PartitionRead(NamedTuple):
    """What a fetch found in one partition."""

    records: FileSlice | None
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    aborted_transactions: tuple[tuple[int, int], ...] | None  # (producer id, first offset)
    diverging_epoch: tuple[int, int] | None  # (epoch, end offset), KIP-595
    end_offset: int = -1  # of the records, where there are any


class FollowedRead(NamedTuple):
    """A follower's fetch of one partition."""

    replica: BrokerId
    broker_epoch: int
    current_leader_epoch: int
    offset: int
    last_fetched_epoch: int
    log_start_offset: int


class FollowPosition(NamedTuple):
    """Where a follower goes on: what it asks its leader for."""

    leader_epoch: LeaderEpoch
    offset: Offset
    last_epoch: int  # of the record before it, -1 when there is none
    log_start_offset: Offset


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
    `broker_epoch_of` returns the epoch of a living broker, -1 of any other.
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
        # Others may read it. Whoever changes it tells the observer.
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
        self._broker_epoch_of = broker_epoch_of
        self._commit_listeners: tuple[Callable[[], object], ...] = ()  # called at each commit
        # Followers that began at the start of the log and have not reached what is committed, with
        # the broker epoch in which they began: one that was away since may have missed something.
        self._copying: dict[BrokerId, int] | None = None
        self._joining: Timer | None = None  # ends the wait for a follower that comes into the set
        self._incoming = IncomingBatches(log.options, unpacker)
        log.on_start_moved = self._notify_change

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

    # Listeners

    def add_commit_listener(self, listener: Callable[[], object]) -> None:
        """Call a coordinator each time the high watermark moves; the observer is called, too."""
        self._commit_listeners = (*self._commit_listeners, listener)

    def remove_commit_listener(self, listener: Callable[[], object]) -> None:
        self._commit_listeners = tuple(one for one in self._commit_listeners if one != listener)

    def _notify_progress(self, has_committed: bool, was_settled: bool) -> None:
        """The high watermark may have moved, and a new leader may know now what is committed."""
        if has_committed:
            for listener in self._commit_listeners:
                listener()
            self._observer.on_commit(self.topic_partition, self.state.high_watermark)
        if self.state.is_settled and not was_settled:
            self._notify_change()

    def _notify_change(self) -> None:
        self._observer.on_change(self.topic_partition)

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
            self._stop_waiting()
        self.advance_high_watermark()
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
        self._stop_waiting()

    def update_options(self, options: TopicOptions) -> None:
        self.log.update_options(options)
        self._incoming.update_options(options)
        may_be_enough = self.state.set_min_insync_replicas(options.min_insync_replicas)
        self.advance_high_watermark()
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
            self.advance_high_watermark()
        else:
            log_end = log.log_end_offset
            state.set_high_watermark(log_end, log.log_start_offset, log_end)
            for listener in self._commit_listeners:
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

    # Followers

    def read_for_follower(
        self, wanted: FollowedRead, max_bytes: int, *, min_one: bool, counts: bool = True
    ) -> PartitionRead:
        """A follower's read, up to the log's end.

        It tells how far the follower has come, if it `counts`: not when a waiting request is read
        again.
        """
        log, state = self.log, self.state
        leadership = state.require_leadership(wanted.replica, wanted.current_leader_epoch)
        diverging = find_divergence(
            log.epochs, log.log_end_offset, wanted.offset, wanted.last_fetched_epoch
        ) or self._find_missed_deletions(wanted)
        read: LogRead | None = None
        if diverging is None:
            log.require_offset(wanted.offset)
            if counts:
                self._note_fetch(wanted)
            if max_bytes > 0 or min_one:
                end_offset = log.log_end_offset
                read = log.read(wanted.offset, max_bytes, end_offset=end_offset, min_one=min_one)
                if read.slice is not None and leadership.note_given(wanted.replica, wanted.offset):
                    self._observer.on_suspicion(self, Offset(wanted.offset))
        return PartitionRead(
            None if read is None else read.slice,
            state.high_watermark,
            log.last_stable_offset(state.high_watermark),
            log.log_start_offset,
            None,
            diverging,
            -1 if read is None else read.end_offset,
        )

    def _find_missed_deletions(self, wanted: FollowedRead) -> EpochEnd | None:
        """Where a follower has to go back to that may have missed deletions (REP-9).

        One that has begun at the start copies what is left, over many fetches: it misses nothing
        if that takes less than `delete.retention.ms`. If it takes longer, it is not sent back
        again either: it might never end.
        """
        log, copying = self.log, self._copying
        if wanted.offset >= max(log.dropped_offset, self.state.high_watermark):
            if copying:
                copying.pop(wanted.replica, None)
            return None
        if wanted.offset <= log.log_start_offset:
            self._copying = {**(copying or {}), wanted.replica: wanted.broker_epoch}
            return None
        if copying and copying.get(wanted.replica) == wanted.broker_epoch:
            return None
        return find_missed_deletions(
            log.log_start_offset, log.dropped_offset, wanted.offset, wanted.last_fetched_epoch
        )

    def _note_fetch(self, wanted: FollowedRead) -> None:
        state, log = self.state, self.log
        was_settled = state.is_settled
        fetch = FollowerFetch(
            Offset(wanted.offset),
            Offset(wanted.log_start_offset),
            wanted.broker_epoch,
            log.log_end_offset,
            state.high_watermark,
            self._clock.monotonic(),
        )
        broker_epoch = self._broker_epoch_of(wanted.replica)
        news = state.note_fetch(wanted.replica, fetch, broker_epoch, log.log_start_offset)
        if news is None:
            return
        if news.waits_until is not None:
            self._wait_for_joining(news.waits_until)
        self._notify_progress(news.has_committed, was_settled)
        if news.has_deleted:
            self._notify_change()
        if news.may_join:
            self._observer.on_catch_up(self)

    def is_follower_at_rest(self, wanted: FollowedRead) -> bool:
        """Whether the same fetch, repeated, finds and tells nothing until something happens here.

        A fetch session that leaves it out calls `ReplicaState.note_idle` when something did.
        """
        return self.state.is_at_rest(
            wanted.replica,
            wanted.offset,
            wanted.log_start_offset,
            wanted.broker_epoch,
            self.log.log_end_offset,
        )

    @property
    def low_watermark(self) -> Offset:
        """Before it, records are deleted in every replica whose broker lives."""
        return self.state.low_watermark(self.log.log_start_offset, self._broker_epoch_of)

    def caught_up_followers(self) -> tuple[BrokerId, ...]:
        """The followers that may lead next and have all that is in the log."""
        return self.state.caught_up_followers(self.log.log_end_offset)

    def advance_high_watermark(self) -> None:
        """Commit what all replicas in sync have by now, and tell the listeners."""
        state, log = self.state, self.log
        was_settled = state.is_settled
        has_committed = state.advance(log.log_start_offset, log.log_end_offset)
        self._notify_progress(has_committed, was_settled)

    def _wait_for_joining(self, until: float) -> None:
        """The high watermark waits for a follower, until a time."""

        def give_up() -> None:
            self.state.give_up_joining(until)
            self.advance_high_watermark()

        self._stop_waiting()
        self._joining = self._clock.call_later(until - self._clock.monotonic(), give_up)

    def _stop_waiting(self) -> None:
        """Another one comes, or this broker does not lead any more."""
        if self._joining is not None:
            self._joining.cancel()
            self._joining = None

    # The in-sync set

    def propose_isr(self, max_lag_seconds: float) -> tuple[PartitionState, PartitionState] | None:
        """The state in force and the one to be written over it, when the set should change.

        The proposal is pending until a newer state is applied, or `withdraw_isr`.
        """
        return self.state.propose_isr(
            self.log.log_end_offset, self._clock.monotonic(), max_lag_seconds, self._broker_epoch_of
        )

    def withdraw_isr(self, former: PartitionState) -> None:
        """The proposal over this state is surely not in force."""
        self.state.withdraw_isr(former)
        self.advance_high_watermark()

    # Following a leader

    def fetch_position(self) -> FollowPosition:
        log = self.log
        start, end = log.log_start_offset, log.log_end_offset
        last_epoch = find_last_epoch(log.epochs, start, end)
        return FollowPosition(self.state.leader_epoch, end, last_epoch, start)

    def is_at(self, position: FollowPosition) -> bool:
        """Whether an answer to a request from there can still be used."""
        state = self.state
        return (
            state.is_following
            and position.leader_epoch == state.leader_epoch
            and position.offset == self.log.log_end_offset
        )

    def append_as_follower(self, records: memoryview) -> None:
        """Append what the leader sent; it is checked batch by batch before (REP-5)."""
        self.log.append_replicated(records, newest_epoch=self.state.leader_epoch)
        self.traffic.replication_bytes_in += len(records)

    def apply_leader_offsets(self, high_watermark: int, log_start_offset: int) -> None:
        """Take over the leader's high watermark and log start, as far as the log reaches here."""
        state, log = self.state, self.log
        has_committed = state.follow(high_watermark, log.log_start_offset, log.log_end_offset)
        log.producers.note_committed(state.high_watermark)
        if log_start_offset > log.log_start_offset:
            log.advance_start(min(log_start_offset, state.high_watermark))
        self._notify_progress(has_committed, was_settled=state.is_settled)

    def find_truncation_offset(self, epoch: int, end_offset: int) -> int:
        """Where our history and the leader's part."""
        log = self.log
        return decide_truncation(log.epochs, log.log_end_offset, epoch, end_offset)

    def truncate_to(self, offset: int) -> None:
        """Go back to an offset. Hold `truncating`."""
        state = self.state
        if offset < state.high_watermark:
            _fetcher_log.error(
                "%s: the records from %d to %d were committed, and its leader %d (epoch %d) does "
                "not have them: they are cut off here as well. An unclean election, or a "
                "coordination store that was set back, made a replica leader that lacked them; or "
                "this one was away for longer than delete.retention.ms, and is copied anew",
                self.topic_partition,
                offset,
                state.high_watermark - 1,
                state.leader_id,
                state.leader_epoch,
            )
        log = self.log
        cut = find_cut(offset, log.log_start_offset, log.cleaned_offset, log.compared_offset)
        if cut < offset:
            _fetcher_log.warning(
                "%s: compaction has removed records for the sake of others from offset %d on, "
                "which go: all of it is copied from the leader again",
                self.topic_partition,
                offset,
            )
        log.truncate_to(cut)
        self._restore_high_watermark()

    def truncate_fully(self, offset: int) -> None:
        """Throw everything away: the leader's log begins later. Hold `truncating`."""
        log = self.log
        _fetcher_log.info(
            "%s: all from offset %d to %d is deleted: the leader's log starts at %d",
            self.topic_partition,
            log.log_start_offset,
            log.log_end_offset - 1,
            offset,
        )
        log.truncate_fully(offset)
        self._restore_high_watermark()

    def _restore_high_watermark(self) -> None:
        self.state.restore(self.log.log_start_offset, self.log.log_end_offset)
        self._notify_change()

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
        self._notify_change()

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
