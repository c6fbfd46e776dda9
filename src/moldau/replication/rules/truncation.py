"""Where two logs part, and how far a follower goes back when its log is not its leader's.

The leader names an epoch and where it ends there. Both logs agree up to the smaller end of that
epoch, as far as is known; the next fetch asks again with what is left, and so the logs meet
(REP-2). Going back further than that, to the high watermark for one, would throw away records that
may be the last copies of what is committed.

A compacted log is another matter. Where it is to be cut below what compaction has compared, records
are missing before the cut, since others have replaced them that go now: after an unclean election,
for only then is something cut off that was committed. The leader still has them, so all of the log
is copied again (REP-8).

A rule: values in, values out.
"""

from __future__ import annotations

from moldau.model import Offset
from moldau.storage.rules.epoch_cache import UNDEFINED_OFFSET, EpochCache, EpochEnd


def find_divergence(
    epochs: EpochCache, log_end_offset: int, fetch_offset: int, last_fetched_epoch: int
) -> EpochEnd | None:
    """Where a reader's history leaves ours, if it does (KIP-595): our largest epoch up to its last
    one, and its end here. A reader that names no epoch (-1) is believed."""
    if last_fetched_epoch < 0:
        return None
    found = epochs.end_offset_for(last_fetched_epoch, log_end_offset)
    if found.epoch < 0 or (found.epoch == last_fetched_epoch and found.end_offset >= fetch_offset):
        return None
    return found


def find_missed_deletions(
    log_start_offset: int, dropped_offset: int, fetch_offset: int, last_fetched_epoch: int
) -> EpochEnd | None:
    """Where a follower has to go back to that was away for longer than tombstones are kept.

    What it has from before may have been deleted since, and the leader cannot tell it any more: the
    tombstone, or the end marker of a transaction, is gone. So it copies everything again (REP-9).
    Nobody in sync ever ends before: only what is committed is compacted.
    """
    if last_fetched_epoch < 0 or not log_start_offset < fetch_offset < dropped_offset:
        return None
    return EpochEnd(last_fetched_epoch, log_start_offset)


def decide_truncation(
    epochs: EpochCache, log_end_offset: int, diverging_epoch: int, diverging_end_offset: int
) -> Offset:
    """The offset at which the follower's log has to end.

    `diverging_epoch` is the leader's largest epoch up to the follower's last one.
    """
    _, own_end_offset = epochs.end_offset_for(diverging_epoch, log_end_offset)
    if own_end_offset == UNDEFINED_OFFSET:  # all of our epochs are older
        own_end_offset = log_end_offset
    return Offset(min(diverging_end_offset, own_end_offset, log_end_offset))


def find_cut(
    offset: int, log_start_offset: int, cleaned_offset: int, compared_offset: int
) -> Offset:
    """Where a log that has to end at an offset is cut: at its start, if compaction has been past
    the offset, or is about to be."""
    is_compacted = offset < max(cleaned_offset, compared_offset)
    return Offset(min(offset, log_start_offset) if is_compacted else offset)


def find_last_epoch(epochs: EpochCache, log_start_offset: int, log_end_offset: int) -> int:
    """The epoch of a log's last record; -1 for an empty log, which cannot diverge.

    An epoch that began without writing anything is not in the log.
    """
    if log_end_offset <= log_start_offset:
        return -1
    epoch = epochs.find_epoch_at(log_end_offset - 1)
    return -1 if epoch is None else epoch


def find_earlier_start(
    log_start_offset: int, log_end_offset: int, base_offset: int, last_offset: int
) -> Offset | None:
    """Where an empty log has to begin so that the first batch fits in; None where it does anyway.

    DeleteRecords may let a leader's log begin in the middle of a batch, which it can only send as a
    whole. A replica that has nothing yet, and begins at the same offset, begins with that batch.
    """
    is_empty = log_start_offset == log_end_offset
    return Offset(base_offset) if is_empty and base_offset < log_end_offset <= last_offset else None
