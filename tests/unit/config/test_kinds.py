from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.config.option import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    MAX_DOUBLE,
    SET,
    SHORT,
    STRING,
    Kind,
    any_of,
    at_least,
    between,
    one_of,
    to_text,
)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (BOOLEAN, "true", True),
        (BOOLEAN, " FALSE ", False),
        (INT, " 42 ", 42),
        (INT, "+7", 7),
        (INT, "-2147483648", -(2**31)),
        (LONG, "9223372036854775807", 2**63 - 1),
        (DOUBLE, "0.5", 0.5),
        (DOUBLE, "1.7976931348623157E308", MAX_DOUBLE),
        (STRING, "  producer ", "producer"),
        (LIST, "", ()),
        (LIST, " a , b", ("a", "b")),
        (SET, "compact,delete", frozenset({"compact", "delete"})),
    ],
)
def test_a_text_of_its_kind_is_read(kind: Kind[object], text: str, value: object) -> None:
    assert kind.parse(text) == value


@pytest.mark.parametrize(
    ("kind", "text", "fault"),
    [
        (BOOLEAN, "yes", "is neither true nor false"),
        (INT, "abc", "is not a whole number"),
        (INT, "", "is not a whole number"),
        (INT, "1.5", "is not a whole number"),
        (INT, "1_000", "is not a whole number"),
        (INT, "٣", "is not a whole number"),
        (INT, "10MB", "is not a whole number"),
        (INT, "2147483648", "does not fit into 32 bits"),
        (SHORT, "32768", "does not fit into 16 bits"),
        (LONG, "-9223372036854775809", "does not fit into 64 bits"),
        (DOUBLE, "nan", "is not a number"),
        (DOUBLE, "half", "is not a number"),
        (LIST, "a,,b", "has an empty item between two commas"),
    ],
)
def test_a_wrong_text_is_refused_with_a_reason(kind: Kind[object], text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        kind.parse(text)


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_long_is_read_back_from_its_text(value: int) -> None:
    assert LONG.parse(to_text(value)) == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_double_is_read_back_from_its_text(value: float) -> None:
    assert DOUBLE.parse(to_text(value)) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (0.5, "0.5"),
        (MAX_DOUBLE, "1.7976931348623157E308"),
        (frozenset({"delete", "compact"}), "compact,delete"),
        ((), ""),
        ({"10.0.0.1": 5}, "10.0.0.1:5"),
    ],
)
def test_values_are_printed_as_kafka_prints_them(value: object, text: str) -> None:
    assert to_text(value) == text


@pytest.mark.parametrize(
    ("kind", "text", "tidy"),
    [
        (BOOLEAN, " TRUE", "true"),
        (INT, "+05", "5"),
        (SET, " delete , compact ", "delete,compact"),
        (STRING, " lz4 ", "lz4"),
        (DOUBLE, "1", "1.0"),
    ],
)
def test_a_given_text_is_tidied_but_keeps_its_order(
    kind: Kind[object], text: str, tidy: str
) -> None:
    assert kind.tidy(text) == tidy


def test_a_range_names_its_limit() -> None:
    assert at_least(1).find_fault(1) is None
    assert at_least(1).find_fault(0) == "is less than 1"
    assert between(0, 1).find_fault(1) is None
    assert between(0, 1).find_fault(1.5) == "is not between 0 and 1"


def test_a_choice_names_its_words() -> None:
    assert one_of("full", "header").find_fault("header") is None
    assert one_of("full", "header").find_fault("none") == "is not one of full, header"
    assert any_of("compact", "delete").find_fault(frozenset({"delete"})) is None
    fault = any_of("compact", "delete").find_fault(frozenset({"delete", "burn"}))
    assert fault == "names burn, which is not one of compact, delete"
