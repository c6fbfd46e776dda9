"""One epoch in which this broker leads a partition: its followers and its in-sync set.

A rule with state, owned by its `replica_state`: `follower_progress` says how far a follower is,
`isr` who comes into the set and who goes. When the epoch is over it is thrown away, and with it all
that was known about the followers (ISR-2).

`broker_epoch_of` tells the epoch of a broker that lives, -1 of one that does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from moldau.cluster.rules.leader_election import with_in_sync_by_leader
from moldau.cluster.rules.metadata_image import PartitionState
from moldau.model import BrokerId, LeaderEpoch, Offset
from moldau.replication.rules.follower_progress import (
    UNKNOWN_OFFSET,
    FollowerFetch,
    FollowerProgress,
    begin_progress,
    come_in,
    forget_log,
    is_caught_up,
    is_one_fetch_behind,
    note_fetch,
    note_idle,
)
from moldau.replication.rules.isr import (
    Committed,
    IsrState,
    has_caught_up,
    plan_expand,
    plan_settling,
    plan_shrink,
    proposed_isr,
)
from moldau.replication.rules.read_replica import ReadableReplica

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
        self,
        broker_id: BrokerId,
        state: PartitionState,
        *,
        start_offset: Offset,
        now: float,
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
                self.progress[broker] = come_in(known, now)
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
