"""Lines of input: how they are read, and what they say."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cli import produce_run
from moldau.cli.line_parser import LineParser, ParsedLines
from moldau.cli.produce_run import read_lines
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
    original = produce_run._CHUNK_BYTES
    produce_run._CHUNK_BYTES = 3
    try:
        found = lines_of(read_lines(reader))
    finally:
        produce_run._CHUNK_BYTES = original
        os.close(reader)
    assert found == [line.removesuffix(b"\r") for line in lines]


def test_a_pause_in_the_input_is_told() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"first\nsec")
    bunches = read_lines(reader)
    assert list(next(bunches)) == [b"first"]
    assert not next(bunches)
    done: list[Sequence[bytes]] = []
    thread = threading.Thread(target=lambda: done.extend(bunches))
    thread.start()
    os.write(writer, b"ond\n")
    os.close(writer)
    thread.join(60)
    assert [line for bunch in done for line in bunch] == [b"second"]
    os.close(reader)


def parse(parser: LineParser, *lines: bytes) -> ParsedLines:
    (found,) = parser.parse(lines, 7)
    return found


def test_a_line_is_a_value_where_no_separator_is_given() -> None:
    assert parse(LineParser(), b"a:b", b"") == ParsedLines((b"a:b", b""))


def test_a_separator_divides_key_from_value_at_its_first_place() -> None:
    found = parse(LineParser(key_separator="::"), b"k::v::w", b"::v", b"k::")
    assert found == ParsedLines((b"v::w", b"v", b""), (b"k", b"", b"k"))


def test_a_line_without_the_separator_is_refused_with_its_number_after_those_before_it() -> None:
    parsed = LineParser(key_separator=":").parse([b"a:1", b"b:2", b"nothing", b"c:3"], 7)
    assert next(parsed) == ParsedLines((b"1", b"2"), (b"a", b"b"))
    with pytest.raises(ConfigurationError, match="line 9 has no key separator ':': 'nothing'"):
        next(parsed)


def test_a_marker_stands_for_nothing() -> None:
    parser = LineParser(key_separator=":", null_marker="NULL")
    found = parse(parser, b"k:NULL", b"NULL:v")
    assert found == ParsedLines([None, b"v"], [b"k", None])
    assert parse(LineParser(null_marker=""), b"", b"a").values == [None, b"a"]
