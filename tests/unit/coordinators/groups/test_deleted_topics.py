"""Which topic a committed offset belongs to (GRP-10), and what becomes of those of deleted ones."""

from __future__ import annotations

from uuid import UUID

import pytest

from moldau.cluster.rules.metadata_image import DeletedTopic, MetadataImage, TopicState
from moldau.coordinators.groups.rules.commits import find_offsets
from moldau.coordinators.groups.rules.events import DeleteTopics, ExpireOffsets
from moldau.coordinators.groups.rules.groups import Groups
from moldau.coordinators.groups.rules.offsets import is_current, is_deleted
from moldau.coordinators.groups.rules.outcome import GroupLimits
from moldau.coordinators.groups.rules.records import (
    CommittedOffset,
    CoordinatorRecord,
    OffsetRecord,
    PendingOffsetRecord,
    TransactionEnd,
)
from moldau.model import TopicId

FORMER, PRESENT, UNKNOWN = (TopicId(UUID(int=number)) for number in (1, 2, 3))
DELETED_MS, CREATED_MS, NOW_MS = 2_000, 3_000, 4_000
BEFORE, BETWEEN, AFTER = 1_000, 2_500, 3_500

FORGETTING = MetadataImage(cluster_id="c")
"""Knows nothing of the topic: it vanished, or its deletion was long ago."""
GONE = FORGETTING.with_topics((), deleted={FORMER: DeletedTopic("t", DELETED_MS)})
MARKED = FORGETTING.with_topics((), deleting={"t": FORMER})


def topic(topic_id: TopicId, created_ms: int = CREATED_MS) -> TopicState:
    return TopicState(name="t", topic_id=topic_id, partitions=(), created_ms=created_ms)


RECREATED = GONE.with_topics([topic(PRESENT)])
RECREATED_AT_AN_UNKNOWN_TIME = GONE.with_topics([topic(PRESENT, created_ms=-1)])
OLD = FORGETTING.with_topics([topic(FORMER, created_ms=0)])
"""Of a coordinator that knows neither the deletion nor the topic that came after it."""
ADOPTED = FORGETTING.with_topics([topic(PRESENT)])
"""The store is new, and knows of no deletion."""


def committed(
    at_ms: int, topic_id: TopicId | None, offset: int = 100, *, names_topic_id: bool = False
) -> CommittedOffset:
    return CommittedOffset(offset, -1, "", at_ms, -1, topic_id, names_topic_id)


@pytest.mark.parametrize(
    ("image", "at_ms", "topic_id", "current", "deleted"),
    [
        (RECREATED, BEFORE, FORMER, False, True),
        (RECREATED, BETWEEN, FORMER, False, True),
        (RECREATED, AFTER, FORMER, True, False),
        (RECREATED, BEFORE, PRESENT, True, False),
        (RECREATED, AFTER, PRESENT, True, False),
        (RECREATED, BEFORE, UNKNOWN, False, False),
        (RECREATED, BEFORE, None, False, True),
        (RECREATED, BETWEEN, None, True, False),
        (RECREATED, AFTER, None, True, False),
        (RECREATED_AT_AN_UNKNOWN_TIME, BEFORE, FORMER, False, True),
        (RECREATED_AT_AN_UNKNOWN_TIME, AFTER, FORMER, False, False),
        (RECREATED_AT_AN_UNKNOWN_TIME, AFTER, UNKNOWN, False, False),
        (OLD, AFTER, FORMER, True, False),
        (OLD, AFTER, PRESENT, True, False),
        (OLD, AFTER, None, True, False),
        (ADOPTED, BEFORE, None, True, False),
        (MARKED, BEFORE, FORMER, False, False),
        (MARKED, BEFORE, None, False, False),
        (GONE, BEFORE, FORMER, False, True),
        (GONE, BETWEEN, FORMER, False, False),
        (GONE, BEFORE, None, False, True),
        (GONE, AFTER, None, True, False),
        (GONE, AFTER, PRESENT, True, False),
        (FORGETTING, BEFORE, FORMER, True, False),
        (FORGETTING, BEFORE, None, True, False),
    ],
)
def test_an_offset_belongs_to_the_topic_of_its_id_or_to_the_one_of_its_time(
    image: MetadataImage, at_ms: int, topic_id: TopicId | None, *, current: bool, deleted: bool
) -> None:
    one = committed(at_ms, topic_id)
    assert is_current("t", one, image) == current
    assert is_deleted("t", one, image) == deleted


