"""Groups, members and lag as they are shown."""

from __future__ import annotations

from moldau.client.admin.values import (
    Broker,
    GroupDescription,
    GroupListing,
    GroupMember,
    GroupOffset,
    GroupState,
)
from moldau.client.rules.cluster_metadata import Address
from moldau.console.groups import (
    assignment_text,
    choose_groups,
    choose_lag_rows,
    group_kind,
    members_text,
    state_counts,
)
from moldau.console.paging import PageRequest
from moldau.model import TopicPartition
from moldau.ops.rules.group_lag import group_partitions

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


def test_of_many_members_few_are_named() -> None:
    assert members_text([MEMBER] * 5) == "shop, shop, shop and 2 more"
    assert members_text(()) == ""


def test_lag_rows_are_found_and_sorted() -> None:
    rows = group_partitions(
        GROUP.members,
        {READ: GroupOffset(offset=0), GONE: GroupOffset(offset=0)},
        {READ: 1, GONE: 5},
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
