"""Records of streams groups in `__consumer_offsets`: Kafka's bytes, as its own classes (4.3) wrote
them."""

from __future__ import annotations

from contextlib import suppress

import pytest

from moldau.coordinators.groups.rules.records import decode, encode
from moldau.coordinators.groups.rules.streams_records import (
    StreamsAssignment,
    StreamsAssignmentRecord,
    StreamsEndpoint,
    StreamsEpoch,
    StreamsEpochRecord,
    StreamsGroupRecord,
    StreamsMember,
    StreamsMemberRecord,
    StreamsMemberState,
    StreamsTargetEpoch,
    StreamsTargetEpochRecord,
    StreamsTargetRecord,
    TopologyRecord,
)
from moldau.coordinators.groups.rules.streams_topology import (
    CopartitionGroup,
    Subtopology,
    Tasks,
    TopicInfo,
    Topology,
)
from moldau.errors import InvalidRecordError

MEMBER = StreamsMember(
    member_id="m",
    client_id="c",
    client_host="/h",
    rebalance_timeout_ms=300,
    topology_epoch=3,
    process_id="p",
)
TOPOLOGY = Topology(
    3,
    (
        Subtopology(
            "0",
            source_topics=("b", "a"),
            changelog_topics=(TopicInfo("c", 0, 1, (("k", "v"),)),),
            repartition_sinks=("s",),
            repartition_sources=(TopicInfo("r", 4),),
            copartition_groups=(CopartitionGroup((1,), (), (0,)),),
        ),
    ),
)
RECORDS: list[tuple[StreamsGroupRecord, str, str]] = [
    (
        StreamsEpochRecord("g", StreamsEpoch(5, -2, 3, (("num.standby.replicas", "1"),))),
        "0011000167",
        "000000000005fffffffffffffffe02000400000003011902156e756d2e7374616e6462792e7265706c69636173"
        "023100",
    ),
    (
        StreamsEpochRecord("g", StreamsEpoch(5, -2)),
        "0011000167",
        "000000000005fffffffffffffffe00",
    ),
    (
        StreamsMemberRecord(
            "g",
            "m",
            StreamsMember(
                member_id="m",
                rack_id="r",
                client_id="c",
                client_host="/h",
                rebalance_timeout_ms=300,
                topology_epoch=3,
                process_id="p",
                endpoint=StreamsEndpoint("e", 65535),
                tags=(("k", "v"),),
            ),
        ),
        "001300016700016d",
        "00000002720263032f680000012c000000030270010265ffff0002026b02760000",
    ),
    (
        StreamsMemberRecord("g", "m", MEMBER),
        "001300016700016d",
        "000000000263032f680000012c000000030270ff0100",
    ),
    (
        StreamsTargetEpochRecord("g", StreamsTargetEpoch(5, 7)),
        "0014000167",
        "0000000000050100080000000000000007",
    ),
    (
        StreamsTargetRecord("g", "m", Tasks({"0": frozenset({0, 2})}, {"1": frozenset({1})})),
        "001500016700016d",
        "0000020230030000000000000002000202310200000001000100",
    ),
    (
        StreamsAssignmentRecord(
            "g",
            "m",
            StreamsAssignment(
                epoch=5,
                previous_epoch=4,
                state=StreamsMemberState.UNREVOKED_TASKS,
                assigned=Tasks({"0": frozenset({0, 2})}, {"1": frozenset({1})}),
                revoking=Tasks({"0": frozenset({1})}),
                since={("0", 0): 5, ("0", 2): 3, ("0", 1): 2},
            ),
        ),
        "001600016700016d",
        "00000000000500000004020202300300000000000000020100090300000005000000030202310200000001000"
        "102023002000000010100050200000002010100",
    ),
    (
        TopologyRecord("g", TOPOLOGY),
        "0017000167",
        "00000000000302023003026202610102026300000000000102026b0276000002027302027200000004000001"
        "000202000101020000000000",
    ),
]


@pytest.mark.parametrize(("record", "key", "value"), RECORDS)
def test_records_have_kafkas_bytes(record: StreamsGroupRecord, key: str, value: str) -> None:
    written = encode(record)
    assert written == (bytes.fromhex(key), bytes.fromhex(value))
    assert decode(*written) == record


@pytest.mark.parametrize("record", [row[0] for row in RECORDS])
def test_tombstones_name_what_is_gone(record: StreamsGroupRecord) -> None:
    gone = record._replace(value=None)
    key, value = encode(gone)
    assert value is None
    assert decode(key, value) == gone


def test_active_tasks_without_epochs_are_held_since_the_members() -> None:
    """As Kafka 4.1 writes them."""
    key = bytes.fromhex("001600016700016d")
    value = bytes.fromhex("0000 00000005 00000004 01 02 0230 02 00000001 00 01 01 01 01 01 00")
    read = decode(key, value)
    assert isinstance(read, StreamsAssignmentRecord)
    assert read.value is not None
    assert read.value.since == {("0", 1): 5}


@pytest.mark.parametrize("row", RECORDS)
def test_a_torn_value_is_no_other_error(row: tuple[StreamsGroupRecord, str, str]) -> None:
    key, value = bytes.fromhex(row[1]), bytes.fromhex(row[2])
    for end in range(len(value)):
        with suppress(InvalidRecordError):
            decode(key, value[:end])


def test_a_state_that_is_not_known_is_refused() -> None:
    key = bytes.fromhex("001600016700016d")
    with pytest.raises(InvalidRecordError, match="9 is no state"):
        decode(key, bytes.fromhex("0000 00000005 00000004 09 01 01 01 01 01 01 00"))
