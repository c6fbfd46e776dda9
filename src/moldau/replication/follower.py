"""What a follower does with its log: go on copying, or go back to where it and the leader part.

A shell, owned by the event loop. `rules.truncation` says how far to go back, `rules.replica_state`
what is committed; `replica_fetcher` asks the leader and calls this.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from moldau.metrics.figures import TopicTraffic
from moldau.model import LeaderEpoch, Offset, TopicPartition
from moldau.replication.partition_listeners import PartitionListeners
from moldau.replication.rules.replica_state import ReplicaState
from moldau.replication.rules.truncation import decide_truncation, find_cut, find_last_epoch
from moldau.storage.log import Log

_log = logging.getLogger("moldau.replication.fetcher")


class FollowPosition(NamedTuple):
    """Where a follower goes on: what it asks its leader for."""

    leader_epoch: LeaderEpoch
    offset: Offset
    last_epoch: int  # of the record before it, -1 when there is none
    log_start_offset: Offset


class Follower:
    """The log of one partition that this broker follows."""

    def __init__(
        self,
        log: Log,
        state: ReplicaState,
        listeners: PartitionListeners,
        traffic: TopicTraffic,
    ) -> None:
        self._log = log
        self._state = state
        self._listeners = listeners
        self._traffic = traffic

    @property
    def topic_partition(self) -> TopicPartition:
        return self._log.topic_partition

    def position(self) -> FollowPosition:
        log = self._log
        start, end = log.log_start_offset, log.log_end_offset
        last_epoch = find_last_epoch(log.epochs, start, end)
        return FollowPosition(self._state.leader_epoch, end, last_epoch, start)

    def is_at(self, position: FollowPosition) -> bool:
        """Whether an answer to a request from there can still be used."""
        state = self._state
        return (
            state.is_following
            and position.leader_epoch == state.leader_epoch
            and position.offset == self._log.log_end_offset
        )

    def append(self, records: memoryview) -> None:
        """Append what the leader sent; it is checked batch by batch before (REP-5)."""
        self._log.append_replicated(records, newest_epoch=self._state.leader_epoch)
        self._traffic.replication_bytes_in += len(records)

    def take_offsets(self, high_watermark: int, log_start_offset: int) -> None:
        """Take over what the leader says of the log, as far as it reaches here."""
        state, log = self._state, self._log
        has_committed = state.follow(high_watermark, log.log_start_offset, log.log_end_offset)
        log.producers.note_committed(state.high_watermark)
        if log_start_offset > log.log_start_offset:
            log.advance_start(min(log_start_offset, state.high_watermark))
        self._listeners.progress(has_committed, was_settled=state.is_settled)

    def find_divergence(self, epoch: int, end_offset: int) -> int:
        """Where our history and the leader's part."""
        log = self._log
        return decide_truncation(log.epochs, log.log_end_offset, epoch, end_offset)

    def truncate(self, offset: int) -> None:
        """Go back to an offset. Hold the partition's `truncating`."""
        state = self._state
        if offset < state.high_watermark:
            _log.error(
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
        log = self._log
        cut = find_cut(offset, log.log_start_offset, log.cleaned_offset, log.compared_offset)
        if cut < offset:
            _log.warning(
                "%s: compaction has removed records for the sake of others from offset %d on, "
                "which go: all of it is copied from the leader again",
                self.topic_partition,
                offset,
            )
        log.truncate_to(cut)
        self._restore_high_watermark()

    def start_anew(self, offset: int) -> None:
        """Throw everything away: the leader's log begins later. Hold `truncating`."""
        log = self._log
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
        self._state.restore(self._log.log_start_offset, self._log.log_end_offset)
        self._listeners.changed()
