"""Groups, members and lag as they are shown."""

from __future__ import annotations

from dataclasses import replace

from moldau.client.admin.values import (
    Broker,
    GroupDescription,
    GroupListing,
    GroupMember,
    GroupOffset,
    GroupState,
    ListedOffset,
    ShareGroupOffset,
)
from moldau.client.rules.cluster_metadata import Address
from moldau.console.groups import (
    assignment_text,
    choose_groups,
    choose_lag_rows,
    group_kind,
    lag_rows,
    members_text,
    state_counts,
    total_lag,
)
from moldau.console.paging import PageRequest
from moldau.errors import UnknownTopicError
from moldau.model import TopicPartition

READ, UNREAD, GONE = (
    TopicPartition("clicks", 0),
    TopicPartition("clicks", 1),
    TopicPartition("gone", 0),
)
MEMBER = GroupMember(member_id="m-1", client_id="shop", host="h", assignment=(READ, UNREAD))
GROUP = GroupDescription(
    group_id="g",
    state=GroupState.STABLE,
    protocol_type="consumer",
    protocol="range",
    coordinator=Broker(id=1, address=Address("h", 1)),
    members=(MEMBER,),
)


def test_lag_is_of_what_was_committed_and_of_what_a_member_has() -> None:
    rows = lag_rows(
        GROUP,
        {READ: GroupOffset(offset=5), GONE: GroupOffset(offset=9)},
        {READ: ListedOffset(offset=12), UNREAD: ListedOffset(offset=3), GONE: UnknownTopicError()},
    )
    assert [(row.partition, row.committed, row.end_offset, row.lag) for row in rows] == [
        (READ, 5, 12, 7),
        (UNREAD, None, 3, None),
        (GONE, 9, None, None),
    ]
    assert [row.members for row in rows] == [(MEMBER,), (MEMBER,), ()]
    assert total_lag(rows) == 7


def test_a_share_group_has_a_start_offset_and_several_members_in_a_partition() -> None:
    other = GroupMember(member_id="m-2", client_id="till", host="h", assignment=(READ,))
    group = replace(GROUP, type="share", members=(MEMBER, other))
    rows = lag_rows(
        group,
        {
            READ: ShareGroupOffset(start_offset=5, lag=3),  # some after the start are done with
            UNREAD: ShareGroupOffset(start_offset=None, lag=None),
        },
        {READ: ListedOffset(offset=12), UNREAD: ListedOffset(offset=3)},
    )
    assert [(row.committed, row.lag) for row in rows] == [(5, 3), (None, None)]
    assert members_text(rows[0].members) == "shop, till"
    old_broker = lag_rows(
        group, {READ: ShareGroupOffset(start_offset=5, lag=None)}, {READ: ListedOffset(offset=12)}
    )
    assert old_broker[0].lag == 7


def test_of_many_members_few_are_named() -> None:
    assert members_text([MEMBER] * 5) == "shop, shop, shop and 2 more"
    assert members_text(()) == ""


def test_a_position_past_the_end_is_no_negative_lag() -> None:
    rows = lag_rows(None, {READ: GroupOffset(offset=50)}, {READ: ListedOffset(offset=12)})
    assert total_lag(rows) == 0
    assert total_lag(()) is None


def test_lag_rows_are_found_and_sorted() -> None:
    rows = lag_rows(
        GROUP,
        {READ: GroupOffset(offset=0), GONE: GroupOffset(offset=0)},
        {READ: ListedOffset(offset=1), GONE: ListedOffset(offset=5)},
    )
    wanted = PageRequest(sort_by="lag", descending=True)
    assert [row.partition for row in choose_lag_rows(rows, wanted)] == [GONE, READ, UNREAD]
    assert [row.partition for row in choose_lag_rows(rows, PageRequest(search="gone"))] == [GONE]


def test_groups_of_every_kind_are_listed() -> None:
    listings = [
        GroupListing(group_id="b-10", protocol_type="consumer", type="Classic"),
        GroupListing(group_id="b-9", protocol_type="", state=GroupState.EMPTY),
        GroupListing(group_id="a", protocol_type="connect", state=GroupState.STABLE),
    ]
    assert [group_kind(one) for one in listings] == ["classic", "offsets only", "connect"]
    assert [row.name for row in choose_groups(listings, PageRequest())] == ["a", "b-9", "b-10"]
    assert state_counts(listings) == [("Empty", 1), ("Stable", 1), ("Unknown", 1)]


def test_an_assignment_stays_short() -> None:
    many = [TopicPartition("clicks", number) for number in range(2000)]
    assert assignment_text(many) == "clicks 0, 1, 2, 3, 4, 5 and 1,994 more"
    assert assignment_text((READ, GONE)) == "clicks 0; gone 0"
    assert assignment_text(()) == ""
