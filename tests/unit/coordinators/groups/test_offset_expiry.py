"""Which committed offsets are too old to keep, by what kind of group holds them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from moldau.coordinators.groups.rules.classic_group import ClassicGroupState
from moldau.coordinators.groups.rules.commits import OffsetGroup, find_expired
from moldau.coordinators.groups.rules.offsets import CONSUMER_PROTOCOL_TYPE
from moldau.coordinators.groups.rules.records import CommittedOffset

COMMITTED_AT, EMPTY_SINCE, RETENTION = 1_000, 5_000, 100


def group(
    state: ClassicGroupState,
    protocol_type: str | None = CONSUMER_PROTOCOL_TYPE,
    *,
    empty_since_ms: int | None = EMPTY_SINCE,
    expire_ms: int = -1,
    reads: bool = False,
    is_pending: bool = False,
) -> OffsetGroup:
    """A group of the classic protocol, as far as the rule looks at it."""
    committed = CommittedOffset(7, -1, "", COMMITTED_AT, expire_ms)
    stored = None if empty_since_ms is None else SimpleNamespace(state_timestamp_ms=empty_since_ms)
    stand_in = SimpleNamespace(
        state=state,
        protocol_type=protocol_type,
        stored=stored,
        offsets=[("clicks", 0, committed)],
        is_subscribed_to=lambda topic: reads,
        pending_offsets=SimpleNamespace(holds=lambda topic, partition: is_pending),
    )
    return cast(OffsetGroup, stand_in)


def expires_at(held: OffsetGroup) -> int | None:
    """The first millisecond in which the offset is too old."""
    for now_ms in (COMMITTED_AT + RETENTION, EMPTY_SINCE + RETENTION, 9_000):
        if find_expired(held, RETENTION, now_ms):
            assert not find_expired(held, RETENTION, now_ms - 1)
            return now_ms
    return None


def test_a_group_without_members_keeps_its_offsets_from_then_on() -> None:
    assert expires_at(group(ClassicGroupState.EMPTY)) == EMPTY_SINCE + RETENTION


@pytest.mark.parametrize("empty_since_ms", [None, -1])
def test_a_group_that_was_never_seen_empty_keeps_them_from_the_commit_on(
    empty_since_ms: int | None,
) -> None:
    held = group(ClassicGroupState.EMPTY, empty_since_ms=empty_since_ms)
    assert expires_at(held) == COMMITTED_AT + RETENTION


def test_offsets_of_somebody_who_never_joined_age_from_the_commit_on() -> None:
    for nobody in (None, ""):
        assert expires_at(group(ClassicGroupState.EMPTY, nobody)) == COMMITTED_AT + RETENTION


def test_consumers_at_work_keep_the_offsets_of_what_they_read() -> None:
    assert expires_at(group(ClassicGroupState.STABLE)) == COMMITTED_AT + RETENTION
    assert expires_at(group(ClassicGroupState.STABLE, reads=True)) is None


def test_other_groups_at_work_and_those_that_rebalance_keep_their_offsets() -> None:
    assert expires_at(group(ClassicGroupState.STABLE, "connect")) is None
    assert expires_at(group(ClassicGroupState.PREPARING_REBALANCE)) is None
    assert expires_at(group(ClassicGroupState.COMPLETING_REBALANCE)) is None


def test_an_offset_that_an_open_transaction_may_replace_stays() -> None:
    assert expires_at(group(ClassicGroupState.EMPTY, is_pending=True)) is None


def test_a_commit_may_name_its_own_end() -> None:
    assert expires_at(group(ClassicGroupState.EMPTY, expire_ms=9_000)) == 9_000
