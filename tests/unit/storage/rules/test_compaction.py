from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.errors import CorruptBatchError
from moldau.records.batch_header import (
    DELETE_HORIZON_FLAG,
    HEADER_BYTES,
    Buffer,
    crc_matches,
    read_header,
)
from moldau.records.compression import Codec
from moldau.records.record import Record
from moldau.records.record_batch import (
    ControlType,
    EndTransactionMarker,
    build_batch,
    build_marker_batch,
    records_of,
)
from moldau.storage.rules.log_cleaner import (
    AbortedRanges,
    CompactionTerms,
    KeyMap,
    compact_batch,
    find_producer_ends,
    map_batch,
)
from moldau.storage.rules.producer_state import ProducerEntry, RememberedBatch

NOW_MS = 1_700_000_000_000
TERMS = CompactionTerms(NOW_MS, 1000)
LATER = CompactionTerms(NOW_MS + 1000, 1000)
SECRET = bytes(range(16))
NONE_ABORTED = AbortedRanges(())

Pair = tuple[bytes | None, bytes | None]


def a_batch(*pairs: Pair, base_offset: int = 0, **fields) -> bytearray:
    rows = [(NOW_MS - 50 + i, key, value, ()) for i, (key, value) in enumerate(pairs)]
    return build_batch(rows, base_offset=base_offset, **fields)


def keys_of(*batches: Buffer, max_keys: int = 100, aborted: AbortedRanges = NONE_ABORTED) -> KeyMap:
    keys = KeyMap(max_keys, 0, 10, SECRET)
    for batch in batches:
        map_batch(keys, batch, read_header(batch), aborted, 0)
    return keys


def compact(
    batch: Buffer,
    keys: KeyMap,
    terms: CompactionTerms = TERMS,
    aborted: AbortedRanges = NONE_ABORTED,
    **fields,
) -> Buffer | None:
    left = compact_batch(batch, read_header(batch), keys, aborted, terms, **fields)
    if left is not None:
        header = read_header(left)
        assert header.size_bytes == len(left)
        assert crc_matches(left, header)
        before = read_header(batch)
        for name in ("base_offset", "last_offset", "leader_epoch", "producer_id", "base_sequence"):
            assert getattr(header, name) == getattr(before, name), name
    return left


def rows_of(batch: Buffer | None) -> list[tuple[int, bytes | None, bytes | None]]:
    assert batch is not None
    return [(record.offset, record.key, record.value) for record in records_of(batch)]


@pytest.mark.parametrize("codec", list(Codec))
def test_only_the_last_record_of_a_key_stays_at_its_offset(codec: Codec):
    old = a_batch((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), base_offset=5, codec=codec)
    new = a_batch((b"b", b"2"), base_offset=8)
    left = compact(old, keys_of(old, new))
    assert rows_of(left) == [(7, b"a", b"2")]
    assert read_header(left).codec == codec
    (record,) = records_of(left)
    assert record.timestamp_ms == NOW_MS - 48


def test_a_batch_of_which_nothing_goes_is_the_same_object():
    batch = a_batch((b"a", b"1"), (b"b", b"1"))
    assert compact(batch, keys_of(batch)) is batch


def test_a_batch_of_which_nothing_stays_is_gone():
    old, new = a_batch((b"a", b"1")), a_batch((b"a", b"2"), base_offset=1)
    assert compact(old, keys_of(old, new)) is None


def test_headers_and_timestamps_of_what_stays_are_the_same():
    rows = [(NOW_MS + 7, b"a", b"1", ()), (NOW_MS - 3, b"b", b"v", (("name", b"x"), ("n", None)))]
    old = build_batch(rows)
    left = compact(old, keys_of(old, a_batch((b"a", b"2"), base_offset=2)))
    assert records_of(left) == records_of(old)[1:]
    assert read_header(left).max_timestamp == NOW_MS - 3


