"""The followers of a partition that this broker leads: what they read, and how far they are.

What a follower fetches tells what it has. So records are committed here (`advance`), and the
in-sync set is proposed here. `rules.replica_state` decides both.

A shell, owned by the event loop: no method awaits. What this broker does where it is a follower
itself is in `follower`.
"""

from __future__ import annotations

from collections.abc import Callable

from moldau.clock import Clock, Timer
from moldau.cluster.rules.metadata_image import PartitionState
from moldau.model import BrokerId, Offset, TopicPartition
from moldau.replication.partition_listeners import PartitionListeners
from moldau.replication.partition_reads import FollowedRead, PartitionRead
from moldau.replication.rules.follower_progress import FollowerFetch
from moldau.replication.rules.replica_state import ReplicaState
from moldau.replication.rules.truncation import find_divergence, find_missed_deletions
from moldau.storage.log import Log
from moldau.storage.rules.epoch_cache import EpochEnd
from moldau.storage.segment_search import LogRead


class Followers:
    """See the module.

    `broker_epoch_of` tells the epoch of a broker that lives, -1 of one that does not;
    `on_catch_up` is called when a follower may come into the in-sync set, `on_suspicion` when one
    cannot use the records at an offset.
    """

    __slots__ = (
        "_broker_epoch_of",
        "_clock",
        "_copying",
        "_joining",
        "_listeners",
        "_log",
        "_on_catch_up",
        "_on_suspicion",
        "_state",
    )

    def __init__(
        self,
        log: Log,
        state: ReplicaState,
        listeners: PartitionListeners,
        *,
        clock: Clock,
        broker_epoch_of: Callable[[BrokerId], int],
        on_catch_up: Callable[[], None],
        on_suspicion: Callable[[Offset], None],
    ) -> None:
        self._log = log
        self._state = state
        self._listeners = listeners
        self._clock = clock
        self._broker_epoch_of = broker_epoch_of
        self._on_catch_up = on_catch_up
        self._on_suspicion = on_suspicion
        # Who has begun at the start of the log and is not up to what is committed, with the broker
        # epoch in which it did: one that was away since may have missed something.
        self._copying: dict[BrokerId, int] | None = None
        self._joining: Timer | None = None  # ends the wait for one that comes into the set

    @property
    def topic_partition(self) -> TopicPartition:
        return self._log.topic_partition

    # Reading

    def read(
        self, wanted: FollowedRead, max_bytes: int, *, min_one: bool, counts: bool = True
    ) -> PartitionRead:
        """A follower's read, up to the log's end.

        It tells how far the follower has come, if it `counts`: not when a request that was waiting
        looks again.
        """
        log, state = self._log, self._state
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
                    self._on_suspicion(Offset(wanted.offset))
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
        log, copying = self._log, self._copying
        if wanted.offset >= max(log.dropped_offset, self._state.high_watermark):
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
        state, log = self._state, self._log
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
            self._wait_for(news.waits_until)
        self._listeners.progress(news.has_committed, was_settled)
        if news.has_deleted:
            self._listeners.changed()
        if news.may_join:
            self._on_catch_up()

    def is_at_rest(self, wanted: FollowedRead) -> bool:
        """Whether the same fetch, repeated, finds and tells nothing until something happens here.

        Who leaves it out tells `ReplicaState.note_idle` when something did.
        """
        return self._state.is_at_rest(
            wanted.replica,
            wanted.offset,
            wanted.log_start_offset,
            wanted.broker_epoch,
            self._log.log_end_offset,
        )

    # How far they are

    @property
    def low_watermark(self) -> Offset:
        """Before it, records are deleted in every replica whose broker lives."""
        return self._state.low_watermark(self._log.log_start_offset, self._broker_epoch_of)

    def caught_up(self) -> tuple[BrokerId, ...]:
        """Those that may lead next and have all that is in the log."""
        return self._state.caught_up_followers(self._log.log_end_offset)

    # Committing

    def advance(self) -> None:
        """Commit what is in sync by now, and tell of it."""
        state, log = self._state, self._log
        was_settled = state.is_settled
        has_committed = state.advance(log.log_start_offset, log.log_end_offset)
        self._listeners.progress(has_committed, was_settled)

    def _wait_for(self, until: float) -> None:
        """The high watermark waits for a follower, and not for ever."""

        def give_up() -> None:
            self._state.give_up_joining(until)
            self.advance()

        self.stop_waiting()
        self._joining = self._clock.call_later(until - self._clock.monotonic(), give_up)

    def stop_waiting(self) -> None:
        """This broker does not lead any more."""
        if self._joining is not None:
            self._joining.cancel()
            self._joining = None

    # The in-sync set

    def propose_isr(self, max_lag_seconds: float) -> tuple[PartitionState, PartitionState] | None:
        """The state in force and the one to be written over it, when the set should change.

        The proposal is pending until a newer state is applied, or `withdraw_isr`.
        """
        return self._state.propose_isr(
            self._log.log_end_offset,
            self._clock.monotonic(),
            max_lag_seconds,
            self._broker_epoch_of,
        )

    def withdraw_isr(self, former: PartitionState) -> None:
        """The proposal over this state is surely not in force."""
        self._state.withdraw_isr(former)
        self.advance()
