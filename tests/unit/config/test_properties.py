from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.config.properties import parse_properties


def pairs(text: str) -> list[tuple[str, str]]:
    return [(one.name, one.value) for one in parse_properties(text)]


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("a=b", "a", "b"),
        ("a = b", "a", "b"),
        ("a:b", "a", "b"),
        ("a b", "a", "b"),
        ("a\t:\tb", "a", "b"),
        ("   a=b", "a", "b"),
        ("a", "a", ""),
        ("a=", "a", ""),
        ("a==b", "a", "=b"),
        ("a = = b", "a", "= b"),
        ("listeners=PLAINTEXT://:9092", "listeners", "PLAINTEXT://:9092"),
        ("a=b # no comment", "a", "b # no comment"),
        ("a=b  ", "a", "b  "),
        (r"a\=b=c", "a=b", "c"),
        (r"a\ b c", "a b", "c"),
        (r"path=C:\\logs", "path", r"C:\logs"),
        (r"a=\t\n\r\f", "a", "\t\n\r\f"),
        (r"a=\q\"", "a", 'q"'),
        (r"a=\u00e9\u4E2D", "a", "é中"),
        (r"a=\ud83d\ude00", "a", "😀"),
        ("a=é", "a", "é"),
        ("\ufeffa=b", "a", "b"),
    ],
)
def test_one_line_is_read_as_java_reads_it(line: str, name: str, value: str) -> None:
    assert pairs(line) == [(name, value)]


def test_comments_and_blank_lines_are_passed_over() -> None:
    assert pairs("# one\n  ! two\n\n   \na=b\n") == [("a", "b")]


def test_a_backslash_at_the_end_continues_the_line_without_its_indent() -> None:
    assert pairs("a=1,\\\n    2,\\\n    3\nb=4") == [("a", "1,2,3"), ("b", "4")]


def test_an_escaped_backslash_at_the_end_continues_nothing() -> None:
    assert pairs("a=1\\\\\nb=2") == [("a", "1\\"), ("b", "2")]


def test_a_comment_cannot_be_continued() -> None:
    assert pairs("# comment \\\na=b") == [("a", "b")]


def test_a_hash_in_a_continuation_is_part_of_the_value() -> None:
    assert pairs("a=1\\\n#2") == [("a", "1#2")]


def test_a_continuation_at_the_end_of_the_file_ends_there() -> None:
    assert pairs("a=b\\") == [("a", "b")]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_numbers_count_from_one_and_name_the_beginning(end: str) -> None:
    text = end.join(["# comment", "a=1\\", "2", "", "b=3"])
    assert [(one.name, one.line_number) for one in parse_properties(text)] == [("a", 2), ("b", 5)]


@pytest.mark.parametrize("text", [r"b=\u12", r"b=\u12g4", r"b=\u"])
def test_a_damaged_escape_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"line 2: \\u must be followed by four hexadecimal"):
        parse_properties("a=1\n" + text)


def escaped(text: str) -> str:
    """Write a text the way Java's `Properties.store` does, but with every character escaped."""
    units = text.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


@given(st.text(min_size=1), st.text())
def test_every_text_survives_in_escapes(name: str, value: str) -> None:
    assert pairs(f"{escaped(name)}={escaped(value)}") == [(name, value)]


@given(st.text(alphabet=st.characters(exclude_characters="\\")))
def test_any_text_without_a_backslash_is_read(text: str) -> None:
    lines = text.count("\n") + text.count("\r") + 1
    assert all(1 <= one.line_number <= lines for one in parse_properties(text))
