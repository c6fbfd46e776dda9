"""What a broker knows of its replica of one partition: whom it follows or that it leads, how far
the log is committed, and while it leads the in-sync set and the followers.

A rule with state: the log's offsets, the time and the epochs of brokers are passed in, and what
follows from a change is returned; `partition` is the shell that owns it, and tells others. The
log itself is not here: `log_start` and `log_end` are its offsets at the time of the call.

What a state of the cluster's metadata makes of the replica (`Part`):

    OLDER     than the one in force: nothing changes
    SAME      the one in force, maybe with other replicas
    FOLLOW    another broker leads, or none
    LEAD_ON   the epoch that this broker leads already, with another in-sync set
    LEAD      an epoch begins here

`Leadership` is one epoch in which this broker leads. When the epoch is over it is thrown away, and
with it all that was known about the followers (ISR-2). `broker_epoch_of` returns the epoch of a
living broker, -1 of any other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import NamedTuple

from moldau.cluster.rules.leader_election import effective_min_in_sync, with_in_sync_by_leader
from moldau.cluster.rules.metadata_image import NO_NODE, PartitionState
from moldau.errors import (
    FencedLeaderEpochError,
    InvariantViolation,
    NotEnoughReplicasError,
    NotLeaderError,
    UnknownLeaderEpochError,
)
from moldau.model import NO_BROKER, NO_LEADER_EPOCH, BrokerId, LeaderEpoch, Offset, TopicPartition
from moldau.replication.rules.isr import (
    UNKNOWN_OFFSET,
    Committed,
    FollowerFetch,
    FollowerProgress,
    IsrState,
    begin_progress,
    forget_log,
    has_caught_up,
    is_caught_up,
    is_one_fetch_behind,
    join_isr,
    note_fetch,
    note_idle,
    plan_expand,
    plan_settling,
    plan_shrink,
    proposed_isr,
)

ALL_IN_SYNC = -1
"""acks=all."""


class Part(Enum):
    """What a state of the metadata makes of a replica. See the module."""

    OLDER = auto()
    SAME = auto()
    FOLLOW = auto()
    LEAD_ON = auto()
    LEAD = auto()


class FetchNews(NamedTuple):
    """What follows from a follower's fetch that counts."""

    has_committed: bool  # the high watermark moved
    has_deleted: bool  # the follower's log starts elsewhere
    may_join: bool  # the follower may come into the in-sync set
    waits_until: float | None  # from now on and so long, the high watermark waits for the follower


