"""A partition as this broker leads or follows it.

A shell, owned by the event loop: no method that changes state awaits in its middle. It decides
nothing itself: `storage.rules.append_checks` says which batches are good, `storage.log` which
sequence numbers are, `replication.rules` what is committed, who is in sync and how far a follower
goes back. `replica` is what it can do in either part, `leadership` knows the followers.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from moldau.clock import Clock, Timer
from moldau.cluster.rules.eligible_leaders import effective_min_in_sync
from moldau.cluster.rules.metadata_image import NO_NODE, PartitionState
from moldau.config.topic_options import TopicOptions
from moldau.errors import (
    FencedLeaderEpochError,
    NotEnoughReplicasError,
    NotLeaderError,
    OffsetOutOfRangeError,
    UnknownLeaderEpochError,
)
from moldau.model import BrokerId, Offset, TopicId, TopicPartition
from moldau.model.protocol_numbers import NO_BROKER, NO_LEADER_EPOCH
from moldau.records.batch_header import BatchHeader, read_header
from moldau.records.compression import Codec
from moldau.replication.append_options import level_of, limits_of
from moldau.replication.leadership import Leadership
from moldau.replication.replica import PartitionRead, Replica, ReplicaObserver
from moldau.replication.rules.acknowledgement import Acknowledgement, decide_acknowledgement
from moldau.replication.rules.follower_progress import FollowerFetch
from moldau.replication.rules.high_watermark import advance_high_watermark
from moldau.replication.rules.read_replica import choose_read_replica
from moldau.replication.unpacking import Unpacker
from moldau.storage.log import AppendResult, Log
from moldau.storage.log_reader import LogRead
from moldau.storage.rules.append_checks import (
    check_batch,
    check_records_if_quick,
    check_size,
    expect_unpacked,
    inspect_batch,
    wanted_codec,
)

_log = logging.getLogger(__name__)

ALL_IN_SYNC = -1
"""acks=all."""


class FollowedRead(NamedTuple):
    """A follower's fetch of one partition."""

    replica: BrokerId
    broker_epoch: int
    current_leader_epoch: int
    offset: int
    last_fetched_epoch: int
    log_start_offset: int


class PartitionObserver(ReplicaObserver, Protocol):
    """Who wants to know what happens to partitions."""

    def on_append(self, topic_partition: TopicPartition, size_bytes: int) -> None:
        """Records were appended and are committed: there is one replica."""
        ...

    def on_replicable(self, topic_partition: TopicPartition, size_bytes: int) -> None:
        """Records were appended, and followers may fetch them."""
        ...

    def on_catch_up(self, partition: Partition) -> None:
        """A follower may come into the in-sync set."""
        ...

    def on_suspicion(self, partition: Partition, offset: Offset) -> None:
        """A follower cannot use the records at an offset: they may be damaged."""
        ...