def test_a_commit_that_names_the_id_of_a_deleted_topic_is_not_for_the_next_one() -> None:
    one = committed(AFTER, FORMER, names_topic_id=True)
    assert not is_current("t", one, RECREATED)
    assert is_deleted("t", one, RECREATED)
    assert is_deleted("t", one, GONE)
    assert is_current("t", committed(AFTER, PRESENT, names_topic_id=True), RECREATED)


def groups_after(*records: CoordinatorRecord) -> Groups:
    groups = Groups(GroupLimits())
    for record in records:
        groups.apply(record)
    return groups


def plain(one: CommittedOffset | None, partition: int = 0) -> OffsetRecord:
    return OffsetRecord("g", "t", partition, one)


def pending(producer_id: int, one: CommittedOffset) -> PendingOffsetRecord:
    return PendingOffsetRecord(producer_id, "g", "t", 0, one)


def shown(groups: Groups, image: MetadataImage, *, by_name: bool = True) -> object:
    wanted = {"t": [0]} if by_name else None
    found = find_offsets(groups.find("g"), wanted, None, require_stable=False, image=image)
    return {
        number: one.offset if isinstance(one, CommittedOffset) else one
        for number, one in found.get("t", {}).items()
    }


def sweep(groups: Groups, image: MetadataImage = RECREATED) -> list[object]:
    """What is logged when the coordinator looks for offsets of deleted topics."""
    event = DeleteTopics(group_id="g")
    outcome = groups.handle(event, NOW_MS, image=image)
    for record in outcome.records:
        groups.apply(record)
    return list(outcome.records)


@pytest.mark.parametrize("by_name", [True, False])
def test_an_offset_of_a_deleted_topic_is_not_shown(*, by_name: bool) -> None:
    groups = groups_after(plain(committed(BEFORE, FORMER)))
    assert shown(groups, OLD, by_name=by_name) == {0: 100}
    assert shown(groups, MARKED, by_name=by_name) == ({0: None} if by_name else {})
    assert shown(groups, RECREATED, by_name=by_name) == ({0: None} if by_name else {})


def test_a_tombstone_is_logged_for_each_offset_of_a_deleted_topic_and_for_no_other() -> None:
    groups = groups_after(
        plain(committed(BEFORE, FORMER)),
        plain(committed(AFTER, PRESENT), partition=1),
        plain(committed(AFTER, FORMER), partition=2),
        plain(committed(BEFORE, None), partition=3),
    )
    assert sweep(groups) == [plain(None), plain(None, partition=3)]
    assert sweep(groups) == []


def test_a_tombstone_waits_while_an_offset_of_the_new_topic_is_pending() -> None:
    groups = groups_after(
        plain(committed(BEFORE, FORMER)), pending(1, committed(AFTER, PRESENT, 7))
    )
    assert sweep(groups) == []
    assert shown(groups, RECREATED) == {0: None}
    groups.apply(TransactionEnd(1, is_commit=True))
    assert sweep(groups) == []
    assert shown(groups, RECREATED) == {0: 7}


def test_after_an_abort_the_tombstone_is_logged_when_offsets_expire() -> None:
    groups = groups_after(
        plain(committed(BEFORE, FORMER)),
        pending(1, committed(AFTER, PRESENT, 7)),
        TransactionEnd(1, is_commit=False),
    )
    outcome = groups.handle(ExpireOffsets(group_id="g"), NOW_MS, image=RECREATED)
    assert outcome.records[0] == plain(None)


def test_an_offset_of_the_new_topic_stays_while_one_of_the_deleted_topic_is_pending() -> None:
    groups = groups_after(
        plain(committed(AFTER, PRESENT, 7)), pending(1, committed(BEFORE, FORMER))
    )
    assert sweep(groups) == []
    groups.apply(TransactionEnd(1, is_commit=False))
    assert shown(groups, RECREATED) == {0: 7}


def test_a_pending_offset_of_a_deleted_topic_does_not_become_the_groups() -> None:
    groups = groups_after(pending(1, committed(BEFORE, FORMER)))
    assert sweep(groups) == [plain(None)]
    groups.apply(TransactionEnd(1, is_commit=True))
    assert groups.find("g") is None
