"""How far groups are behind: the one count of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moldau.client.admin.values import (
    Broker,
    GroupDescription,
    GroupMember,
    GroupOffset,
    GroupState,
    ShareGroupOffset,
)
from moldau.client.rules.cluster_metadata import Address
from moldau.errors import GroupAuthorizationError
from moldau.model import TopicPartition, records_behind
from moldau.ops.rules.group_lag import GroupView, committed_offsets, group_partitions, total_lag

READ, UNREAD, GONE = (
    TopicPartition("clicks", 0),
    TopicPartition("clicks", 1),
    TopicPartition("gone", 0),
)
MEMBER = GroupMember(member_id="m-1", client_id="shop", host="h", assignment=(READ, UNREAD))


@pytest.mark.parametrize(
    ("position", "end", "lag"),
    [(5, 12, 7), (12, 12, 0), (50, 12, 0), (None, 12, None), (5, None, None)],
)
def test_lag_is_counted_from_the_position_to_the_end(
    position: int | None, end: int | None, lag: int | None
) -> None:
    assert records_behind(position, end) == lag


def test_lag_is_of_what_was_committed_and_of_what_a_member_has() -> None:
    rows = group_partitions(
        (MEMBER,),
        {READ: GroupOffset(offset=5), GONE: GroupOffset(offset=9)},
        {READ: 12, UNREAD: 3},
        {READ: 4.5},
    )
    assert [(row.partition, row.committed, row.log_end_offset, row.lag) for row in rows] == [
        (READ, 5, 12, 7),
        (UNREAD, None, 3, None),
        (GONE, 9, None, None),
    ]
    assert [row.members for row in rows] == [(MEMBER,), (MEMBER,), ()]
    assert [row.lag_seconds for row in rows] == [4.5, None, None]
    assert total_lag(rows) == 7
    assert total_lag(()) is None


def test_a_share_group_has_a_start_offset_and_several_members_in_a_partition() -> None:
    other = GroupMember(member_id="m-2", client_id="till", host="h", assignment=(READ,))
    offsets = {
        READ: ShareGroupOffset(start_offset=5, lag=3),  # some after the start are done with
        UNREAD: ShareGroupOffset(start_offset=None, lag=None),
        GONE: GroupAuthorizationError(),
    }
    rows = group_partitions((MEMBER, other), offsets, {READ: 12, UNREAD: 3})
    assert [(row.committed, row.lag) for row in rows] == [(5, 3), (None, None)]
    assert rows[0].members == (MEMBER, other)
    assert committed_offsets(offsets) == {READ: 5}


def test_a_coordinator_that_does_not_count_leaves_the_lag_of_a_share_group_unknown() -> None:
    offset = ShareGroupOffset(start_offset=5, lag=None)
    (row,) = group_partitions((), {READ: offset}, {READ: 12})
    assert (row.committed, row.log_end_offset, row.lag) == (5, 12, None)


def test_a_view_sums_up_its_partitions() -> None:
    idle = replace(MEMBER, member_id="m-2", assignment=())
    group = GroupDescription(
        group_id="g",
        state=GroupState.STABLE,
        protocol_type="consumer",
        protocol="range",
        coordinator=Broker(id=1, address=Address("h", 1)),
        members=(MEMBER, idle),
    )
    rows = group_partitions(
        group.members,
        {READ: GroupOffset(offset=5), GONE: GroupOffset(offset=1)},
        {READ: 12, UNREAD: 3},
        {READ: 2.0},
    )
    view = GroupView(description=group, partitions=rows)
    assert (view.committed, view.ends) == ({READ: 5, GONE: 1}, {READ: 12})
    assert (view.lags, view.lag, view.lag_seconds) == ({READ: 7}, 7, 2.0)
    assert (view.idle_members, view.is_shared) == (1, False)
