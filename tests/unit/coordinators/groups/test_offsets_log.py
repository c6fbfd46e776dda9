"""The records of the offsets topic, byte for byte."""

from __future__ import annotations

import contextlib
import struct
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.coordinators.groups.rules.records import (
    CommittedOffset,
    CoordinatorRecord,
    GroupMetadata,
    GroupRecord,
    OffsetRecord,
    StoredMember,
    decode,
    encode,
)
from moldau.errors import InvalidRecordError
from moldau.model import TopicId

TOPIC_ID = TopicId(UUID(bytes=b"\xab" * 16))

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)

topic_ids = st.uuids().map(TopicId)
positions = st.builds(
    CommittedOffset,
    int64s,
    int32s,
    texts,
    int64s,
    st.just(-1),
    st.none() | topic_ids,
    st.just(False),
)
expiring_positions = st.builds(
    CommittedOffset,
    int64s,
    st.just(-1),
    texts,
    int64s,
    int64s.filter(lambda at: at != -1),
    st.none(),
    st.just(False),
)
members = st.builds(
    StoredMember,
    member_id=texts,
    instance_id=st.none() | texts,
    client_id=texts,
    client_host=texts,
    rebalance_timeout_ms=int32s,
    session_timeout_ms=int32s,
    subscription=st.binary(max_size=30),
    assignment=st.binary(max_size=30),
)
generations = st.builds(
    GroupMetadata,
    protocol_type=texts,
    generation=int32s,
    protocol=st.none() | texts,
    leader=st.none() | texts,
    state_timestamp_ms=int64s,
    members=st.lists(
        members,
        max_size=4,
        unique_by=(
            lambda one: one.member_id,
            lambda one: one if one.instance_id is None else one.instance_id,
        ),
    ).map(tuple),
)
records: st.SearchStrategy[CoordinatorRecord] = st.builds(
    OffsetRecord, texts, texts, int32s, st.none() | positions | expiring_positions
) | st.builds(GroupRecord, texts, st.none() | generations)


@settings(deadline=None)
@given(records)
def test_what_is_written_is_read_again(record: CoordinatorRecord) -> None:
    assert decode(*encode(record)) == record


def test_a_position_is_written_as_kafka_4_writes_it() -> None:
    committed = CommittedOffset(258, 3, "hi", 1_700_000_000_000)

    key, value = encode(OffsetRecord("grp", "top", 7, committed))

    assert key.hex(" ") == "00 01 00 03 67 72 70 00 03 74 6f 70 00 00 00 07"
    assert value is not None
    assert value.hex(" ") == (
        "00 03 00 00 00 00 00 00 01 02 00 00 00 03 00 02 68 69 00 00 01 8b cf e5 68 00"
    )


@pytest.mark.parametrize(("metadata", "encoded"), [("", "01"), ("hi", "03 68 69")])
def test_a_position_with_a_topic_id_is_written_in_version_4(metadata: str, encoded: str) -> None:
    committed = CommittedOffset(258, 3, metadata, 1_700_000_000_000, topic_id=TOPIC_ID)

    _, value = encode(OffsetRecord("grp", "top", 7, committed))

    assert value is not None
    assert value.hex(" ") == (
        f"00 04 00 00 00 00 00 00 01 02 00 00 00 03 {encoded} 00 00 01 8b cf e5 68 00 "
        f"01 00 10 {TOPIC_ID.bytes.hex(' ')}"
    )


def test_that_the_client_named_the_topic_id_is_not_written() -> None:
    committed = CommittedOffset(5, 3, "", 9, topic_id=TOPIC_ID)
    by_id = committed._replace(names_topic_id=True)

    assert encode(OffsetRecord("g", "t", 7, by_id)) == encode(OffsetRecord("g", "t", 7, committed))


def test_a_position_with_a_time_of_its_own_is_written_in_version_1() -> None:
    committed = CommittedOffset(258, -1, "", 1_000, 2_000, TOPIC_ID)

    _, value = encode(OffsetRecord("grp", "top", 7, committed))

    assert value is not None
    assert value.hex(" ") == (
        "00 01 00 00 00 00 00 00 01 02 00 00 00 00 00 00 00 00 03 e8 00 00 00 00 00 00 07 d0"
    )


