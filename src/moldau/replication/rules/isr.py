"""The in-sync set of a partition, and how far its followers are (ISR-1, ISR-2, ISR-3).

A change is proposed to the store and is in force once it is written there; until the answer is
definite, the set may be the old one or the new one. So a state knows two sets: the largest that may
be in force, which the high watermark counts, and the smallest, which `min.insync.replicas` counts.
One proposal at a time: while a change is pending, none is planned.

    Committed -- propose --> PendingExpand, PendingShrink -- newer state read --> Committed

A follower fetches at its log end, so its fetch offset says what it has. When it asked for records
at or behind the end that the log had at its last fetch, it was caught up at that earlier time: a
busy leader's log always has grown meanwhile, and no follower ever fetches at its very end.

Times are monotonic seconds. Rules: values in, values out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from moldau.cluster.rules.leader_election import PlannedState
from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.model import BrokerId, Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The set that the store holds; no change of ours is under way."""

    isr: tuple[BrokerId, ...]

    @property
    def largest(self) -> tuple[BrokerId, ...]:
        return self.isr

    @property
    def smallest(self) -> tuple[BrokerId, ...]:
        return self.isr


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingExpand:
    """Followers were proposed for the set. They count for the high watermark already: should the
    store have taken them in, one of them may lead next."""

    isr: tuple[BrokerId, ...]
    new: tuple[BrokerId, ...]

    @property
    def largest(self) -> tuple[BrokerId, ...]:
        return (*self.isr, *self.new)

    @property
    def smallest(self) -> tuple[BrokerId, ...]:
        return self.isr


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingShrink:
    """Followers were proposed to leave. They count for the high watermark still: as long as the
    store has them in, one of them may lead next."""

    isr: tuple[BrokerId, ...]
    out: tuple[BrokerId, ...]

    @property
    def largest(self) -> tuple[BrokerId, ...]:
        return self.isr

    @property
    def smallest(self) -> tuple[BrokerId, ...]:
        return tuple(broker for broker in self.isr if broker not in self.out)


IsrState = Committed | PendingExpand | PendingShrink


def proposed_isr(state: IsrState) -> tuple[BrokerId, ...]:
    """What the store is asked to hold."""
    return state.smallest if isinstance(state, PendingShrink) else state.largest


def has_caught_up(
    progress: FollowerProgress, *, high_watermark: int, epoch_start_offset: int
) -> bool:
    """Whether a follower may come in: it has all that is committed, and has reached this epoch.

    Short of the epoch's start the high watermark may be old, and so be no measure.
    """
    return progress.log_end_offset >= max(high_watermark, epoch_start_offset)


def plan_expand(
    state: IsrState,
    replicas: Collection[BrokerId],
    progress: Mapping[BrokerId, FollowerProgress],
    *,
    high_watermark: int,
    epoch_start_offset: int,
    broker_epoch_of: Callable[[BrokerId], int],
    keeps_up: Callable[[FollowerProgress], bool],
) -> PendingExpand | None:
    """Take in the followers that have caught up and whose broker lives, under the epoch in which
    it fetched.

    `keeps_up` is asked of those that have reached the high watermark, too: while too few are in
    sync it stands still (ELR-1), and who has reached it might be let go again at once.
    """
    if not isinstance(state, Committed):
        return None
    new = tuple(
        broker
        for broker, known in progress.items()
        if broker not in state.isr
        and broker in replicas
        and known.broker_epoch != -1
        and known.broker_epoch == broker_epoch_of(broker)
        and has_caught_up(
            known, high_watermark=high_watermark, epoch_start_offset=epoch_start_offset
        )
        and keeps_up(known)
    )
    return PendingExpand(isr=state.isr, new=new) if new else None


def plan_settling(state: IsrState, *, has_eligible: bool, min_in_sync: int) -> PendingExpand | None:
    """The same set once more, where eligible leaders are left over although enough are in sync:
    `min.insync.replicas` was lowered. Until they are gone nothing is committed (ELR-1)."""
    if not has_eligible or not isinstance(state, Committed) or len(state.isr) < min_in_sync:
        return None
    return PendingExpand(isr=state.isr, new=())


def plan_shrink(
    state: IsrState,
    leader: BrokerId,
    progress: Mapping[BrokerId, FollowerProgress],
    *,
    leader_end_offset: int,
    now: float,
    max_lag_seconds: float,
) -> PendingShrink | None:
    """Let go of the followers that have not been caught up for too long."""
    if not isinstance(state, Committed):
        return None
    out = tuple(
        broker
        for broker in state.isr
        if broker != leader
        and (
            broker not in progress
            or not is_caught_up(progress[broker], leader_end_offset, now, max_lag_seconds)
        )
    )
    return PendingShrink(isr=state.isr, out=out) if out else None


# A proposal is made over the state that the leader knows. Between that and the write others may
# have written, and brokers may have been restarted.


def joining_brokers(planned: PlannedState) -> tuple[BrokerId, ...]:
    """Those that a proposal takes in."""
    return tuple(broker for broker in planned.state.isr if broker not in planned.former.isr)