class ReplicaState:
    """See the module.

    Invariants: `high_watermark` is changed by one method, which raises HW-1 and HW-2; `is_leader`
    is true exactly while there is a `leadership`; who does not lead accepts nothing and is not
    settled; who is suspended neither leads nor follows.
    """

    __slots__ = (
        "_may_commit",
        "_min_insync_replicas",
        "_refused_epoch",
        "_version",
        "broker_id",
        "damaged_from",
        "has_followers",
        "high_watermark",
        "is_accepting",
        "is_leader",
        "is_settled",
        "is_suspended",
        "isr",
        "leader_epoch",
        "leader_id",
        "leadership",
        "led_since",
        "min_in_sync",
        "replicas",
        "smallest_isr_size",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        broker_id: BrokerId,
        *,
        log_start: Offset,
        log_end: Offset,
        known_high_watermark: int = 0,
        min_insync_replicas: int = 1,
        refused_epoch: int = -1,
    ) -> None:
        self.topic_partition = topic_partition
        self.broker_id = broker_id
        self.leader_id = NO_BROKER
        self.leader_epoch = NO_LEADER_EPOCH
        self.replicas: tuple[BrokerId, ...] = ()
        self.isr: tuple[BrokerId, ...] = ()  # as the state node has it
        self.leadership: Leadership | None = None
        self.led_since = NO_LEADER_EPOCH  # while it leads: without a break since this epoch
        self.is_leader = False
        self.is_accepting = False  # leads, and takes records
        self.is_settled = False  # leads, and all that was in the log when its epoch began is safe
        self.is_suspended = False
        self.damaged_from: Offset | None = None  # here and behind, bytes may be bad
        self.has_followers = False
        self.smallest_isr_size = 0
        self.min_in_sync = 1  # `min.insync.replicas`, but no more than there are replicas
        self._min_insync_replicas = min_insync_replicas
        self._may_commit = False  # whether the high watermark may move (ELR-1)
        self._refused_epoch = refused_epoch  # led in a former life: not again under this epoch
        self._version = NO_NODE
        self.high_watermark = log_start
        self.set_high_watermark(
            restored_high_watermark(known_high_watermark, log_start, log_end), log_start, log_end
        )

    # The high watermark

    def set_high_watermark(self, offset: Offset, log_start: Offset, log_end: Offset) -> bool:
        """The one place where it changes; whether it did.

        For a leader without followers: what it has written is committed.
        """
        former = self.high_watermark
        if not log_start <= offset <= log_end:
            raise InvariantViolation(
                f"HW-1: the high watermark {offset} of {self.topic_partition} is outside of its "
                f"log from {log_start} to {log_end}"
            )
        if offset < former and self.is_leader:
            raise InvariantViolation(
                f"HW-2: the leader of {self.topic_partition} in epoch {self.leader_epoch} goes "
                f"back from {former} to {offset}"
            )
        self.high_watermark = offset
        return offset != former

    def advance(self, log_start: Offset, log_end: Offset) -> bool:
        """As the leader, commit what is in sync by now; whether that is news."""
        leadership = self.leadership
        if leadership is None:
            return False
        has_moved = False
        if self._may_commit:
            committed = advance_high_watermark(
                self.high_watermark, log_end, leadership.in_sync_ends()
            )
            has_moved = self.set_high_watermark(committed, log_start, log_end)
        if not self.is_settled:
            self.is_settled = self.high_watermark >= leadership.start_offset
        return has_moved

    def follow(self, leaders_high_watermark: int, log_start: Offset, log_end: Offset) -> bool:
        """Take over what the leader says is committed, as far as the log reaches; whether that is
        news."""
        followed = follow_high_watermark(self.high_watermark, leaders_high_watermark, log_end)
        return self.set_high_watermark(followed, log_start, log_end)

    def restore(self, log_start: Offset, log_end: Offset) -> bool:
        """The log was truncated: keep what is within it; whether that is news."""
        restored = restored_high_watermark(self.high_watermark, log_start, log_end)
        return self.set_high_watermark(restored, log_start, log_end)

    # Following the cluster

    @property
    def is_following(self) -> bool:
        """Whether there is a leader to fetch from."""
        return self.leader_id not in (NO_BROKER, self.broker_id)

    def part_in(self, state: PartitionState) -> Part:
        """What a state makes of this replica.

        The one in force may come with other replicas, where a tool has written them without a new
        epoch. After a suspension none is in force: what was read in the new session is taken up,
        whatever it is. So is a later epoch: versions begin anew where somebody has removed the
        state's node and put it back.
        """
        if not self.is_suspended and state.leader_epoch <= self.leader_epoch:
            if state.version < self._version:
                return Part.OLDER
            if state.version == self._version:
                return Part.SAME
        if state.leader != self.broker_id or state.leader_epoch <= self._refused_epoch:
            return Part.FOLLOW
        leads = self.is_leader and self.leader_epoch == state.leader_epoch
        return Part.LEAD_ON if leads else Part.LEAD

    def is_in_force(self, state: PartitionState) -> bool:
        """Whether to apply a state would change nothing."""
        if self.part_in(state) is not Part.SAME or state.replicas != self.replicas:
            return False
        leadership = self.leadership
        return leadership is None or leadership.state.replicas == state.replicas

    def apply(self, state: PartitionState, part: Part, *, epoch_start: Offset, now: float) -> None:
        """Take the part; `advance` is next. `epoch_start`: where an epoch that it leads begins."""
        if part is Part.OLDER:
            return
        self.replicas = state.replicas
        if part is Part.SAME:
            self._update_replicas(state, now)
            return
        former_epoch = self.leader_epoch
        self._version = state.version
        self.is_suspended = False
        self.leader_id, self.leader_epoch = state.leader, state.leader_epoch
        self.isr = state.isr
        if part is Part.LEAD:
            self._lead(state, former_epoch, epoch_start, now)
        elif part is Part.LEAD_ON and self.leadership is not None:
            self.leadership.update(state, now)
            self._note_isr()
        else:
            self._resign()

    def _lead(
        self, state: PartitionState, former_epoch: LeaderEpoch, epoch_start: Offset, now: float
    ) -> None:
        """Begin an epoch as the leader.

        Who led the epoch before it too goes on: nobody else has led in between, so its log is as it
        was, and what it knows to be committed is all that is. That is so in a reassignment.
        """
        goes_on = self.is_leader and state.leader_epoch == former_epoch + 1
        self.leadership = Leadership(self.broker_id, state, start_offset=epoch_start, now=now)
        if not goes_on:
            self.led_since = state.leader_epoch
            self.is_leader = self.is_accepting = True
            self.is_settled = False
            self.damaged_from = None
        self._note_isr()

    def _update_replicas(self, state: PartitionState, now: float) -> None:
        leadership = self.leadership
        if leadership is not None and leadership.state.replicas != state.replicas:
            leadership.set_replicas(state.replicas, now)
            self._note_isr()

    def _resign(self) -> None:
        """Lead no longer; what was known of the followers is void."""
        self.leadership = None
        self.is_leader = self.is_settled = self.is_accepting = self.has_followers = False
        self.smallest_isr_size = 0

    def suspend(self) -> None:
        """The session is over: neither lead nor follow until a state is applied again."""
        self.is_suspended = True
        self._resign()
        self.leader_id = NO_BROKER

    def _note_isr(self) -> None:
        """Keep at hand what the path of every produce asks for."""
        leadership = self.leadership
        if leadership is not None:
            self.has_followers = bool(leadership.progress)
            self.smallest_isr_size = len(leadership.isr.smallest)
            self.min_in_sync = effective_min_in_sync(
                self._min_insync_replicas, len(leadership.progress) + 1
            )
            self._may_commit = leadership.may_commit(self.min_in_sync)

    def set_min_insync_replicas(self, count: int) -> bool:
        """Another `min.insync.replicas`; whether those who were too few may be enough now.

        `advance` is next.
        """
        if count == self._min_insync_replicas:
            return False
        self._min_insync_replicas = count
        self._note_isr()
        return self.leadership is not None and bool(self.leadership.state.elr)

    # Leading

    def has_led_since(self, leader_epoch: int) -> bool:
        """Whether this broker leads, and led in that epoch, and in all between the two."""
        return self.is_leader and self.led_since <= leader_epoch <= self.leader_epoch

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Compare the epoch that a client believes in (KIP-320); -1 believes in none."""
        if current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return
        found = (
            f"{self.topic_partition} is at epoch {self.leader_epoch}, the request at "
            f"{current_leader_epoch}"
        )
        if current_leader_epoch < self.leader_epoch:
            raise FencedLeaderEpochError(found)
        raise UnknownLeaderEpochError(found)

    def require_writable(self, required_acks: int, has_lease: bool) -> None:
        """Raise why nothing may be appended."""
        if not self.is_accepting:
            raise NotLeaderError(f"{self.topic_partition} is led by broker {self.leader_id}")
        if not has_lease:
            raise NotLeaderError(f"the lease on leading {self.topic_partition} is over")
        if required_acks == ALL_IN_SYNC and self.smallest_isr_size < self.min_in_sync:
            raise NotEnoughReplicasError(
                f"{self.topic_partition} has {self.smallest_isr_size} in-sync replicas, "
                f"min.insync.replicas asks for {self.min_in_sync}"
            )

    @property
    def has_enough_in_sync(self) -> bool:
        """Whether `min.insync.replicas` are in the smallest set that may be in force."""
        return self.smallest_isr_size >= self.min_in_sync

    def acknowledgement(self, leader_epoch: int, end_offset: int) -> Acknowledgement:
        """What can be said of a batch that was appended in an epoch and ends at an offset."""
        return decide_acknowledgement(
            leads_epoch=self.has_led_since(leader_epoch),
            high_watermark=self.high_watermark,
            end_offset=end_offset,
            smallest_isr_size=self.smallest_isr_size,
            min_in_sync=self.min_in_sync,
        )

    # The in-sync set

    @property
    def in_sync(self) -> tuple[BrokerId, ...]:
        """The in-sync set: while we lead, the smallest that may be in force."""
        return self.isr if self.leadership is None else self.leadership.isr.smallest

    def propose_isr(
        self, log_end: Offset, now: float, max_lag_seconds: float, broker_epoch_of: BrokerEpochOf
    ) -> tuple[PartitionState, PartitionState] | None:
        """The state in force and the one to be written over it, when the set should change.

        The proposal is pending until a newer state is applied, or `withdraw_isr`.
        """
        leadership = self.leadership
        if leadership is None:
            return None
        former = leadership.state
        proposed = leadership.propose_shrink(log_end, now, max_lag_seconds, self.min_in_sync)
        if proposed is None:
            proposed = leadership.propose_expand(
                self.high_watermark,
                log_end,
                now,
                max_lag_seconds,
                self.min_in_sync,
                broker_epoch_of,
            )
        if proposed is None:
            return None
        self._note_isr()
        return former, proposed

    def withdraw_isr(self, former: PartitionState) -> None:
        """The proposal over this state is surely not in force. `advance` is next."""
        if self.leadership is not None:
            self.leadership.withdraw(former.version)
            self._note_isr()

    # Followers

    def require_leadership(self, follower: BrokerId, current_leader_epoch: int) -> Leadership:
        """For a fetch of a follower; raises why it is none of this leader (ISR-2)."""
        leadership = self.leadership
        if leadership is None:
            raise NotLeaderError(f"{self.topic_partition} is led by broker {self.leader_id}")
        if current_leader_epoch < 0:
            raise FencedLeaderEpochError(f"a follower of {self.topic_partition} named no epoch")
        self.check_epoch(current_leader_epoch)
        if follower not in leadership.progress:
            # It may have been added by what has not been read here yet.
            raise UnknownLeaderEpochError(
                f"broker {follower} has no replica of {self.topic_partition}"
            )
        return leadership

    def note_fetch(
        self, follower: BrokerId, fetch: FollowerFetch, broker_epoch: int, log_start: Offset
    ) -> FetchNews | None:
        """Take note of a fetch that agrees with our log; None if it does not count (ISR-2)."""
        leadership = self.leadership
        if leadership is None:
            return None
        former = leadership.progress[follower]
        former_until = leadership.joining_until
        if not leadership.note_fetch(follower, fetch, broker_epoch):
            return None
        until = leadership.joining_until
        has_committed = fetch.offset != former.log_end_offset and self.advance(
            log_start, fetch.leader_end_offset
        )
        return FetchNews(
            has_committed,
            fetch.log_start_offset != former.log_start_offset,
            leadership.may_expand_by(follower, self.high_watermark),
            None if until == former_until else until,
        )

    def is_at_rest(
        self, follower: BrokerId, offset: int, log_start: int, broker_epoch: int, log_end: Offset
    ) -> bool:
        """Whether the same fetch of a follower, repeated, finds and tells nothing until something
        happens here."""
        leadership = self.leadership
        return (
            leadership is not None
            and offset == log_end
            and leadership.is_at_rest(follower, offset, log_start, broker_epoch)
        )

    def note_idle(self, follower: BrokerId, until: float) -> None:
        """A follower at rest has asked for the end of the log until a time (ISR-2)."""
        if self.leadership is not None:
            self.leadership.note_idle(follower, until)

    def give_up_joining(self, until: float) -> None:
        """Wait no longer for the follower that was to come until then. `advance` is next."""
        if self.leadership is not None:
            self.leadership.give_up_joining(until)

    def forget_follower(self, follower: BrokerId) -> None:
        """Its broker went or was restarted (ISR-2)."""
        if self.leadership is not None:
            self.leadership.forget(follower)

    def broker_epoch_at_fetch(self, follower: BrokerId) -> int:
        """Under which epoch of its broker a follower made the progress that counts."""
        known = None if self.leadership is None else self.leadership.progress.get(follower)
        return -1 if known is None else known.broker_epoch

    def caught_up_followers(self, log_end: Offset) -> tuple[BrokerId, ...]:
        """The followers that may lead next and have all that is in the log."""
        return () if self.leadership is None else self.leadership.followers_at(log_end)

    def low_watermark(self, log_start: Offset, broker_epoch_of: BrokerEpochOf) -> Offset:
        """Before it, records are deleted in every replica whose broker lives."""
        if self.leadership is None:
            return log_start
        return self.leadership.low_watermark(log_start, broker_epoch_of)

    def find_read_replica(
        self, client_rack: str, racks: Mapping[BrokerId, str | None], offset: int
    ) -> BrokerId | None:
        """The follower that a consumer in a rack should read from (KIP-392), None for us.

        `racks` has the living brokers.
        """
        if self.leadership is None or not self.has_followers:
            return None
        return choose_read_replica(
            self.leadership.readable_followers(racks),
            client_rack=client_rack,
            leader_rack=racks.get(self.broker_id),
            fetch_offset=offset,
        )


SUSPICIOUS_REPEATS = 3
"""So often has a follower asked for the same records when their bytes are looked at."""

JOINING_SECONDS = 1.0
"""So long does the high watermark wait for a follower that is about to come in."""
_PAUSE_SECONDS = 30.0
"""After it has waited in vain."""

BrokerEpochOf = Callable[[BrokerId], int]

_NOBODY = FollowerProgress()


class Leadership:
    """See the module. `progress` has every other replica, and nobody else."""

    def __init__(
        self, broker_id: BrokerId, state: PartitionState, *, start_offset: Offset, now: float
    ) -> None:
        self.broker_id = broker_id
        self.epoch: LeaderEpoch = state.leader_epoch
        self.start_offset = start_offset  # of the epoch: what is before it was there already
        self.state = state
        self.isr: IsrState = Committed(isr=state.isr)
        self.progress: dict[BrokerId, FollowerProgress] = {}
        self._given: dict[BrokerId, tuple[int, int]] = {}  # last offset with records, how often
        self._joining: BrokerId | None = None  # the high watermark waits for it
        self._joining_until = 0.0
        self._not_before: dict[BrokerId, float] = {}  # until then it is not waited for again
        self.set_replicas(state.replicas, now)

    def update(self, state: PartitionState, now: float) -> None:
        """A newer state of the same epoch: whatever was proposed is decided (ISR-3).

        Who is not in the set has to fetch again before it may come in: it may have left by itself,
        or it was no replica for a while, and so has thrown its log away. Who comes in has time to
        show up, as at the beginning of an epoch.
        """
        for broker, known in tuple(self.progress.items()):
            if broker not in state.isr:
                self.forget(broker)
            elif broker not in self.state.isr:
                self.progress[broker] = join_isr(known, now)
        self.state = state
        self.isr = Committed(isr=state.isr)
        self._joining = None
        self.set_replicas(state.replicas, now)

    def set_replicas(self, replicas: tuple[BrokerId, ...], now: float) -> None:
        """The replicas are written elsewhere than the rest of the state."""
        self.state = replace(self.state, replicas=replicas)
        self.progress = {
            broker: self.progress.get(broker)
            or begin_progress(in_sync=broker in self.state.isr, now=now)
            for broker in replicas
            if broker != self.broker_id
        }

    # Followers

    def note_fetch(self, follower: BrokerId, fetch: FollowerFetch, broker_epoch: int) -> bool:
        """Take note of a fetch that agrees with our log; whether it counts (ISR-2).

        `broker_epoch` is that of the follower's broker now, -1 if it does not live.
        """
        known = self.progress.get(follower)
        if known is None or fetch.broker_epoch < 0:
            return False
        if fetch.broker_epoch != broker_epoch:
            return False
        self.progress[follower] = note_fetch(known, fetch)
        self._consider_joining(follower, known, fetch)
        return True

    def note_idle(self, follower: BrokerId, until: float) -> None:
        """A follower that is at rest has asked for the log's end until a time (ISR-2)."""
        known = self.progress.get(follower)
        if known is not None:
            self.progress[follower] = note_idle(known, until)

    def is_at_rest(self, follower: BrokerId, offset: int, log_start: int, epoch: int) -> bool:
        """Whether a follower in sync that goes on fetching from there tells nothing new.

        One that is out of the set is looked at with every fetch: it may come in.
        """
        known = self.progress.get(follower, _NOBODY)
        return (
            known.log_end_offset == offset
            and known.log_start_offset == log_start
            and known.broker_epoch == epoch
            and follower in self.isr.isr
        )

    def _consider_joining(
        self, follower: BrokerId, former: FollowerProgress, fetch: FollowerFetch
    ) -> None:
        """Have the high watermark wait for a follower that is only one fetch behind it.

        Others that are nearer move it on with every fetch of theirs, and so a follower on a longer
        way would never be seen at the high watermark, though it is always close behind.
        """
        if (
            self._joining is None
            and follower not in self.isr.largest
            and fetch.at >= self._not_before.get(follower, fetch.at)
            and self.start_offset <= fetch.offset < fetch.high_watermark
            and is_one_fetch_behind(former, fetch)
        ):
            self._joining = follower
            self._joining_until = fetch.at + JOINING_SECONDS

    @property
    def joining_until(self) -> float | None:
        """How long the high watermark waits for a follower that is not in the set, if it does."""
        return None if self._joining is None else self._joining_until

    def give_up_joining(self, until: float) -> None:
        """Wait no longer for the one that was to come until then."""
        if self._joining is not None and self._joining_until == until:
            self._not_before[self._joining] = until + _PAUSE_SECONDS
            self._joining = None

    def note_given(self, follower: BrokerId, offset: int) -> bool:
        """Records were sent from an offset on; whether it has happened suspiciously often."""
        former_offset, count = self._given.get(follower, (-1, 0))
        count = count + 1 if offset == former_offset else 1
        self._given[follower] = (offset, 0 if count == SUSPICIOUS_REPEATS else count)
        return count == SUSPICIOUS_REPEATS

    def forget(self, follower: BrokerId) -> None:
        """The follower's broker went or was restarted."""
        known = self.progress.get(follower)
        if known is not None:
            self.progress[follower] = forget_log(known)

    def in_sync_ends(self) -> list[Offset]:
        """Log ends of the followers in the largest set that may be in force (ISR-1), and of the
        one that is about to come in."""
        progress = self.progress
        ends = [
            progress.get(broker, _NOBODY).log_end_offset
            for broker in self.isr.largest
            if broker != self.broker_id
        ]
        if self._joining is not None:
            ends.append(progress.get(self._joining, _NOBODY).log_end_offset)
        return ends

    def followers_at(self, offset: int) -> tuple[BrokerId, ...]:
        """The followers that may lead next, in sync or eligible, and have everything before an
        offset."""
        return tuple(
            broker
            for broker in (*self.isr.smallest, *self.state.elr)
            if broker != self.broker_id
            and self.progress.get(broker, _NOBODY).log_end_offset >= offset
        )

    def low_watermark(self, own_log_start_offset: Offset, broker_epoch_of: BrokerEpochOf) -> Offset:
        """The smallest log start of the replicas whose brokers live; -1 while one is unknown."""
        starts = [
            known.log_start_offset
            for broker, known in self.progress.items()
            if broker_epoch_of(broker) != -1
        ]
        return min(own_log_start_offset, *starts) if starts else own_log_start_offset

    def readable_followers(
        self, racks: Mapping[BrokerId, str | None]
    ) -> dict[BrokerId, ReadableReplica]:
        """The followers that consumers may read from; `racks` has the living brokers."""
        return {
            broker: ReadableReplica(
                rack=racks[broker],
                log_start_offset=known.log_start_offset,
                log_end_offset=known.log_end_offset,
                caught_up_at=known.caught_up_at,
            )
            for broker, known in self.progress.items()
            if broker in racks and broker in self.isr.isr
        }

    # The in-sync set

    def may_expand_by(self, follower: BrokerId, high_watermark: int) -> bool:
        """A quick look, after each fetch of a follower that is not in the set."""
        if follower in self.isr.isr or not isinstance(self.isr, Committed):
            return False
        known = self.progress.get(follower, _NOBODY)
        return known.log_end_offset != UNKNOWN_OFFSET and has_caught_up(
            known, high_watermark=high_watermark, epoch_start_offset=self.start_offset
        )

    def may_commit(self, min_in_sync: int) -> bool:
        """Whether the high watermark may move: enough are in sync, and nobody else is promised to
        have everything (ELR-1)."""
        return not self.state.elr and len(self.isr.smallest) >= min_in_sync

    def propose_expand(
        self,
        high_watermark: int,
        log_end_offset: int,
        now: float,
        max_lag_seconds: float,
        min_in_sync: int,
        broker_epoch_of: BrokerEpochOf,
    ) -> PartitionState | None:
        commits = self.may_commit(min_in_sync)

        def keeps_up(known: FollowerProgress) -> bool:
            return commits or is_caught_up(known, log_end_offset, now, max_lag_seconds)

        pending = plan_expand(
            self.isr,
            self.state.replicas,
            self.progress,
            high_watermark=high_watermark,
            epoch_start_offset=self.start_offset,
            broker_epoch_of=broker_epoch_of,
            keeps_up=keeps_up,
        )
        if pending is None:
            has_eligible = bool(self.state.elr)
            pending = plan_settling(self.isr, has_eligible=has_eligible, min_in_sync=min_in_sync)
        return self._propose(pending, min_in_sync)

    def propose_shrink(
        self, log_end_offset: int, now: float, max_lag_seconds: float, min_in_sync: int
    ) -> PartitionState | None:
        pending = plan_shrink(
            self.isr,
            self.broker_id,
            self.progress,
            leader_end_offset=log_end_offset,
            now=now,
            max_lag_seconds=max_lag_seconds,
        )
        return self._propose(pending, min_in_sync)

    def _propose(self, pending: IsrState | None, min_in_sync: int) -> PartitionState | None:
        if pending is None:
            return None
        self.isr = pending
        if self._joining in pending.largest:
            self._joining = None
        return with_in_sync_by_leader(self.state, proposed_isr(pending), min_in_sync=min_in_sync)

    def withdraw(self, version: int) -> None:
        """The proposal over this version is not in force, and never will be."""
        if self.state.version == version:
            self.isr = Committed(isr=self.state.isr)


