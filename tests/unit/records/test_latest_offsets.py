"""One suite for the last offset of each key, of both record codecs: what `decode_records` says."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moldau.errors import InvalidRecordError
from moldau.records.codec import RecordCodec, decode_records, encode_records
from moldau.records.record import Record

SECRET = bytes(range(16))
BASE_MS = 1_700_000_000_000
MAX_INT64 = (1 << 63) - 1

on_both_codecs = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
keys = st.none() | st.sampled_from([b"", b"a", b"b", b"k" * 8, b"k" * 32, b"k" * 33, b"k" * 80])
timestamps = st.integers(BASE_MS - 50, BASE_MS + 50) | st.integers(-(1 << 63), MAX_INT64)
rows = st.lists(
    st.tuples(
        timestamps,
        keys,
        st.none() | st.binary(max_size=3),
        st.lists(st.tuples(st.sampled_from(["n", "m"]), st.binary(max_size=2)), max_size=2).map(
            tuple
        ),
    ),
    min_size=1,
    max_size=12,
)


def a_payload(pairs: list[tuple[bytes | None, bytes | None]]) -> bytes:
    return encode_records([(BASE_MS, key, value, ()) for key, value in pairs], BASE_MS)


def decoded(payload: bytes, count: int, base_offset: int, base_ms: int) -> list[Record]:
    return decode_records(payload, count, base_offset, base_ms)


@given(
    rows, rows, st.integers(0, 13), st.integers(0, 25), st.booleans(), st.none() | st.integers(0, 9)
)
@on_both_codecs
def test_what_stays_is_the_last_of_each_key(
    codec: RecordCodec,
    first: list,
    second: list,
    from_offset: int,
    end_offset: int,
    drops: bool,
    horizon: int | None,
) -> None:
    horizon_ms = None if horizon is None else BASE_MS + horizon
    old, new = encode_records(first, BASE_MS), encode_records(second, BASE_MS)
    latest = codec.LatestOffsets(1, SECRET)
    latest.add(old, len(first), 0, from_offset)
    latest.add(new, len(second), len(first), from_offset)
    records = decoded(old, len(first), 0, BASE_MS)
    every = records + decoded(new, len(second), len(first), BASE_MS)
    last = {
        one.key: one.offset for one in every if one.key is not None if one.offset >= from_offset
    }
    assert len(latest) == len(last)

    kept = [
        one
        for one in records
        if one.offset >= end_offset
        or (
            (one.key is not None and not (drops and one.value is None))
            and last.get(one.key, -1) <= one.offset
        )
    ]
    count, max_timestamp, sets_horizon, content = latest.select(
        old, len(first), 0, BASE_MS, end_offset, drops, horizon_ms
    )
    assert count == len(kept)
    if not kept:
        assert (sets_horizon, content) == (False, None)
        return
    assert max_timestamp == max(one.timestamp_ms for one in kept)
    assert sets_horizon == (horizon is not None and any(one.value is None for one in kept))
    assert (content is None) == (len(kept) == len(records) and not sets_horizon)
    if content is not None:
        base_ms = horizon_ms if sets_horizon and horizon_ms is not None else BASE_MS
        assert decoded(content, count, 0, base_ms) == kept


def test_many_keys_have_room_and_stay_apart(codec: RecordCodec) -> None:
    """More than were expected, so that the table grows."""
    latest = codec.LatestOffsets(10, SECRET)
    for start in range(0, 20_000, 1000):
        payload = a_payload([(b"key-%d" % (start + i), b"") for i in range(1000)])
        latest.add(payload, 1000, start, 0)
    assert len(latest) == 20_000
    payload = a_payload([(b"key-%d" % i, b"") for i in range(1000)])
    assert latest.select(payload, 1000, 0, BASE_MS, 20_000, False, None)[0] == 1000
    assert latest.select(payload, 1000, -1, BASE_MS, 20_000, False, None)[0] == 0


def test_nothing_is_known_after_it_was_cleared(codec: RecordCodec) -> None:
    latest = codec.LatestOffsets(10, SECRET)
    payload = a_payload([(b"a", b"1"), (b"a", b"2")])
    latest.add(payload, 2, 0, 0)
    latest.clear()
    assert len(latest) == 0
    assert latest.select(payload, 2, 0, BASE_MS, 2, False, None)[0] == 2
    latest.add(payload, 2, 0, 0)
    assert latest.select(payload, 2, 0, BASE_MS, 2, False, None)[0] == 1


@pytest.mark.parametrize("count", [-1, 1, 3, (1 << 31) - 1])
def test_another_number_of_records_is_refused(codec: RecordCodec, count: int) -> None:
    latest = codec.LatestOffsets(10, SECRET)
    payload = a_payload([(b"a", b"1"), (b"b", b"2")])
    with pytest.raises(InvalidRecordError):
        latest.add(payload, count, 0, 0)
    with pytest.raises(InvalidRecordError):
        latest.select(payload, count, 0, BASE_MS, 9, False, None)


@given(st.binary(max_size=40), st.integers(-1, 6) | st.just((1 << 31) - 1))
@on_both_codecs
def test_nonsense_is_refused_in_the_words_of_decode_records(
    codec: RecordCodec, payload: bytes, count: int
) -> None:
    latest = codec.LatestOffsets(1, SECRET)
    wanted = refusal(lambda: codec.decode_records(payload, count, 0, 0))
    assert refusal(lambda: latest.add(payload, count, 0, 0)) == wanted
    assert refusal(lambda: latest.select(payload, count, 0, 0, 9, False, BASE_MS)) == wanted


def refusal(act: Callable[[], object]) -> str | None:
    try:
        act()
    except InvalidRecordError as error:
        return str(error)
    return None


def test_a_secret_has_sixteen_bytes(codec: RecordCodec) -> None:
    with pytest.raises(ValueError, match="not 16"):
        codec.LatestOffsets(1, b"short")