def takes_in_restarted(
    planned: PlannedState,
    registered_epochs: Mapping[BrokerId, int],
    epoch_at_fetch: Callable[[BrokerId], int],
) -> bool:
    """Whether a proposal would take in a broker which was restarted since it fetched (ISR-2).

    The image may not know of that yet. A broker that comes back with a hole writes every state
    before it registers; so either our write is overtaken by that, or its state is the one we write
    over, and then its former registration cannot be read any more.
    """
    return any(
        registered_epochs.get(broker, -1) != epoch_at_fetch(broker)
        for broker in joining_brokers(planned)
    )


def is_surely_void(planned: PlannedState, image: MetadataImage) -> bool:
    """Whether a proposal that was overtaken is not in force: the store still has what it was over.

    A newer state may be the proposal itself, of which no answer came, or what another has written
    over it since. So it is left pending, and decided when that state is applied.
    """
    topic = image.topics.get(planned.topic.name)
    if topic is None or topic.topic_id != planned.topic.topic_id:
        return False  # the partition goes, too
    state = topic.find_partition(planned.partition)
    return state is not None and state.version == planned.former.version


UNKNOWN_OFFSET = Offset(-1)


class FollowerProgress(NamedTuple):
    """One follower in one leader epoch. Invariant: `log_end_offset` is -1 before its first fetch
    that counts, and `broker_epoch` is that of the fetches that counted."""

    log_end_offset: Offset = UNKNOWN_OFFSET
    log_start_offset: Offset = UNKNOWN_OFFSET
    caught_up_at: float = float("-inf")
    fetched_at: float = float("-inf")
    leader_end_at_fetch: Offset = UNKNOWN_OFFSET
    high_watermark_at_fetch: Offset = UNKNOWN_OFFSET
    broker_epoch: int = -1


class FollowerFetch(NamedTuple):
    """A fetch of a follower, as far as it tells something about its log."""

    offset: Offset
    log_start_offset: Offset
    broker_epoch: int
    leader_end_offset: Offset
    high_watermark: Offset
    at: float


def begin_progress(*, in_sync: bool, now: float) -> FollowerProgress:
    """What is known when an epoch begins; members of the in-sync set get time to show up."""
    return FollowerProgress(caught_up_at=now if in_sync else float("-inf"))


def join_isr(progress: FollowerProgress, now: float) -> FollowerProgress:
    """A follower is in the in-sync set from now on, whoever has put it there."""
    return progress._replace(caught_up_at=max(progress.caught_up_at, now))


def note_fetch(progress: FollowerProgress, fetch: FollowerFetch) -> FollowerProgress:
    """The progress after a fetch that counts."""
    caught_up_at = progress.caught_up_at
    if progress.broker_epoch not in (-1, fetch.broker_epoch):
        caught_up_at = float("-inf")  # it was restarted: what it was before is no merit
    elif progress.broker_epoch != -1 and fetch.offset >= progress.leader_end_at_fetch:
        caught_up_at = max(caught_up_at, progress.fetched_at)
    if fetch.offset >= fetch.leader_end_offset:
        caught_up_at = fetch.at
    return FollowerProgress(
        log_end_offset=fetch.offset,
        log_start_offset=fetch.log_start_offset,
        caught_up_at=caught_up_at,
        fetched_at=fetch.at,
        leader_end_at_fetch=fetch.leader_end_offset,
        high_watermark_at_fetch=fetch.high_watermark,
        broker_epoch=fetch.broker_epoch,
    )


def note_idle(progress: FollowerProgress, until: float) -> FollowerProgress:
    """The progress of a follower that was at the log's end, and has asked for it until a time.

    The same as `note_fetch` with what it said before, at that time: nothing has come meanwhile.
    """
    was_at_end = progress.log_end_offset >= progress.leader_end_at_fetch
    if progress.broker_epoch == -1 or not was_at_end:
        return progress
    return progress._replace(
        caught_up_at=max(progress.caught_up_at, until), fetched_at=max(progress.fetched_at, until)
    )


def is_one_fetch_behind(former: FollowerProgress, fetch: FollowerFetch) -> bool:
    """Whether a follower has got, with its last fetch, all that was committed by then."""
    return (
        former.broker_epoch == fetch.broker_epoch
        and former.log_end_offset != UNKNOWN_OFFSET
        and fetch.offset >= former.high_watermark_at_fetch
    )


def forget_log(progress: FollowerProgress) -> FollowerProgress:
    """The broker was restarted or went: what its log held is no longer known."""
    return progress._replace(
        log_end_offset=UNKNOWN_OFFSET,
        log_start_offset=UNKNOWN_OFFSET,
        leader_end_at_fetch=UNKNOWN_OFFSET,
        high_watermark_at_fetch=UNKNOWN_OFFSET,
        broker_epoch=-1,
    )


def is_caught_up(
    progress: FollowerProgress, leader_end_offset: int, now: float, max_lag_seconds: float
) -> bool:
    """Whether a follower may stay in sync: it has everything, or had not long ago."""
    if progress.log_end_offset >= leader_end_offset:
        return True
    return now - progress.caught_up_at <= max_lag_seconds