# How far the log is committed: every in-sync replica has it (HW-1, HW-2)


def advance_high_watermark(
    current: Offset, leader_end: Offset, in_sync_ends: Collection[Offset]
) -> Offset:
    """The new high watermark of a leader; it never goes back (HW-2).

    `in_sync_ends` are the log end offsets of the followers in the largest in-sync set that may be
    in force (ISR-1), -1 for one that has not been heard of in this epoch; a leader alone commits
    what it has written.
    """
    committed = min(leader_end, *in_sync_ends) if in_sync_ends else leader_end
    return committed if committed > current else current


def follow_high_watermark(current: Offset, leaders: int, log_end: Offset) -> Offset:
    """The new high watermark of a follower: its leader's, as far as its own log reaches.

    It goes on only: an answer that was overtaken, or a new leader that has yet to learn how far
    the log was committed, takes nothing back.
    """
    return max(current, Offset(min(leaders, log_end)))


def restored_high_watermark(known: int, log_start: Offset, log_end: Offset) -> Offset:
    """What was written down or known before, within a log that was opened or truncated (HW-1)."""
    return Offset(min(max(known, log_start), log_end))


# When a batch that was appended with acks=all may be acknowledged (REP-3)


class Acknowledgement(Enum):
    """What can be said to the producer."""

    PENDING = auto()
    """Not every in-sync replica has it yet."""
    COMMITTED = auto()
    TOO_FEW = auto()
    """It is committed, by fewer replicas than `min.insync.replicas` asks for."""
    LEADER_CHANGED = auto()
    """Somebody else led meanwhile, or does now, and says whether the batch stays."""


