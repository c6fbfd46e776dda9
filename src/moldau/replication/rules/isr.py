"""The in-sync set of a partition, as its leader sees it (ISR-1, ISR-3).

A change is proposed to the store and is in force once it is written there; until the answer is
definite, the set may be the old one or the new one. So a state knows two sets: the largest that may
be in force, which the high watermark counts, and the smallest, which `min.insync.replicas` counts.
One proposal at a time: while a change is pending, none is planned.

    Committed ── propose ──> PendingExpand, PendingShrink ── newer state read ──> Committed

A rule: values in, values out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from moldau.model import BrokerId
from moldau.replication.rules.follower_progress import FollowerProgress, is_caught_up


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
