from __future__ import annotations

import contextlib
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.errors import SchemaDecodingError
from moldau.schemas.rules.framing import make_head, make_indexes, read_indexes, split_frame

GUID = UUID("0199a2b4-5c1d-7e33-8f00-112233445566")


@given(st.integers(0, (1 << 31) - 1), st.binary())
def test_a_number_stands_before_the_bytes(schema_id: int, body: bytes) -> None:
    framed = split_frame(make_head(schema_id) + body)

    assert (framed.key, framed.rest, framed.indexes_apart) == (schema_id, body, None)


def test_a_guid_in_a_header_goes_before_the_bytes_and_belongs_to_one_field() -> None:
    headers = (("other", b"x"), ("__value_schema_id", b"\1" + GUID.bytes + make_indexes([1])))

    framed = split_frame(b"\0\0\0\0\1", headers)

    assert framed == (GUID, b"\0\0\0\0\1", make_indexes([1]))
    assert split_frame(b"\0\0\0\0\1", headers, "key").key == 1


def test_the_bytes_of_other_formats_are_as_confluent_writes_them() -> None:
    assert make_indexes([0]) == b"\0"
    assert make_indexes([1, 0]) == b"\x04\x02\x00"
    assert make_head(258) == b"\0\0\0\1\2"


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=20), st.binary())
def test_indexes_are_read_as_they_were_written(indexes: list[int], body: bytes) -> None:
    written = make_indexes(indexes)

    assert read_indexes(written + body) == (tuple(indexes), len(written))


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "empty"),
        (b"\x7b}", "0x7b"),
        (b"\0\0\1", "3 bytes"),
    ],
)
def test_bytes_that_name_no_schema_are_told(data: bytes, told: str) -> None:
    with pytest.raises(SchemaDecodingError, match=told):
        split_frame(data)


@given(st.binary(max_size=30))
def test_no_bytes_are_read_into_another_error(data: bytes) -> None:
    for work in (
        lambda: split_frame(data),
        lambda: split_frame(b"x", (("__value_schema_id", data),)),
        lambda: read_indexes(data),
    ):
        with contextlib.suppress(SchemaDecodingError):
            work()


def test_what_is_no_number_of_a_registry_is_not_asked_for() -> None:
    """Some answer with a failure of theirs, which would be taken for a registry that is away."""
    with pytest.raises(SchemaDecodingError, match="2147483648 is not the number"):
        split_frame(b"\0\x80\0\0\0body")
