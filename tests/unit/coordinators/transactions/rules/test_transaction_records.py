"""The bytes of `__transaction_state`."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.coordinators.transactions.rules.records import decode_transaction, encode_transaction
from moldau.coordinators.transactions.rules.transaction_metadata import (
    TransactionMetadata,
    TransactionState,
)
from moldau.coordinators.transactions.rules.transactions import TransactionRecord
from moldau.errors import InvalidRecordError
from moldau.model import TopicPartition

INT16 = st.integers(-1, 2**15 - 1)
INT64 = st.integers(-1, 2**63 - 1)
PARTITIONS = st.frozensets(
    st.builds(TopicPartition, st.text(max_size=20), st.integers(0, 1000)), max_size=8
)
METADATA = st.builds(
    TransactionMetadata,
    transactional_id=st.just("t"),
    producer_id=INT64,
    producer_epoch=INT16,
    timeout_ms=st.integers(0, 2**31 - 1),
    state=st.sampled_from(sorted(set(TransactionState) - {TransactionState.EMPTY})),
    updated_ms=INT64,
    partitions=PARTITIONS,
    started_ms=INT64,
    previous_producer_id=INT64,
    next_producer_id=INT64,
    next_producer_epoch=INT16,
    last_producer_epoch=INT16,
    client_version=st.integers(0, 2),
)


@given(METADATA)
def test_what_is_written_is_read(metadata: TransactionMetadata) -> None:
    record = TransactionRecord("t", metadata)
    assert decode_transaction(*encode_transaction(record)) == record


def test_a_tombstone() -> None:
    record = TransactionRecord("t", None)
    key, value = encode_transaction(record)
    assert value is None
    assert decode_transaction(key, value) == record


def test_the_bytes_are_kafkas() -> None:
    """Version 0: no lengths that vary, no tagged fields."""
    metadata = TransactionMetadata(
        transactional_id="tx",
        producer_id=5,
        producer_epoch=3,
        timeout_ms=60_000,
        state=TransactionState.ONGOING,
        updated_ms=1,
        started_ms=2,
        partitions=frozenset({TopicPartition("a", 1), TopicPartition("a", 0)}),
    )
    key, value = encode_transaction(TransactionRecord("tx", metadata), version=0)
    assert key == b"\0\0\0\2tx"
    assert value == (
        b"\0\0" + (5).to_bytes(8) + (3).to_bytes(2) + (60_000).to_bytes(4) + b"\1"
        b"\0\0\0\1\0\1a\0\0\0\2" + (0).to_bytes(4) + (1).to_bytes(4)
        + (1).to_bytes(8) + (2).to_bytes(8)
    )  # fmt: skip
    compact = encode_transaction(TransactionRecord("tx", metadata), version=1)[1]
    assert compact == (
        b"\0\1" + (5).to_bytes(8) + (3).to_bytes(2) + (60_000).to_bytes(4) + b"\1"
        b"\2\2a\3" + (0).to_bytes(4) + (1).to_bytes(4) + b"\0"
        + (1).to_bytes(8) + (2).to_bytes(8) + b"\0"
    )  # fmt: skip


def test_keys_of_other_kinds_are_left_alone_and_nonsense_is_refused() -> None:
    assert decode_transaction(b"\0\7\0\1x", b"") is None
    for value in (b"", b"\0\7", b"\0\1" + bytes(14) + b"\x63" + bytes(20)):
        with pytest.raises(InvalidRecordError):
            decode_transaction(b"\0\0\0\1x", value)


@given(st.binary(max_size=60))
def test_bytes_of_any_kind_do_no_harm(value: bytes) -> None:
    with contextlib.suppress(InvalidRecordError):
        decode_transaction(b"\0\0\0\1x", value)
