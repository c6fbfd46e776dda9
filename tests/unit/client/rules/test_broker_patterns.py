"""Which patterns are left to the broker."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.client.consumer.rules.consumer_membership import find_broker_pattern
from moldau.client.consumer.rules.subscription_state import Pattern, subscribe_to


def handed_over(
    pattern: Pattern, deny: Pattern | None = None, *, with_internal: bool = False
) -> str | None:
    return find_broker_pattern(subscribe_to(None, pattern, deny, with_internal=with_internal))


@pytest.mark.parametrize(
    "text",
    ["orders", r"orders\..*", "a|b", "[a-z]{2,3}-x", "(?:a|b)+?", "(?P<n>a)b", r"\w+\d", "(?i)ab"],
)
def test_what_means_the_same_to_both_is_handed_over(text: str) -> None:
    assert handed_over(text) == text
    assert handed_over(re.compile(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "(?!x).*y",
        "(?<=a)b",
        r"(a)\1",
        "(?P<n>a)(?P=n)",
        "a{,3}",
        "a{2000}",
        r"ab\Z",
        "[a[:b]]",
        "(?x) a",
        r"\x61",
    ],
)
def test_what_only_python_knows_is_matched_by_the_client(text: str) -> None:
    re.compile(text)
    assert handed_over(text) is None


def test_what_is_to_be_left_out_is_left_out_by_the_client() -> None:
    assert handed_over("a.*", "ab") is None
    assert handed_over(".*") is None  # the cluster's own topics match
    assert handed_over(".*", with_internal=True) == ".*"
    assert handed_over(re.compile("a", re.IGNORECASE)) is None
    assert handed_over(re.compile("a", re.ASCII)) is None


@given(st.text(alphabet="ab.*+?()[]{}|^$\\1dw,:P<>=!-", max_size=12))
def test_re2_agrees_about_every_name(text: str) -> None:
    re2 = pytest.importorskip("re2")
    try:
        pattern = re.compile(text)
    except (re.error, OverflowError, FutureWarning):
        return
    if handed_over(pattern, with_internal=True) is None:
        return
    theirs = re2.compile(text)
    for name in ("a", "b", "ab", "aab", "a.b", "abab", "1", "a-1", "d", "w"):
        assert bool(theirs.fullmatch(name)) == bool(pattern.fullmatch(name)), name