def test_the_log_append_time_stays():
    old = a_batch((b"a", b"1"), (b"b", b"1"), log_append_time_ms=NOW_MS + 9)
    left = compact(old, keys_of(old, a_batch((b"a", b"2"), base_offset=2)))
    assert [record.timestamp_ms for record in records_of(left)] == [NOW_MS + 9]


def test_records_without_a_key_go():
    batch = a_batch((None, b"1"), (b"a", b"1"))
    assert rows_of(compact(batch, keys_of(batch))) == [(1, b"a", b"1")]


def test_a_long_key_is_compared_too():
    long, other = b"k" * 33, b"k" * 34
    old = a_batch((long, b"1"), (other, b"1"))
    left = compact(old, keys_of(old, a_batch((long, b"2"), base_offset=2)))
    assert rows_of(left) == [(1, other, b"1")]


# Tombstones


def test_a_tombstone_is_marked_with_its_delete_horizon_when_it_is_first_kept():
    batch = a_batch((b"a", b"1"), (b"a", None), (b"b", b"1"))
    left = compact(batch, keys_of(batch))
    header = read_header(left)
    assert header.attributes & DELETE_HORIZON_FLAG
    assert header.base_timestamp == NOW_MS + 1000
    assert records_of(left) == records_of(batch)[1:]


def test_a_marked_tombstone_stays_until_its_horizon_and_goes_then():
    batch = a_batch((b"a", None), (b"b", b"1"))
    keys = keys_of(batch)
    marked = compact(batch, keys)
    soon = CompactionTerms(NOW_MS + 999, 1000)
    assert compact(marked, keys, soon) is marked
    left = compact(marked, keys, LATER)
    assert records_of(left) == records_of(batch)[1:]


def test_a_tombstone_that_is_superseded_goes_at_once():
    old = a_batch((b"a", None))
    assert compact(old, keys_of(old, a_batch((b"a", b"1"), base_offset=1))) is None


def test_the_longest_retention_does_not_overflow():
    batch = a_batch((b"a", None))
    left = compact(batch, keys_of(batch), CompactionTerms(NOW_MS, (1 << 63) - 1))
    assert read_header(left).base_timestamp == (1 << 63) - 1
    assert records_of(left) == records_of(batch)


# What others rely on


def test_the_last_batch_of_a_producer_stays_as_a_bare_header():
    fields = {"producer_id": 7, "producer_epoch": 2, "base_sequence": 40, "leader_epoch": 3}
    old = a_batch((b"a", b"1"), (b"a", b"2"), base_offset=10, codec=Codec.GZIP, **fields)
    keys = keys_of(old, a_batch((b"a", b"3"), base_offset=12))
    left = compact(old, keys, last_offsets={7: (11,)})
    header = read_header(left)
    assert len(left) == HEADER_BYTES
    assert (header.record_count, header.codec, header.last_sequence) == (0, 0, 41)
    assert header.max_timestamp == read_header(old).max_timestamp
    assert compact(left, keys, last_offsets={7: (11,)}) is left
    assert compact(left, keys, last_offsets={7: (20,)}) is None


def test_the_last_batch_of_a_segment_stays_as_a_bare_header():
    old, new = a_batch((b"a", b"1")), a_batch((b"a", b"2"), base_offset=1)
    assert len(compact(old, keys_of(old, new), ends_segment=True)) == HEADER_BYTES


def test_markers_stay():
    marker = build_marker_batch(
        EndTransactionMarker(ControlType.COMMIT, 0),
        timestamp_ms=NOW_MS,
        producer_id=7,
        producer_epoch=0,
    )
    assert compact(marker, keys_of(marker)) is marker


def test_aborted_records_go_and_supersede_nothing():
    kept = a_batch((b"a", b"1"))
    lost = a_batch((b"a", b"2"), base_offset=1, transactional=True, producer_id=7)
    later = a_batch((b"b", b"1"), base_offset=3, transactional=True, producer_id=7)
    aborted = AbortedRanges([(7, 1, 2)])
    keys = keys_of(kept, lost, later, aborted=aborted)
    assert compact(kept, keys, aborted=aborted) is kept
    assert compact(lost, keys, aborted=aborted) is None
    assert compact(later, keys, aborted=aborted) is later


