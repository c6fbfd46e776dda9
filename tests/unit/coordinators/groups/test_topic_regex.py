"""Expressions of clients over topic names: what they find, and what is not taken from anybody."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("re2", reason="install moldau[regex]")

from moldau.coordinators.groups.rules.consumer_membership import check_regex, find_matching
from moldau.coordinators.runtime import regular_expressions
from moldau.coordinators.runtime.regular_expressions import compile_regular_expression
from moldau.errors import (
    ErrorCode,
    InvalidRegularExpressionError,
    RegularExpressionsNotSupportedError,
)


def test_whole_names_match_those_of_internal_topics_too() -> None:
    names = ["orders", "orders-eu", "my-orders", "__consumer_offsets"]
    assert find_matching("orders.*", names) == {"orders", "orders-eu"}
    assert find_matching(".*", names) == set(names)


def test_topics_that_come_and_go_are_noticed() -> None:
    assert find_matching("a.", ["a1", "b1"]) == {"a1"}
    assert find_matching("a.", ["a1", "b1", "a2", "b2"]) == {"a1", "a2"}
    assert find_matching("a.", ["a2", "a3"]) == {"a2", "a3"}
    check_regex("a.")
    assert find_matching("a.", ["a2", "b3"]) == {"a2"}
    assert find_matching("a.", []) == frozenset()


def test_topics_that_were_looked_at_are_not_matched_again() -> None:
    names = ["c1", "d1"]
    first = find_matching("c.", names)
    assert find_matching("c.", list(names)) is first


@pytest.mark.parametrize(
    "regex",
    ["a" * 1_001, r"[\p{L}]{1000}", "((a{20}){20}){20}", "(" * 900, "("],
    ids=lambda regex: regex[:12],
)
def test_what_could_hold_the_broker_up_is_refused(regex: str) -> None:
    with pytest.raises(InvalidRegularExpressionError):
        check_regex(regex)


def test_characters_that_no_name_has_are_taken() -> None:
    assert find_matching("[^é]*|ordérs", ["orders"]) == {"orders"}


def test_without_re2_it_is_said_what_to_install_and_the_expression_is_not_blamed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    compile_regular_expression.cache_clear()
    regular_expressions._warn_of_missing_package.cache_clear()
    for regex in ("a.*", "b.*"):
        with pytest.raises(
            RegularExpressionsNotSupportedError, match=r"pip install 'moldau\[regex\]'"
        ) as caught:
            check_regex(regex)
        assert caught.value.code is ErrorCode.invalid_request
    compile_regular_expression.cache_clear()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "pip install 'moldau[regex]'" in caplog.text
