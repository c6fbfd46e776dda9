"""How far a follower has come, as its leader sees it (ISR-2).

A follower fetches at its log end, so its fetch offset says what it has. When it asked for records
at or behind the end that the log had at its last fetch, it was caught up at that earlier time: a
busy leader's log always has grown meanwhile, and nobody ever asks for its very end.

Times are monotonic seconds. A rule: values in, values out.
"""

from __future__ import annotations

from typing import NamedTuple

from moldau.model import Offset

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


def come_in(progress: FollowerProgress, now: float) -> FollowerProgress:
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
        caught_up_at=max(progress.caught_up_at, until),
        fetched_at=max(progress.fetched_at, until),
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