def test_a_generation_is_written_as_kafka_4_writes_it() -> None:
    member = StoredMember(
        member_id="m",
        instance_id=None,
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=300_000,
        session_timeout_ms=10_000,
        subscription=b"\x01",
        assignment=b"\x02\x03",
    )
    metadata = GroupMetadata(
        protocol_type="consumer",
        generation=5,
        protocol="range",
        leader="m",
        state_timestamp_ms=1_000,
        members=(member,),
    )

    key, value = encode(GroupRecord("grp", metadata))

    assert key.hex(" ") == "00 02 00 03 67 72 70"
    assert value is not None
    assert value.hex(" ") == (
        "00 03 "
        "00 08 63 6f 6e 73 75 6d 65 72 "
        "00 00 00 05 "
        "00 05 72 61 6e 67 65 "
        "00 01 6d "
        "00 00 00 00 00 00 03 e8 "
        "00 00 00 01 "
        "00 01 6d ff ff 00 01 63 00 02 2f 68 "
        "00 04 93 e0 00 00 27 10 "
        "00 00 00 01 01 00 00 00 02 02 03"
    )


def test_an_empty_generation_has_neither_protocol_nor_leader() -> None:
    metadata = GroupMetadata(
        protocol_type="consumer",
        generation=6,
        protocol=None,
        leader=None,
        state_timestamp_ms=0,
        members=(),
    )

    _, value = encode(GroupRecord("grp", metadata))

    assert value is not None
    assert value.endswith(bytes.fromhex("00000006 ffff ffff 0000000000000000 00000000"))


def test_a_removal_has_no_value() -> None:
    assert encode(OffsetRecord("g", "t", 0, None))[1] is None
    assert encode(GroupRecord("g", None))[1] is None


KEY = bytes.fromhex("0001 0001 67 0001 74 00000000")
GROUP_KEY = bytes.fromhex("0002 0001 67")


@pytest.mark.parametrize(
    ("value", "committed"),
    [
        ("0000 0000000000000005 0001 78 0000000000000009", CommittedOffset(5, -1, "x", 9)),
        (
            "0001 0000000000000005 0001 78 0000000000000009 000000000000000a",
            CommittedOffset(5, -1, "x", 9, 10),
        ),
        ("0002 0000000000000005 0001 78 0000000000000009", CommittedOffset(5, -1, "x", 9)),
        ("0003 0000000000000005 00000002 0001 78 0000000000000009", CommittedOffset(5, 2, "x", 9)),
        ("0004 0000000000000005 00000002 02 78 0000000000000009 00", CommittedOffset(5, 2, "x", 9)),
        (
            "0004 0000000000000005 00000002 02 78 0000000000000009 01 00 10" + "ab" * 16,
            CommittedOffset(5, 2, "x", 9, topic_id=TOPIC_ID),
        ),
        (
            "0004 0000000000000005 00000002 01 0000000000000009 01 00 10" + "ab" * 16,
            CommittedOffset(5, 2, "", 9, topic_id=TOPIC_ID),
        ),
        (
            "0004 0000000000000005 00000002 01 0000000000000009 01 00 10" + "00" * 16,
            CommittedOffset(5, 2, "", 9),
        ),
        (
            "0004 0000000000000005 00000002 01 0000000000000009 02 00 10" + "ab" * 16 + "01 01 ff",
            CommittedOffset(5, 2, "", 9, topic_id=TOPIC_ID),
        ),
        (
            "0004 0000000000000005 00000002 01 0000000000000009 01 01 10" + "ab" * 16,
            CommittedOffset(5, 2, "", 9),
        ),
    ],
    ids=[
        "v0",
        "v1",
        "v2",
        "v3",
        "v4",
        "v4 with a topic id",
        "v4 with a topic id and no metadata",
        "v4 with the zero id",
        "v4 with a later tag",
        "v4 with another tag of the same length",
    ],
)
@pytest.mark.parametrize("key_version", [0, 1])
def test_positions_of_every_version_are_read(
    key_version: int, value: str, committed: CommittedOffset
) -> None:
    key = struct.pack(">h", key_version) + KEY[2:]

    assert decode(key, bytes.fromhex(value)) == OffsetRecord("g", "t", 0, committed)


