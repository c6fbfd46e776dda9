"""Every record that is at fault is named, as Kafka names them."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.errors import InvalidRecordError, InvalidTimestampError
from moldau.model import NO_TIMESTAMP
from moldau.records.batch_header import HEADER_BYTES, BatchHeader, read_header, write_crc
from moldau.records.compression import Codec
from moldau.records.record_batch import build_batch
from moldau.storage.rules.log_validator import (
    MOST_RECORDS,
    QUICK_RECORDS,
    AppendLimits,
    TimestampRange,
    check_batch,
    inspect_batch,
    name_refused,
    summarize,
)

NOW_MS = 1_700_000_000_000
LIMITS = AppendLimits(
    max_message_bytes=1 << 20,
    segment_bytes=1 << 30,
    compacted=True,
    log_append_time=False,
    timestamp_before_max_ms=1_000,
    timestamp_after_max_ms=1_000,
    inspect_records=True,
)


def inspect(batch: bytearray, header: BatchHeader) -> None:
    inspect_batch(memoryview(batch), header, LIMITS, codec=None, level=None, unpacked_bytes=1 << 20)


def indexes(error: InvalidRecordError | InvalidTimestampError) -> list[int]:
    return [index for index, _ in error.record_errors]


@pytest.mark.parametrize("codec", list(Codec))
def test_every_record_without_a_key_is_named(codec: Codec) -> None:
    keys = [b"k", None, b"", None, None, b"k", *[None] * 20]
    batch = build_batch([(NOW_MS, key, b"v", ()) for key in keys], codec=codec)
    header = check_batch(memoryview(batch), LIMITS, NOW_MS)

    with pytest.raises(InvalidRecordError, match=r"record 1: .*; and 20 more records") as caught:
        inspect(batch, header)
    assert indexes(caught.value) == [index for index, key in enumerate(keys) if key is None]
    assert all("key" in reason for _, reason in caught.value.record_errors)


@pytest.mark.parametrize("codec", list(Codec))
def test_every_timestamp_out_of_range_is_named_and_so_are_missing_keys(codec: Codec) -> None:
    times = [NOW_MS, NOW_MS - 1_001, NO_TIMESTAMP, NOW_MS + 1_001, NOW_MS + 1_000, NOW_MS]
    rows = [(time, None if index == 5 else b"k", b"v", ()) for index, time in enumerate(times)]
    batch = build_batch(rows, codec=codec)

    with pytest.raises(InvalidTimestampError) as caught:
        check_batch(memoryview(batch), LIMITS, NOW_MS)
    assert indexes(caught.value) == [1, 3, 5]
    reasons = dict(caught.value.record_errors)
    assert (
        reasons[1] == f"timestamp {NOW_MS - 1_001} is not within [{NOW_MS - 1000}, {NOW_MS + 1000}]"
    )
    assert "key" in reasons[5]


def test_a_batch_that_claims_the_brokers_timestamps_is_refused_for_all_its_records() -> None:
    batch = build_batch([(NOW_MS, b"k", b"v", ())] * 3, log_append_time_ms=NOW_MS)

    with pytest.raises(InvalidTimestampError) as caught:
        check_batch(memoryview(batch), LIMITS, NOW_MS)
    assert indexes(caught.value) == [0, 1, 2]


def test_what_is_damaged_names_nobody_further() -> None:
    batch = build_batch([(NOW_MS, None, b"v", ())] * 3)

    assert name_refused(batch[HEADER_BYTES:-1], read_header(batch), require_keys=True) == ()


def test_of_very_many_records_the_first_one_is_named() -> None:
    batch = build_batch([(NOW_MS, None, b"", ())] * (MOST_RECORDS + 1))

    with pytest.raises(InvalidRecordError) as caught:
        inspect(batch, read_header(batch))
    assert indexes(caught.value) == [0]


@given(
    rows=st.lists(
        st.tuples(st.integers(-5, 20), st.sampled_from((None, b"k"))), min_size=1, max_size=40
    ),
    allowed=st.builds(TimestampRange, st.integers(-5, 20), st.integers(-5, 20)),
    require_keys=st.booleans(),
)
def test_those_named_are_those_at_fault(
    rows: list[tuple[int, bytes | None]], allowed: TimestampRange, require_keys: bool
) -> None:
    batch = build_batch([(time, key, b"", ()) for time, key in rows])
    expected = [
        index
        for index, (time, key) in enumerate(rows)
        if (require_keys and key is None)
        or not (time == NO_TIMESTAMP or allowed.oldest_ms <= time <= allowed.newest_ms)
    ]
    named = name_refused(
        batch[HEADER_BYTES:], read_header(batch), require_keys=require_keys, allowed=allowed
    )
    assert [index for index, _ in named] == expected


def test_a_line_shows_the_first_ones() -> None:
    assert summarize(()) == ""
    assert summarize(((4, "no"),)) == "record 4: no"
    assert summarize(tuple((n, "no") for n in range(5))) == (
        "record 0: no; record 1: no; record 2: no; and 2 more records"
    )


@pytest.mark.parametrize("claimed", [4, QUICK_RECORDS, MOST_RECORDS, 2**31 - 1])
def test_a_batch_cannot_claim_records_to_have_them_named(claimed: int) -> None:
    """An answer for each record that 61 bytes announce would be a thousand times the request."""
    batch = build_batch([(NOW_MS, b"", b"", ())] * 3, log_append_time_ms=NOW_MS)
    struct.pack_into(">i", batch, 57, claimed)
    struct.pack_into(">i", batch, 23, claimed - 1)
    write_crc(batch)

    with pytest.raises(InvalidTimestampError) as caught:
        check_batch(memoryview(batch), LIMITS, NOW_MS)
    assert indexes(caught.value) == [0]
