"""The walk over a message before kio reads it, type by type. Whole messages: `test_messages`."""

import struct
import sys
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from kio.index import load_response_schema

from moldau.errors import ErrorCode, MalformedFrameError
from moldau.wire.guard import Edit, Edits, apply_edits, walker_of
from moldau.wire.messages import encode_body, parse
from moldau.wire.shape import fit


def typed(kafka_type: str, **metadata: object) -> object:
    return field(metadata={"kafka_type": kafka_type, **metadata})


@dataclass(frozen=True)
class Legacy:
    """Every kind of field as it was before KIP-482."""

    __flexible__: ClassVar[bool] = False
    number: int = typed("int32")
    name: str | None = typed("string")
    data: bytes | None = typed("bytes")
    numbers: tuple[int, ...] = typed("int64")
    names: tuple[str, ...] | None = typed("string")


@dataclass(frozen=True)
class Inner:
    """A structure of fixed size."""

    __flexible__: ClassVar[bool] = False
    left: int = typed("int16")
    right: int = typed("int8")


@dataclass(frozen=True)
class Flexible:
    """Compact lengths and tagged fields."""

    __flexible__: ClassVar[bool] = True
    name: str | None = typed("string")
    numbers: tuple[int, ...] = typed("int32")
    label: str | None = field(default=None, metadata={"kafka_type": "string", "tag": 0})


def walk(entity: type, raw: bytes, most_elements: int = sys.maxsize) -> tuple[int, Edits]:
    edits = Edits(most_elements)
    return walker_of(entity).walk(memoryview(raw), 0, edits), edits


LEGACY = (
    struct.pack(">i", 1)
    + struct.pack(">h", 2)
    + b"ab"
    + struct.pack(">i", 3)
    + b"abc"
    + struct.pack(">i", 2)
    + bytes(16)
    + struct.pack(">ih", 1, 1)
    + b"x"
)


def test_a_legacy_message_is_walked_to_its_end() -> None:
    assert walk(Legacy, LEGACY) == (len(LEGACY), [])


def test_null_strings_bytes_and_arrays_have_no_content() -> None:
    raw = struct.pack(">ihiii", 1, -1, -1, 0, -1)
    assert walk(Legacy, raw) == (len(raw), [])


@pytest.mark.parametrize(
    "raw",
    [struct.pack(">ih", 1, -2) + bytes(20), struct.pack(">ihi", 1, -1, -2) + bytes(20)],
    ids=["string", "bytes"],
)
def test_a_negative_length_is_malformed(raw: bytes) -> None:
    with pytest.raises(MalformedFrameError, match="length of -2"):
        walk(Legacy, raw)


def test_a_structure_of_fixed_fields_has_a_fixed_size() -> None:
    walker = walker_of(Inner)
    assert (walker.min_bytes, walker.is_fixed) == (3, True)
    assert not walker_of(Legacy).is_fixed
    assert walker_of(Flexible).min_bytes == 3  # a length, a count, and the number of tagged fields


@pytest.mark.parametrize("count", [3, 0x7FFFFFFF, -1, -2])
def test_a_count_has_to_fit_into_the_bytes_that_are_left(count: int) -> None:
    raw = struct.pack(">ihii", 1, -1, -1, count) + bytes(16)
    with pytest.raises(MalformedFrameError, match=f"numbers has {count} elements in 16 bytes"):
        walk(Legacy, raw)


def test_all_elements_of_a_message_together_are_limited() -> None:
    assert walk(Legacy, LEGACY, most_elements=3)[1].elements_left == 0
    with pytest.raises(MalformedFrameError, match="too many elements"):
        walk(Legacy, LEGACY, most_elements=2)


def test_tagged_fields_count_as_elements() -> None:
    raw = b"\x00\x01\x02" + b"\x05\x00" + b"\x06\x00"
    with pytest.raises(MalformedFrameError, match="too many elements"):
        walk(Flexible, raw, most_elements=1)


def test_a_known_tagged_field_stays_and_an_unknown_one_is_cut_out() -> None:
    raw = b"\x00\x01" + b"\x02" + b"\x00\x02\x02a" + b"\x05\x03xyz"
    end, edits = walk(Flexible, raw)
    assert end == len(raw)
    assert apply_edits(memoryview(raw), 0, edits) == b"\x00\x01" + b"\x01" + b"\x00\x02\x02a"


def test_a_tagged_string_that_is_null_is_cut_out() -> None:
    raw = b"\x00\x01" + b"\x01" + b"\x00\x01\x00"
    assert apply_edits(memoryview(raw), 0, walk(Flexible, raw)[1]) == b"\x00\x01\x00"


def test_edits_are_made_in_the_order_of_the_bytes() -> None:
    edits = Edits()
    edits.append(Edit(4, 6, b"!"))
    edits.append(Edit(1, 2, b""))
    assert apply_edits(memoryview(b"0123456789"), 0, edits) == b"023!6789"
    assert apply_edits(memoryview(b"0123456789"), 1, edits) == b"23!6789"


def test_a_message_that_ends_too_early_is_not_walked_to_its_end() -> None:
    for end in range(len(LEGACY)):
        try:
            walked, _ = walk(Legacy, LEGACY[:end])
        except (MalformedFrameError, IndexError, struct.error):
            continue
        assert walked > end  # the last value was announced, and is not there


def test_no_time_is_the_beginning_of_time_where_the_schema_knows_no_null() -> None:
    row = {
        "error_code": ErrorCode.none,
        "transactional_id": "orders",
        "transaction_state": "Empty",
        "transaction_timeout": 1000,
        "transaction_start_time": -1,
        "producer_id": 7,
        "producer_epoch": 0,
        "topics": [],
    }
    message_class = load_response_schema(65, 0)
    body = encode_body(fit(message_class, {"throttle_time": 0, "transaction_states": [row]}))
    assert b"\xff" * 8 in body
    parsed: Any = parse(message_class, memoryview(body), 0)
    assert parsed.transaction_states[0].transaction_start_time.timestamp() == 0
