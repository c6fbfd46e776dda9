"""The two record codecs must agree on anything, most of all on nonsense."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from moldau.errors import InvalidRecordError
from moldau.records import _codec_pure as pure
from moldau.records.batch_header import Buffer
from moldau.records.columns import ColumnSource
from moldau.records.record import NewRecord

native = pytest.importorskip("moldau.records._codec_native")

small = st.none() | st.binary(max_size=12)
rows_of_a_batch = st.lists(
    st.builds(
        NewRecord,
        st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 300),
        small,
        small,
        st.lists(st.tuples(st.text(max_size=4), small), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=5,
)
counts = st.integers(-2, 8) | st.just((1 << 31) - 1)
edge_bytes = st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0x81, 0xFE, 0xFF]) | st.integers(0, 255)


def outcome(act: Callable[[], object]) -> object:
    """What comes out, be it a value or a refusal; any other exception fails the test."""
    try:
        return act()
    except InvalidRecordError as error:
        return str(error)


def plain(found: object) -> object:
    """Buffers as bytes, so that they can be compared."""
    if isinstance(found, tuple):
        return tuple(map(plain, found))
    return bytes(found) if isinstance(found, memoryview) else found


def assert_twins_agree(payload: Buffer, count: int) -> None:
    for require_keys in (False, True):
        assert native.find_fault(payload, count, require_keys) == pure.find_fault(
            payload, count, require_keys
        )
    assert outcome(lambda: native.decode_records(payload, count, 1 << 40, 1 << 41)) == outcome(
        lambda: pure.decode_records(payload, count, 1 << 40, 1 << 41)
    )
    for start in (0, (1 << 40) + 1):
        sources = [ColumnSource(payload, count, 1 << 40, 1 << 41, None, start, 1 << 62)] * 2
        assert outcome(lambda: plain(native.decode_columns(sources))) == outcome(  # noqa: B023
            lambda: plain(pure.decode_columns(sources))  # noqa: B023
        )
    for target in (0, 1 << 41, (1 << 63) - 1):
        assert outcome(
            lambda: native.find_first_at_or_after(payload, count, 5, 1 << 41, target)  # noqa: B023
        ) == outcome(
            lambda: pure.find_first_at_or_after(payload, count, 5, 1 << 41, target)  # noqa: B023
        )


@given(st.binary(max_size=60) | st.lists(edge_bytes, max_size=40).map(bytes), counts)
@example(b"", 0)
@example(b"\xff" * 30, 1)
@example(b"\x00" * 30, 3)
def test_the_twins_agree_on_random_bytes(payload: bytes, count: int) -> None:
    assert_twins_agree(payload, count)


@given(data=st.data(), rows=rows_of_a_batch)
def test_the_twins_agree_on_mutated_records(data: st.DataObject, rows: list[NewRecord]) -> None:
    payload = bytearray(native.encode_records(rows, 0))
    for _ in range(data.draw(st.integers(0, 4))):
        position = data.draw(st.integers(0, len(payload) - 1))
        match data.draw(st.sampled_from(["replace", "insert", "delete"])):
            case "replace":
                payload[position] = data.draw(edge_bytes)
            case "insert":
                payload.insert(position, data.draw(edge_bytes))
            case "delete" if len(payload) > 1:
                del payload[position]
    assert_twins_agree(payload, data.draw(st.just(len(rows)) | counts))


@given(rows_of_a_batch, st.integers(-(1 << 63), (1 << 63) - 1))
def test_the_twins_encode_alike(rows: list[NewRecord], base_timestamp: int) -> None:
    assert native.encode_records(rows, base_timestamp) == pure.encode_records(rows, base_timestamp)


def test_the_twins_offer_the_same() -> None:
    def offered(module: object) -> set[str]:
        return {name for name in dir(module) if name.startswith(("find_", "decode_", "encode_"))}

    assert offered(native) == offered(pure) != set()


def test_the_walk_of_a_large_payload_sees_the_last_byte() -> None:
    rows = [NewRecord(index, b"key", bytes(100)) for index in range(3000)]
    payload = bytearray(native.encode_records(rows, 0))
    assert native.find_fault(payload, 3000, True) is None

    payload[-1] = 2  # one header where none follows

    fault = native.find_fault(payload, 3000, True)
    assert fault == pure.find_fault(payload, 3000, True)
    assert fault is not None
    assert fault.index == 2999
