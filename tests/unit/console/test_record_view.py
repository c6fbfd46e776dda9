"""Keys and values as they are shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.client.consumer.rules.fetch_buffer import ConsumerRecord
from moldau.console.record_view import (
    KEPT_BYTES,
    PREVIEW_CHARACTERS,
    Format,
    Kept,
    SchemaReading,
    hex_dump,
    keep,
    preview,
    record_rows,
    show,
)


def kept(data: bytes | None) -> Kept:
    return keep(ConsumerRecord("t", 0, 0, 0, None, data)).value


@pytest.mark.parametrize(
    ("data", "text", "shown"),
    [
        (b'{"a": [1]}', '{\n  "a": [\n    1\n  ]\n}', Format.JSON),
        (b"{not json", "{not json", Format.TEXT),
        (b"42", "42", Format.TEXT),
        ("Moldau, česky Vltava".encode(), "Moldau, česky Vltava", Format.TEXT),
        (b"", "", Format.TEXT),
        (None, "null", Format.TEXT),
        (b"\x00\x01", "000000  00 01" + " " * 44 + "..", Format.HEX),
    ],
)
def test_the_format_is_found(data: bytes | None, text: str, shown: Format) -> None:
    found = show(kept(data))
    assert (found.text, found.format) == (text, shown)


def test_a_format_may_be_asked_for() -> None:
    assert show(kept(b"42"), Format.JSON).format is Format.JSON
    assert "not JSON" in show(kept(b"{"), Format.JSON).remark
    assert show(kept(b"ab"), Format.HEX).text.startswith("000000  61 62")
    assert show(kept(b"\xff"), Format.TEXT).text == "�"


def test_what_is_large_is_cut_and_says_so() -> None:
    large = kept("ä".encode() * KEPT_BYTES)
    assert large.data is not None
    assert len(large.data) == KEPT_BYTES
    assert show(large).remark == "the first 64.0 KB of 128 KB"
    odd = kept(b"x" + "ä".encode() * KEPT_BYTES)  # cut in the middle of a character
    assert show(odd).format is Format.TEXT


def test_a_row_is_one_line() -> None:
    assert preview(kept(b"a\n  b")) == "a b"
    assert preview(kept(b"\n ")) == "  "
    assert preview(kept(None)) == "null"
    assert len(preview(kept(b"x" * 1000))) == PREVIEW_CHARACTERS
    assert preview(kept(b"\x00" * 100)).startswith("0x0000")


def test_hex_goes_on_for_8_kb() -> None:
    assert hex_dump(bytes(9000)).endswith("… 808 bytes more")


@given(st.binary(max_size=400))
def test_anything_can_be_shown(data: bytes) -> None:
    for wanted in Format:
        assert isinstance(show(kept(data), wanted).text, str)
    assert "\n" not in preview(kept(data))


def test_rows_have_an_id_that_finds_the_record() -> None:
    record = keep(ConsumerRecord("t", 3, 17, 1_700_000_000_123, b"k", b"v", [("h", b"1")]))
    assert record.headers[0][1].data == b"1"
    (row,) = record_rows([record])
    assert (row["id"], row["key"], row["value"], row["size"]) == ("3-17", "k", "v", "2 B")


def test_halves_of_characters_are_shown_as_json_has_them() -> None:
    """Browsers cannot be sent any: a page would stand still."""
    assert show(kept(b'["\\ud800"]')).text == '[\n  "\\ud800"\n]'
    reading = SchemaReading(text='"\ud800"', failure="\udfff")
    read = keep(ConsumerRecord("t", 0, 0, 0, None, b"x"), value=reading).value
    assert show(read).text == '"\\ud800"'
    assert preview(read) == '"\\ud800"'
    assert read.decoding is not None
    assert read.decoding.failure == "\\udfff"
