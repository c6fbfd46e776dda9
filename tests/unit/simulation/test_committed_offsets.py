"""Finding a commit in a log, and counting in-sync sets over time."""

from __future__ import annotations

from moldau.coordinators.groups.rules.records import CommittedOffset, OffsetRecord, encode
from moldau.model import TopicPartition
from moldau.records.record_batch import build_batch
from moldau.simulation.history import StoredBatch
from moldau.simulation.observer import find_commit

PARTITION = TopicPartition("t", 0)


def batch(offset: int, group: str, position: int) -> StoredBatch:
    record = OffsetRecord(group, *PARTITION, CommittedOffset(position, -1, "", 0))
    return StoredBatch(offset, offset + 1, 0, bytes(build_batch([(0, *encode(record), ())])))


LOG = [batch(0, "g", 5), batch(1, "other", 9), batch(2, "g", 6), batch(3, "g", 8)]


def test_the_first_commit_of_a_position_counts() -> None:
    assert find_commit(LOG, "g", PARTITION, 5) == 1
    assert find_commit(LOG, "g", PARTITION, 6) == 3


def test_a_later_position_stands_for_one_that_was_compacted_away() -> None:
    assert find_commit(LOG, "g", PARTITION, 7) == 4


def test_what_is_not_there_is_not_found() -> None:
    assert find_commit(LOG, "g", PARTITION, 9) is None
    assert find_commit(LOG, "g", TopicPartition("t", 1), 5) is None
    assert find_commit(LOG, "nobody", PARTITION, 5) is None
