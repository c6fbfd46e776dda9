"""Records of share groups in `__consumer_offsets`: Kafka's bytes."""

from __future__ import annotations

from uuid import UUID

import pytest

from moldau.coordinators.groups.rules.consumer_records import (
    ConsumerSubscription,
    GroupEpoch,
    MemberAssignment,
)
from moldau.coordinators.groups.rules.records import decode, encode
from moldau.coordinators.groups.rules.share_records import (
    KeptTopic,
    ShareAssignmentRecord,
    ShareEpochRecord,
    ShareGroupRecord,
    ShareSubscriptionRecord,
    ShareTargetEpochRecord,
    ShareTargetRecord,
    StateTopics,
    StateTopicsRecord,
)

TOPIC = UUID("00010203-0405-0607-0809-0a0b0c0d0e0f")
ID = "000102030405060708090a0b0c0d0e0f"
PARTITIONS = {TOPIC: frozenset({0, 2})}
ROWS = f"02 {ID} 03 00000000 00000002 00"


@pytest.mark.parametrize(
    ("record", "key", "value"),
    [
        (
            ShareSubscriptionRecord(
                "g",
                "m",
                ConsumerSubscription(
                    member_id="m",
                    rack_id="r",
                    client_id="c",
                    client_host="/h",
                    topics=frozenset({"b", "a"}),
                ),
            ),
            "000a 0001 67 0001 6d",
            "0000 0272 0263 032f68 03 0261 0262 00",
        ),
        (
            ShareEpochRecord("g", GroupEpoch(5, -2)),
            "000b 0001 67",
            "0000 00000005 fffffffffffffffe 00",
        ),
        (ShareTargetRecord("g", "m", PARTITIONS), "000d 0001 67 0001 6d", f"0000 {ROWS} 00"),
        (
            ShareAssignmentRecord(
                "g", "m", MemberAssignment(epoch=5, previous_epoch=4, assigned=PARTITIONS)
            ),
            "000e 0001 67 0001 6d",
            f"0000 00000005 00000004 00 {ROWS} 00",
        ),
        (
            StateTopicsRecord(
                "g",
                StateTopics(
                    initializing={TOPIC: KeptTopic("t", frozenset({1}))},
                    initialized={TOPIC: KeptTopic("t", frozenset({0, 2}))},
                    deleting={TOPIC: "t"},
                ),
            ),
            "000f 0001 67",
            f"0000 02 {ID} 0274 02 00000001 00 02 {ID} 0274 03 00000000 00000002 00"
            f"02 {ID} 0274 00 00",
        ),
    ],
)
def test_records_have_kafkas_bytes(record: ShareGroupRecord, key: str, value: str) -> None:
    encoded = encode(record)
    assert encoded == (bytes.fromhex(key), bytes.fromhex(value))
    read = decode(*encoded)
    assert read == record
    assert type(read) is type(record)
    end = record._replace(**{record._fields[-1]: None})
    assert decode(encoded[0], None) == end
    assert encode(end) == (encoded[0], None)


@pytest.mark.parametrize(
    ("record", "value"),
    [
        (ShareTargetEpochRecord("g", 5), "0000 00000005 00"),
        (
            ShareTargetEpochRecord("g", 5, 1_700_000_000_000),
            "0000 00000005 01 00 08 0000018bcfe56800",
        ),
        (ShareTargetEpochRecord("g", None), None),
    ],
)
def test_the_time_of_an_assignment_has_a_tag(
    record: ShareTargetEpochRecord, value: str | None
) -> None:
    """As Kafka 4.3 writes it (KIP-1263)."""
    encoded = bytes.fromhex("000c 0001 67"), None if value is None else bytes.fromhex(value)
    assert encode(record) == encoded
    read = decode(*encoded)
    assert read == record
    assert type(read) is ShareTargetEpochRecord


def test_where_a_partition_is_to_begin_is_kept_in_a_tag_of_our_own() -> None:
    """Kafka passes it over, and what Kafka has written has none."""
    topic = KeptTopic("t", frozenset({1, 2}), {2: 77})
    record = StateTopicsRecord("g", StateTopics(initializing={TOPIC: topic}))
    key, value = encode(record)
    tag = "01 904e 0c 00000002 000000000000004d"
    rows = f"02 {ID} 0274 03 00000001 00000002 {tag}"
    assert value == bytes.fromhex(f"0000 {rows} 01 01 00")
    assert decode(key, value) == record
