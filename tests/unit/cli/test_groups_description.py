"""What `moldau groups describe` says of a group."""

from __future__ import annotations

from dataclasses import replace

from moldau.cli.groups import (
    format_partitions,
    partition_row,
    share_partition_row,
    summarize,
    to_document,
    total_lag_text,
)
from moldau.client.admin.values import GroupDescription, GroupMember, GroupState
from moldau.client.rules.cluster_metadata import Address, Broker
from moldau.model import TopicPartition
from moldau.ops.rules.group_lag import GroupPartition, GroupView

MEMBER = GroupMember(
    member_id="reader-1",
    client_id="reader",
    host="10.0.0.1",
    assignment=(TopicPartition("clicks", 1), TopicPartition("clicks", 0)),
)


def partition(
    index: int = 0,
    *,
    committed: int | None = 5,
    end: int | None = 12,
    lag: int | None = 7,
    seconds: float | None = 90.0,
    member: GroupMember | None = None,
) -> GroupPartition:
    return GroupPartition(
        partition=TopicPartition("clicks", index),
        committed=committed,
        log_end_offset=end,
        lag=lag,
        lag_seconds=seconds,
        members=() if member is None else (member,),
    )


def group(*partitions: GroupPartition, members: tuple[GroupMember, ...] = ()) -> GroupView:
    return GroupView(
        description=GroupDescription(
            group_id="readers",
            state=GroupState.STABLE,
            protocol_type="consumer",
            protocol="range" if members else "",
            coordinator=Broker(id=3, address=Address("b3", 9092)),
            members=members,
        ),
        partitions=partitions,
    )


def test_a_row_tells_offsets_lag_and_who_reads() -> None:
    assert partition_row(partition(member=MEMBER)) == (
        *("clicks", "0", "5", "12", "7", "1m 30s"),
        *("reader-1", "10.0.0.1"),
    )


def test_caught_up_is_zero_and_unknown_is_a_dash() -> None:
    assert partition_row(partition(committed=12, lag=0, seconds=0.0))[2:6] == (
        "12",
        "12",
        "0",
        "0s",
    )
    unread = partition(committed=None, end=0, lag=None, seconds=None)
    assert partition_row(unread)[2:] == ("-", "0", "-", "-", "-", "-")


def test_a_row_of_a_share_group_tells_how_many_take_from_it() -> None:
    shared = replace(partition(), members=(MEMBER, MEMBER))
    assert share_partition_row(shared) == ("clicks", "0", "5", "12", "7", "1m 30s", "2")


def test_totals_add_records_and_take_the_oldest() -> None:
    rows = partition(), partition(1, lag=1000, seconds=30.0), partition(2, lag=None, seconds=None)
    assert total_lag_text(group(*rows)) == "total lag 1,007 records, at most 1m 30s behind"
    assert total_lag_text(group(partition(lag=1, seconds=None))) == "total lag 1 record"
    assert total_lag_text(group(partition(lag=0, seconds=0.0))) == "total lag 0 records"


def test_the_summary_names_state_members_and_coordinator() -> None:
    assert dict(summarize(group(members=(MEMBER,)))) == {
        "state": "Stable",
        "members": "1, assigned by range",
        "coordinator": "broker 3 at b3:9092",
    }
    assert dict(summarize(group()))["members"] == "0"


def test_partitions_are_shown_by_topic_in_order() -> None:
    assert format_partitions(MEMBER.assignment) == "clicks:0,1"
    assert format_partitions([TopicPartition("b", 2), TopicPartition("a", 10)]) == "a:10 b:2"


def test_the_document_has_what_was_asked_for() -> None:
    described = group(partition(member=MEMBER), partition(1, lag=3), members=(MEMBER,))
    whole = to_document(described, with_members=True)
    assert whole["coordinator"] == {"id": 3, "host": "b3", "port": 9092}
    assert (whole["total_lag"], whole["max_lag_seconds"]) == (10, 90.0)
    assert whole["offsets"][0]["member_id"] == "reader-1"  # type: ignore[index]
    assert whole["members"][0]["assignment"][0] == {"topic": "clicks", "partition": 1}  # type: ignore[index]
    assert "members" not in to_document(described, with_members=False)
    without = GroupView(description=described.description, partitions=None)
    assert "offsets" not in to_document(without, with_members=True)
