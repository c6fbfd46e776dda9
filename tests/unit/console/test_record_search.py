"""What is found among records."""

from __future__ import annotations

import pytest

from moldau.console.records import Search
from moldau.errors import ConfigurationError


def test_a_text_is_found_in_keys_and_values() -> None:
    assert Search(text="Ab").compile().finds(b"xAB", None)
    assert Search(text="ab").compile().finds(None, b"xab")
    assert not Search(text="ab", in_value=False).compile().finds(None, b"ab")
    assert not Search(text="ab").compile().finds(None, None)


def test_case_counts_when_it_was_asked_for() -> None:
    search = Search(text="Ab", match_case=True).compile()
    assert search.finds(None, b"xAb")
    assert not search.finds(b"ab", b"AB")


def test_headers_are_searched_when_that_was_asked_for() -> None:
    headers = (("trace-id", b"abc"), ("empty", None))
    assert not Search(text="abc").compile().finds(None, None, headers)
    assert Search(text="abc", in_headers=True).compile().finds(None, None, headers)
    assert Search(text="TRACE", in_headers=True).compile().finds(None, None, headers)


def test_a_regular_expression_is_matched_on_any_bytes() -> None:
    pytest.importorskip("re2")
    search = Search(text=r"order-\d{3}$", is_pattern=True).compile()
    assert search.finds(None, b"\xff\x00Order-123")
    assert not search.finds(b"order-12", b"order-1234")
    assert not Search(text="A", is_pattern=True, match_case=True).compile().finds(None, b"a")


def test_what_is_no_regular_expression_is_said() -> None:
    pytest.importorskip("re2")
    with pytest.raises(ConfigurationError, match="no regular expression"):
        Search(text="(", is_pattern=True).compile()


def test_an_expression_that_would_run_for_ever_elsewhere_is_quick() -> None:
    pytest.importorskip("re2")
    search = Search(text="(a+)+$", is_pattern=True).compile()
    assert not search.finds(None, b"a" * 50_000 + b"b")


def test_a_very_long_text_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="at most"):
        Search(text="x" * 1001).compile()
