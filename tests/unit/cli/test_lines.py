"""Lines of input: how they are read, and what they say."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cli import line_source
from moldau.cli.line_parser import LineParser, ParsedLine
from moldau.cli.line_source import read_lines
from moldau.errors import ConfigurationError


def lines_of(bunches: Iterator[Sequence[bytes]]) -> list[bytes]:
    return [line for bunch in bunches for line in bunch]


def lines_in(path: Path) -> list[bytes]:
    with path.open("rb", buffering=0) as file:
        return lines_of(read_lines(file.fileno()))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"one", [b"one"]),
        (b"one\n", [b"one"]),
        (b"one\ntwo", [b"one", b"two"]),
        (b"\n\n", [b"", b""]),
        (b"dos\r\nline\r\n", [b"dos", b"line"]),
        (b"\xff\x00\n", [b"\xff\x00"]),
    ],
)
def test_lines_come_without_their_ends(
    content: bytes, expected: list[bytes], tmp_path: Path
) -> None:
    path = tmp_path / "input"
    path.write_bytes(content)
    assert lines_in(path) == expected


@given(st.lists(st.binary(max_size=30).filter(lambda line: b"\n" not in line), max_size=20))
def test_chunks_may_end_anywhere_in_a_line(lines: list[bytes]) -> None:
    reader, writer = os.pipe()
    content = b"".join(line + b"\n" for line in lines)
    os.write(writer, content)
    os.close(writer)
    original = line_source._CHUNK_BYTES
    line_source._CHUNK_BYTES = 3
    try:
        found = lines_of(read_lines(reader))
    finally:
        line_source._CHUNK_BYTES = original
        os.close(reader)
    assert found == [line.removesuffix(b"\r") for line in lines]


def test_a_pause_in_the_input_is_told() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"first\nsec")
    bunches = read_lines(reader)
    assert next(bunches) == [b"first"]
    assert next(bunches) == ()
    done: list[Sequence[bytes]] = []
    thread = threading.Thread(target=lambda: done.extend(bunches))
    thread.start()
    os.write(writer, b"ond\n")
    os.close(writer)
    thread.join(10)
    assert [line for bunch in done for line in bunch] == [b"second"]
    os.close(reader)


def test_a_line_is_a_value_where_no_separator_is_given() -> None:
    assert LineParser().parse(b"a:b", 1) == ParsedLine(None, b"a:b")


def test_a_separator_divides_key_from_value_at_its_first_place() -> None:
    parser = LineParser(key_separator="::")
    assert parser.parse(b"k::v::w", 1) == ParsedLine(b"k", b"v::w")
    assert parser.parse(b"::v", 1) == ParsedLine(b"", b"v")
    assert parser.parse(b"k::", 1) == ParsedLine(b"k", b"")


def test_a_line_without_the_separator_is_refused_with_its_number() -> None:
    with pytest.raises(ConfigurationError, match="line 7 has no key separator ':': 'nothing'"):
        LineParser(key_separator=":").parse(b"nothing", 7)


def test_a_marker_stands_for_nothing() -> None:
    parser = LineParser(key_separator=":", null_marker="NULL")
    assert parser.parse(b"k:NULL", 1) == ParsedLine(b"k", None)
    assert parser.parse(b"NULL:v", 1) == ParsedLine(None, b"v")
    assert LineParser(null_marker="").parse(b"", 1) == ParsedLine(None, None)
