"""The records of consumer groups in bytes."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.coordinators.groups.rules.assigned_partitions import together
from moldau.coordinators.groups.rules.consumer_records import (
    ClassicMember,
    ConsumerGroupRecord,
    ConsumerSubscription,
    GroupEpoch,
    GroupEpochRecord,
    MemberAssignment,
    MemberAssignmentRecord,
    MemberState,
    MemberSubscriptionRecord,
    ResolvedRegex,
    ResolvedRegexRecord,
    TargetAssignmentRecord,
    TargetEpochRecord,
)
from moldau.coordinators.groups.rules.records import decode, encode
from moldau.errors import InvalidRecordError

names = st.text(max_size=12)
optional_names = st.none() | names
ints = st.integers(-(2**31), 2**31 - 1)
longs = st.integers(-(2**63), 2**63 - 1)
partitions = st.dictionaries(
    st.uuids().filter(lambda one: one.int),
    st.frozensets(st.integers(0, 2**31 - 1), min_size=1, max_size=4),
    max_size=3,
)
classics = st.builds(
    ClassicMember,
    session_timeout_ms=ints,
    protocols=st.lists(st.tuples(names, st.binary(max_size=20)), max_size=3).map(tuple),
)


def optional(values: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.none() | values


@st.composite
def subscription_records(draw: st.DrawFn) -> MemberSubscriptionRecord:
    member_id = draw(names)
    value = ConsumerSubscription(
        member_id=member_id,
        instance_id=draw(optional_names),
        rack_id=draw(optional_names),
        client_id=draw(names),
        client_host=draw(names),
        topics=draw(st.frozensets(names, max_size=3)),
        regex=draw(optional_names),
        rebalance_timeout_ms=draw(ints),
        assignor=draw(optional_names),
        classic=draw(st.none() | classics),
    )
    return MemberSubscriptionRecord(draw(names), member_id, draw(st.sampled_from([value, None])))


@st.composite
def assignments(draw: st.DrawFn) -> MemberAssignment:
    assigned, revoking = draw(partitions), draw(partitions)
    return MemberAssignment(
        epoch=draw(ints),
        previous_epoch=draw(ints),
        state=draw(st.sampled_from(MemberState)),
        assigned=assigned,
        revoking=revoking,
        assignment_epochs={
            topic: {one: draw(ints) for one in some}
            for topic, some in together(assigned, revoking).items()
        },
    )


records: st.SearchStrategy[ConsumerGroupRecord] = st.one_of(
    st.builds(GroupEpochRecord, names, optional(st.builds(GroupEpoch, ints, longs))),
    subscription_records(),
    st.builds(TargetEpochRecord, names, st.none(), st.just(0)),
    st.builds(TargetEpochRecord, names, ints, longs),
    st.builds(TargetAssignmentRecord, names, names, optional(partitions)),
    st.builds(MemberAssignmentRecord, names, names, optional(assignments())),
    st.builds(
        ResolvedRegexRecord,
        names,
        names,
        optional(st.builds(ResolvedRegex, st.frozensets(names, max_size=3), longs, longs)),
    ),
)


@given(records)
def test_what_was_written_is_read_back(record: ConsumerGroupRecord) -> None:
    assert decode(*encode(record)) == record


TOPIC = UUID("0a0b0c0d-0000-0000-0000-000000000001")
KAFKAS: list[tuple[ConsumerGroupRecord, str, str]] = [
    (
        GroupEpochRecord("g", GroupEpoch(7, 0x0102030405060708)),
        "0003 0001 67",
        "0000 00000007 01 00 08 0102030405060708",
    ),
    (GroupEpochRecord("g", GroupEpoch(7, 0)), "0003 0001 67", "0000 00000007 00"),
    (
        MemberSubscriptionRecord(
            "g",
            "m",
            ConsumerSubscription(
                member_id="m",
                client_id="c",
                client_host="/h",
                topics=frozenset({"t"}),
                rebalance_timeout_ms=1000,
                assignor="uniform",
            ),
        ),
        "0005 0001 67 0001 6d",
        "0000 00 00 0263 032f68 02 0274 00 000003e8 08756e69666f726d 00",
    ),
    (TargetEpochRecord("g", 7), "0006 0001 67", "0000 00000007 00"),
    (
        TargetEpochRecord("g", 7, 0x0102030405060708),
        "0006 0001 67",
        "0000 00000007 01 00 08 0102030405060708",
    ),
    (
        TargetAssignmentRecord("g", "m", {TOPIC: frozenset({0, 2})}),
        "0007 0001 67 0001 6d",
        "0000 02 0a0b0c0d000000000000000000000001 03 00000000 00000002 00 00",
    ),
    (
        MemberAssignmentRecord(
            "g",
            "m",
            MemberAssignment(
                epoch=7,
                previous_epoch=6,
                state=MemberState.UNREVOKED_PARTITIONS,
                assigned={TOPIC: frozenset({1, 3})},
                revoking={TOPIC: frozenset({2})},
                assignment_epochs={TOPIC: {1: 7, 2: 4, 3: 5}},
            ),
        ),
        "0008 0001 67 0001 6d",
        "0000 00000007 00000006 01"
        "02 0a0b0c0d000000000000000000000001 03 00000001 00000003 01 00 09 03 00000007 00000005"
        "02 0a0b0c0d000000000000000000000001 02 00000002 01 00 05 02 00000004 00",
    ),
    (
        ResolvedRegexRecord("g", "t.*", ResolvedRegex(frozenset({"t"}), 5, 9)),
        "0010 0001 67 0003 742e2a",
        "0000 02 0274 0000000000000005 0000000000000009 00",
    ),
]


@pytest.mark.parametrize(("record", "key", "value"), KAFKAS)
def test_the_bytes_are_those_that_kafkas_schemas_say(
    record: ConsumerGroupRecord, key: str, value: str
) -> None:
    assert encode(record) == (bytes.fromhex(key), bytes.fromhex(value))


HAS_3_AND_1 = "0a0b0c0d000000000000000000000001 03 00000003 00000001"


@pytest.mark.parametrize(
    ("epoch", "tags", "epochs"),
    [
        ("00000007", "00", {3: 7, 1: 7}),  # as written before Kafka 4.3
        ("fffffffe", "00", {3: 0, 1: 0}),  # of a static member that was away then
        ("00000007", "01 00 01 00", {3: 7, 1: 7}),  # null
        ("00000007", "01 00 09 03 00000004 00000005", {3: 4, 1: 5}),  # in the partitions' order
    ],
)
def test_partitions_of_older_records_count_as_assigned_in_the_epoch_of_their_member(
    epoch: str, tags: str, epochs: dict[int, int]
) -> None:
    value = bytes.fromhex(f"0000 {epoch} 00000006 00 02 {HAS_3_AND_1} {tags} 01 00")
    record = decode(bytes.fromhex("0008 0001 67 0001 6d"), value)
    assert isinstance(record, MemberAssignmentRecord)
    assert record.value is not None
    assert record.value.assigned == {TOPIC: frozenset({1, 3})}
    assert record.value.assignment_epochs == {TOPIC: epochs}


def test_a_partition_without_an_epoch_beside_others_with_one_is_no_record() -> None:
    value = f"0000 00000007 00000006 00 02 {HAS_3_AND_1} 01 00 05 02 00000004 01 00"
    with pytest.raises(InvalidRecordError, match="1 assignment epochs for 2 partitions"):
        decode(bytes.fromhex("0008 0001 67 0001 6d"), bytes.fromhex(value))


@given(records.filter(lambda record: encode(record)[1] is not None), st.data())
def test_a_value_that_is_cut_short_is_no_record(
    record: ConsumerGroupRecord, data: st.DataObject
) -> None:
    key, value = encode(record)
    assert value is not None
    # The last byte is often the count of tagged fields, of which there are none.
    size = data.draw(st.integers(0, len(value) - 2))
    with pytest.raises(InvalidRecordError):
        decode(key, value[:size])