@pytest.mark.parametrize(
    ("value", "instance_id", "rebalance_timeout_ms", "timestamp_ms"),
    [
        ("0000 0001 63 00000003 0001 72 0001 6d 00000001"
         "0001 6d 0001 69 0001 68 00000064 00000001 aa 00000001 bb", None, 100, -1),
        ("0001 0001 63 00000003 0001 72 0001 6d 00000001"
         "0001 6d 0001 69 0001 68 000000c8 00000064 00000001 aa 00000001 bb", None, 200, -1),
        ("0002 0001 63 00000003 0001 72 0001 6d 0000000000000009 00000001"
         "0001 6d 0001 69 0001 68 000000c8 00000064 00000001 aa 00000001 bb", None, 200, 9),
        ("0003 0001 63 00000003 0001 72 0001 6d 0000000000000009 00000001"
         "0001 6d 0001 73 0001 69 0001 68 000000c8 00000064 00000001 aa 00000001 bb", "s", 200, 9),
        ("0004 02 63 00000003 02 72 02 6d 0000000000000009 02"
         "02 6d 02 73 02 69 02 68 000000c8 00000064 02 aa 02 bb 00 00", "s", 200, 9),
    ],
    ids=["v0", "v1", "v2", "v3", "v4"],
)  # fmt: skip
def test_generations_of_every_version_are_read(
    value: str, instance_id: str | None, rebalance_timeout_ms: int, timestamp_ms: int
) -> None:
    record = decode(GROUP_KEY, bytes.fromhex(value))

    assert isinstance(record, GroupRecord)
    assert record.metadata == GroupMetadata(
        protocol_type="c",
        generation=3,
        protocol="r",
        leader="m",
        state_timestamp_ms=timestamp_ms,
        members=(
            StoredMember(
                member_id="m",
                instance_id=instance_id,
                client_id="i",
                client_host="h",
                rebalance_timeout_ms=rebalance_timeout_ms,
                session_timeout_ms=100,
                subscription=b"\xaa",
                assignment=b"\xbb",
            ),
        ),
    )


def test_a_topic_id_of_another_length_is_refused() -> None:
    value = bytes.fromhex("0004 0000000000000005 00000002 01 0000000000000009 01 00 01 ab")

    with pytest.raises(InvalidRecordError, match="topic id"):
        decode(KEY, value)


def test_records_of_other_kinds_of_groups_are_left_alone() -> None:
    assert decode(bytes.fromhex("0004 0001 67"), b"whatever") is None
    assert decode(bytes.fromhex("0012 0001 67"), None) is None


@settings(deadline=None)
@given(records.filter(lambda record: encode(record)[1] is not None), st.data())
def test_a_value_that_is_cut_short_is_refused(
    record: CoordinatorRecord, data: st.DataObject
) -> None:
    key, value = encode(record)
    assert value is not None
    cut = data.draw(st.integers(0, len(value) - 1))

    with pytest.raises(InvalidRecordError):
        decode(key, value[:cut])


@settings(deadline=None)
@given(st.none() | st.binary(max_size=30), st.none() | st.binary(max_size=60))
def test_garbage_raises_nothing_else(key: bytes | None, value: bytes | None) -> None:
    with contextlib.suppress(InvalidRecordError):
        decode(key, value)


def test_a_generation_with_a_member_twice_is_refused() -> None:
    member = StoredMember(
        member_id="m",
        instance_id=None,
        client_id="",
        client_host="",
        rebalance_timeout_ms=1,
        session_timeout_ms=1,
        subscription=b"",
        assignment=b"",
    )
    metadata = GroupMetadata(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader="m",
        state_timestamp_ms=0,
        members=(member, member),
    )
    with pytest.raises(InvalidRecordError, match="twice"):
        decode(*encode(GroupRecord("g", metadata)))


def test_a_text_that_the_format_has_no_room_for_is_refused() -> None:
    with pytest.raises(InvalidRecordError, match="cannot be written"):
        encode(GroupRecord("x" * 40_000, None))