class Partition(Replica):
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
    ) -> None:
        super().__init__(
            log,
            topic_id,
            broker_id=broker_id,
            clock=clock,
            unpacker=unpacker,
            observer=observer,
            known_high_watermark=known_high_watermark,
        )
        self._observer = observer
        self._on_append = observer.on_append  # straight: this is the path of every produce
        self._lease_end = lease_end
        self._broker_epoch_of = broker_epoch_of
        self._refused_epoch = refused_epoch  # led in a former life: not again under this epoch
        self._version = NO_NODE
        self._led_since = NO_LEADER_EPOCH  # while it leads: without a break since this epoch
        self._is_accepting = False  # leads, and takes records
        self._leadership: Leadership | None = None
        self._joining: Timer | None = None  # ends the wait for a follower that comes into the set
        self._has_followers = False
        self._smallest_isr_size = 0
        self._may_commit = False  # whether the high watermark may move (ELR-1)
        self._min_in_sync = 1  # `min.insync.replicas`, but no more than there are replicas
        self._limits = limits_of(log.options)

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else f"follower of {self.leader_id}"
        return f"Partition({self.topic_partition}, {role}, epoch {self.leader_epoch})"

    # Following the cluster

    def apply_state(self, state: PartitionState) -> bool:
        """Take the part that the cluster's metadata gives this broker; whether it is news.

        An older state changes nothing. The one in force may come with other replicas, where a tool
        has written them without a new epoch. After a suspension none is in force: what was read in
        the new session is taken up, whatever it is.
        """
        is_resumed = self._is_suspended
        if state.version < self._version and not is_resumed:
            return False
        self.replicas = state.replicas
        if state.version == self._version and not is_resumed:
            self._update_replicas(state)
            return False
        self._version = state.version
        self._is_suspended = False
        was_leader, former_epoch = self._leadership is not None, self.leader_epoch
        self.leader_id, self.leader_epoch = state.leader, state.leader_epoch
        self.isr = state.isr
        if state.leader != self._broker_id or state.leader_epoch <= self._refused_epoch:
            self._resign()
        elif was_leader and former_epoch == state.leader_epoch and not is_resumed:
            self._go_on(state)
        else:
            self._lead(state, goes_on=was_leader and state.leader_epoch == former_epoch + 1)
        return True

    def _lead(self, state: PartitionState, *, goes_on: bool) -> None:
        """Begin an epoch as the leader.

        Who `goes_on` led the epoch before it too: nobody else has led in between, so its log is as
        it was, and what it knows to be committed is all that is. That is so in a reassignment.
        """
        self.log.begin_epoch(state.leader_epoch)
        self._leadership = Leadership(
            self._broker_id,
            state,
            start_offset=Offset(self.log.epochs.entries[-1].start_offset),
            now=self._clock.monotonic(),
            broker_epoch_of=self._broker_epoch_of,
        )
        if not goes_on:
            self._led_since = state.leader_epoch
            self.is_leader = self._is_accepting = True
            self.is_settled = False
            self.damaged_from = None
        self._note_isr()
        self._advance_high_watermark()

    def _go_on(self, state: PartitionState) -> None:
        """Lead on, with another in-sync set."""
        if self._leadership is not None:
            self._leadership.update(state, self._clock.monotonic())
            self._note_isr()
            self._advance_high_watermark()

    def _update_replicas(self, state: PartitionState) -> None:
        """The same state with other replicas."""
        leadership = self._leadership
        if leadership is not None and leadership.state.replicas != state.replicas:
            leadership.set_replicas(state.replicas, self._clock.monotonic())
            self._note_isr()
            self._advance_high_watermark()

    def _resign(self) -> None:
        """Lead no longer; what was known of the followers is void."""
        if self._joining is not None:
            self._joining.cancel()
            self._joining = None
        self._leadership = None
        self.is_leader = self.is_settled = self._is_accepting = self._has_followers = False
        self._smallest_isr_size = 0

    def suspend(self) -> None:
        """The session is over: neither lead nor follow until a state is applied again."""
        self._is_suspended = True
        self._resign()
        self.leader_id = NO_BROKER

    def _note_isr(self) -> None:
        """Keep at hand what the path of every produce asks for."""
        if self._leadership is not None:
            self._has_followers = bool(self._leadership.progress)
            self._smallest_isr_size = len(self._leadership.isr.smallest)
            self._min_in_sync = effective_min_in_sync(
                self.log.options.min_insync_replicas, len(self._leadership.progress) + 1
            )
            self._may_commit = self._leadership.may_commit(self._min_in_sync)

    def has_led_since(self, leader_epoch: int) -> bool:
        """Whether this broker leads, and led in that epoch, and in all between the two."""
        return self.is_leader and self._led_since <= leader_epoch <= self.leader_epoch

    @property
    def in_sync(self) -> tuple[BrokerId, ...]:
        """The in-sync set: while we lead, the smallest that may be in force."""
        return self.isr if self._leadership is None else self._leadership.isr.smallest

    @property
    def holds_lease(self) -> bool:
        """Whether this broker leads, and nobody else can lead yet (REP-4).

        Somebody else may, from the moment in which a leader that hands over refuses records.
        """
        return self._is_accepting and self._clock.monotonic() < self._lease_end()

    @property
    def has_enough_in_sync(self) -> bool:
        """Whether `min.insync.replicas` are in the smallest set that may be in force."""
        return self._smallest_isr_size >= self._min_in_sync

    def update_options(self, options: TopicOptions) -> None:
        former_min_in_sync = self.log.options.min_insync_replicas
        self.log.update_options(options)
        self._limits = limits_of(options)
        if options.min_insync_replicas != former_min_in_sync:
            self._note_isr()
            self._advance_high_watermark()
            if self._leadership is not None and self._leadership.state.elr:
                self._observer.on_catch_up(self)  # fewer may be enough now

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
        level = None if codec is None else level_of(codec, self.log.options)

        def look_inside(unpacked_bytes: int) -> memoryview | bytearray:
            return inspect_batch(
                records, header, limits, codec=codec, level=level, unpacked_bytes=unpacked_bytes
            )

        batch = await self._unpacker.unpack(
            look_inside,
            expected_bytes=expect_unpacked(records, header),
            limit_bytes=limits.decompressed_max_bytes,
        )
        self._require_leader(required_acks)  # it may have changed while the worker was busy
        if batch is not records:
            check_size(len(batch), limits)
            header = read_header(batch)
        return self._append(batch, header, now_ms)

    def append_internal(self, *batches: bytearray) -> None:
        """Append batches that the broker has made itself, as a coordinator does (acks=all).

        All or none, but for a disk that fails in the middle: then the directory is offline.
        """
        self._require_leader(ALL_IN_SYNC)
        for batch in batches:
            check_size(len(batch), self._limits)
        now_ms = self._clock.now_ms()
        for batch in batches:
            self._append(batch, read_header(batch), now_ms)

    def _append(
        self, batch: memoryview | bytearray, header: BatchHeader, now_ms: int
    ) -> AppendResult:
        result = self.log.append(batch, header, leader_epoch=self.leader_epoch, now_ms=now_ms)
        if result.duplicate:
            return result
        if self._has_followers:
            self._observer.on_replicable(self.topic_partition, len(batch))
            self._advance_high_watermark()
        else:
            self.high_watermark = self.log.log_end_offset
            if self.on_commit is not None:
                self.on_commit()
            self._on_append(self.topic_partition, len(batch))
        return result

    def _require_leader(self, required_acks: int) -> None:
        if not self._is_accepting:
            raise NotLeaderError(f"{self.topic_partition} is led by broker {self.leader_id}")
        lease_end = self._lease_end()
        if lease_end != math.inf and self._clock.monotonic() >= lease_end:
            raise NotLeaderError(f"the lease on leading {self.topic_partition} is over")
        if required_acks == ALL_IN_SYNC and self._smallest_isr_size < self._min_in_sync:
            raise NotEnoughReplicasError(
                f"{self.topic_partition} has {self._smallest_isr_size} in-sync replicas, "
                f"min.insync.replicas asks for {self._min_in_sync}"
            )

    def acknowledgement(self, leader_epoch: int, end_offset: int) -> Acknowledgement:
        """What can be said of a batch that was appended in an epoch and ends at an offset."""
        return decide_acknowledgement(
            leads_epoch=self.has_led_since(leader_epoch),
            high_watermark=self.high_watermark,
            end_offset=end_offset,
            smallest_isr_size=self._smallest_isr_size,
            min_in_sync=self._min_in_sync,
        )

    def _rewrite_codec(self, header: BatchHeader) -> Codec | None:
        wanted = self.log.options.compression_type
        return None if wanted == "producer" else wanted_codec(wanted, header)

    def _advance_high_watermark(self) -> None:
        leadership = self._leadership
        if leadership is None:
            return
        former = self.high_watermark
        if self._may_commit:
            self.high_watermark = advance_high_watermark(
                former, self.log.log_end_offset, leadership.in_sync_ends()
            )
        if self.high_watermark != former:
            self._tell_commit()
        if not self.is_settled and self.high_watermark >= leadership.start_offset:
            self.is_settled = True
            self._observer.on_change(self.topic_partition)

    # Handing over

    def stop_accepting(self) -> None:
        """Refuse records from now on, as for a leader that is about to go; reads go on."""
        self._is_accepting = False

    def resume_accepting(self) -> None:
        """The hand-over did not come about."""
        self._is_accepting = self.is_leader

    def caught_up_followers(self) -> tuple[BrokerId, ...]:
        """The followers that may lead next and have all that is in the log."""
        leadership = self._leadership
        return () if leadership is None else leadership.followers_at(self.log.log_end_offset)

    # The in-sync set

    def propose_isr(self, max_lag_seconds: float) -> tuple[PartitionState, PartitionState] | None:
        """The state in force and the one to be written over it, when the set should change.

        The proposal is pending until a newer state is applied, or `withdraw_isr`.
        """
        leadership = self._leadership
        if leadership is None:
            return None
        former, now = leadership.state, self._clock.monotonic()
        end_offset, min_in_sync = self.log.log_end_offset, self._min_in_sync
        proposed = leadership.propose_shrink(end_offset, now, max_lag_seconds, min_in_sync)
        if proposed is None:
            proposed = leadership.propose_expand(
                self.high_watermark, end_offset, now, max_lag_seconds, min_in_sync
            )
        if proposed is None:
            return None
        self._note_isr()
        return former, proposed

    def withdraw_isr(self, former: PartitionState) -> None:
        """The proposal over this state is surely not in force."""
        if self._leadership is not None:
            self._leadership.withdraw(former.version)
            self._note_isr()
            self._advance_high_watermark()

    def broker_epoch_at_fetch(self, follower: BrokerId) -> int:
        """Under which epoch of its broker a follower made the progress that counts."""
        leadership = self._leadership
        known = None if leadership is None else leadership.progress.get(follower)
        return -1 if known is None else known.broker_epoch

    def forget_follower(self, follower: BrokerId) -> None:
        """Its broker went or was restarted (ISR-2)."""
        if self._leadership is not None:
            self._leadership.forget(follower)

    # Followers

    def read_for_follower(
        self, wanted: FollowedRead, max_bytes: int, *, min_one: bool, counts: bool = True
    ) -> PartitionRead:
        """A follower's read, up to the log's end.

        It tells how far the follower has come, if it `counts`: not when a request that was waiting
        looks again.
        """
        leadership = self._require_leadership(wanted)
        log = self.log
        diverging = self._find_divergence(wanted.offset, wanted.last_fetched_epoch)
        read: LogRead | None = None
        if diverging is None:
            self._require_in_log(wanted.offset)
            if counts:
                self._note_fetch(leadership, wanted)
            if max_bytes > 0 or min_one:
                end_offset = log.log_end_offset
                read = log.read(wanted.offset, max_bytes, end_offset=end_offset, min_one=min_one)
                if read.slice is not None and leadership.note_given(wanted.replica, wanted.offset):
                    self._observer.on_suspicion(self, Offset(wanted.offset))
        return PartitionRead(
            None if read is None else read.slice,
            self.high_watermark,
            self.last_stable_offset,
            log.log_start_offset,
            None,
            diverging,
        )

    def is_at_rest(self, wanted: FollowedRead) -> bool:
        """Whether the same fetch, repeated, finds and tells nothing until something happens here.

        Who leaves it out tells `note_idle` when something did.
        """
        leadership = self._leadership
        return (
            leadership is not None
            and wanted.offset == self.log.log_end_offset
            and leadership.is_at_rest(
                wanted.replica, wanted.offset, wanted.log_start_offset, wanted.broker_epoch
            )
        )

    def note_idle(self, follower: BrokerId, until: float) -> None:
        """A follower at rest has asked for the end of the log until a time (ISR-2)."""
        if self._leadership is not None:
            self._leadership.note_idle(follower, until)

    def _require_leadership(self, wanted: FollowedRead) -> Leadership:
        leadership = self._leadership
        if leadership is None:
            raise NotLeaderError(f"{self.topic_partition} is led by broker {self.leader_id}")
        if wanted.current_leader_epoch < 0:
            raise FencedLeaderEpochError(f"a follower of {self.topic_partition} named no epoch")
        self.check_epoch(wanted.current_leader_epoch)
        if wanted.replica not in leadership.progress:
            # It may have been added by what has not been read here yet.
            raise UnknownLeaderEpochError(
                f"broker {wanted.replica} has no replica of {self.topic_partition}"
            )
        return leadership

    def _note_fetch(self, leadership: Leadership, wanted: FollowedRead) -> None:
        fetch = FollowerFetch(
            offset=Offset(wanted.offset),
            log_start_offset=Offset(wanted.log_start_offset),
            broker_epoch=wanted.broker_epoch,
            leader_end_offset=self.log.log_end_offset,
            high_watermark=self.high_watermark,
            at=self._clock.monotonic(),
        )
        former = leadership.progress[wanted.replica]
        former_until = leadership.joining_until
        if not leadership.note_fetch(wanted.replica, fetch):
            return
        until = leadership.joining_until
        if until is not None and until != former_until:
            self._await_joining(until)
        if fetch.offset != former.log_end_offset:
            self._advance_high_watermark()
        if fetch.log_start_offset != former.log_start_offset:
            self._observer.on_change(self.topic_partition)
        if leadership.may_expand_by(wanted.replica, self.high_watermark):
            self._observer.on_catch_up(self)

    def _await_joining(self, until: float) -> None:
        """The high watermark waits for a follower, and not for ever."""

        def give_up() -> None:
            if self._leadership is not None:
                self._leadership.give_up_joining(until)
                self._advance_high_watermark()

        if self._joining is not None:
            self._joining.cancel()
        self._joining = self._clock.call_later(until - self._clock.monotonic(), give_up)

    def find_read_replica(
        self, client_rack: str, racks: Mapping[BrokerId, str | None], offset: int
    ) -> BrokerId | None:
        """The follower that a consumer in a rack should read from (KIP-392), None for us.

        `racks` has the living brokers.
        """
        leadership = self._leadership
        if leadership is None or not self._has_followers:
            return None
        return choose_read_replica(
            leadership.readable_followers(racks),
            client_rack=client_rack,
            leader_rack=racks.get(self._broker_id),
            fetch_offset=offset,
        )

    # Deleting

    def delete_records(self, before: int) -> Offset:
        """DeleteRecords: -1 means up to the high watermark. Returns the new log start offset."""
        offset = self.high_watermark if before == -1 else before
        if not 0 <= offset <= self.high_watermark:
            raise OffsetOutOfRangeError(
                f"offset {offset} of {self.topic_partition} is past the high watermark "
                f"{self.high_watermark}"
            )
        if offset > self.log.log_start_offset:
            _log.info(
                "%s: records with offsets %d to %d are deleted: DeleteRecords asked for it",
                self.topic_partition,
                self.log.log_start_offset,
                offset - 1,
            )
        self.log.advance_start(Offset(offset))  # followers hear of it at once
        return self.log.log_start_offset

    @property
    def low_watermark(self) -> Offset:
        """Before it, records are deleted in every replica whose broker lives."""
        start = self.log.log_start_offset
        return start if self._leadership is None else self._leadership.low_watermark(start)