def decide_acknowledgement(
    *,
    leads_epoch: bool,
    high_watermark: int,
    end_offset: int,
    smallest_isr_size: int,
    min_in_sync: int,
) -> Acknowledgement:
    """`leads_epoch`: this broker leads since the epoch in which it appended, without a break."""
    if not leads_epoch:
        return Acknowledgement.LEADER_CHANGED
    if high_watermark < end_offset:
        return Acknowledgement.PENDING
    if smallest_isr_size < min_in_sync:
        return Acknowledgement.TOO_FEW
    return Acknowledgement.COMMITTED


# Which replica a consumer with a rack should read from (KIP-392)


RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadableReplica:
    """A living follower, as far as its leader knows it."""

    rack: str | None
    log_start_offset: int
    log_end_offset: int
    caught_up_at: float


def choose_read_replica(
    followers: Mapping[BrokerId, ReadableReplica],
    *,
    client_rack: str,
    leader_rack: str | None,
    fetch_offset: int,
) -> BrokerId | None:
    """The follower in the client's rack that has the most, or None to read from the leader."""
    if not client_rack or leader_rack == client_rack:
        return None
    near = [
        (replica.log_end_offset, replica.caught_up_at, -broker)
        for broker, replica in followers.items()
        if replica.rack == client_rack
        and 0 <= replica.log_start_offset <= fetch_offset <= replica.log_end_offset
    ]
    return BrokerId(-max(near)[2]) if near else None