def test_damage_does_not_get_a_new_checksum():
    batch = a_batch((b"a", b"1"))
    keys = keys_of(batch)
    batch[-1] ^= 1
    with pytest.raises(CorruptBatchError):
        compact_batch(batch, read_header(batch), keys, NONE_ABORTED, TERMS)
    with pytest.raises(CorruptBatchError):
        map_batch(keys, batch, read_header(batch), NONE_ABORTED, 0)


# The map


def test_a_full_map_ends_the_compared_range_before_the_batch_that_has_no_room():
    first = a_batch((b"a", b"1"), (b"b", b"1"))
    second = a_batch((b"a", b"2"), (b"c", b"2"), base_offset=2)
    keys = keys_of(first, max_keys=3)
    assert not map_batch(keys, second, read_header(second), NONE_ABORTED, 0)
    assert keys.end_offset == 2
    assert compact(first, keys) is first
    assert compact(second, keys) is second


def test_the_first_batch_always_has_room():
    keys = keys_of(a_batch((b"a", b"1"), (b"b", b"1")), max_keys=1)
    assert keys.end_offset == 2


def test_a_batch_that_was_cleaned_in_part_is_compared_from_the_dirty_offset_on():
    batch = a_batch((b"a", b"1"), (b"b", b"1"), base_offset=0)
    keys = KeyMap(10, 1, 10, SECRET)
    map_batch(keys, batch, read_header(batch), NONE_ABORTED, 1)
    assert len(keys) == 1


@st.composite
def logs(draw) -> list[bytearray]:
    batches, offset = [], 0
    pairs = st.tuples(
        st.sampled_from([b"a", b"b", b"c", b"long" * 10, None]), st.none() | st.binary(max_size=3)
    )
    for _ in range(draw(st.integers(1, 6))):
        rows = draw(st.lists(pairs, min_size=1, max_size=5))
        codec = draw(st.sampled_from([Codec.NONE, Codec.ZSTD]))
        batches.append(a_batch(*rows, base_offset=offset, codec=codec))
        offset += len(rows)
    return batches


@given(logs())
def test_whoever_reads_a_compacted_log_ends_up_with_the_same_table(batches: list[bytearray]):
    keys = keys_of(*batches)
    left = [each for batch in batches if (each := compact(batch, keys)) is not None]
    before = [record for batch in batches for record in records_of(batch)]
    after = [record for batch in left for record in records_of(batch)]
    assert table_of(after) == table_of(before)
    assert len({record.key for record in after}) == len(after)
    assert set(after) <= set(before)
    # A second round over the clean log changes nothing before the horizon.
    assert [compact(batch, keys) for batch in left] == left


def table_of(records: list[Record]) -> dict[bytes, Record]:
    return {record.key: record for record in records if record.key is not None}


def a_producer(producer_id: int, *last_offsets: int) -> ProducerEntry:
    batches = tuple(RememberedBatch(0, offset, 0, NOW_MS) for offset in last_offsets)
    return ProducerEntry(producer_id, 0, batches, NOW_MS)


def test_a_producer_is_known_by_its_last_batch_and_by_the_last_that_a_power_loss_would_leave():
    producers = [a_producer(1, 5, 9, 25), a_producer(2, 30, 31), a_producer(3, 12), a_producer(4)]
    ends = find_producer_ends(producers, {2: 17}, end_offset=20)
    assert ends[1] == (25, 9)
    assert ends[2] == (31, 17)
    assert ends[3] == (12, 12)
    assert list(ends[4]) == []
    # All that is remembered is behind the range: any of the former may be the last before it.
    assert 3 in find_producer_ends([a_producer(2, 30, 31)], {}, end_offset=20)[2]
