"""Subscriptions: names, patterns, and what is left out of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from moldau.client.consumer.rules.subscription_state import subscribe_to
from moldau.errors import ConfigurationError, InvalidTopicError


@dataclass
class Topic:
    name: str
    is_internal: bool = False
    error: Exception | None = None


TOPICS = [
    Topic("clicks"),
    Topic("clicks-eu"),
    Topic("clicks-test"),
    Topic("orders"),
    Topic("__consumer_offsets", is_internal=True),
    Topic("clicks-broken", error=RuntimeError()),
]


def test_names_are_taken_as_they_are() -> None:
    for given in ("clicks", ["clicks", "new"]):
        subscription = subscribe_to(given, None, None, with_internal=False)
        expected = {given} if isinstance(given, str) else set(given)
        assert subscription.matching(TOPICS) == expected


@pytest.mark.parametrize(
    ("allow", "deny", "expected"),
    [
        ("clicks.*", None, {"clicks", "clicks-eu", "clicks-test"}),
        ("clicks.*", ".*-test", {"clicks", "clicks-eu"}),
        (re.compile("CLICKS", re.IGNORECASE), None, {"clicks"}),
        ("click", None, set()),  # a whole name has to match
        (".*", None, {"clicks", "clicks-eu", "clicks-test", "orders"}),
    ],
)
def test_patterns_match_whole_names(allow: str, deny: str | None, expected: set[str]) -> None:
    subscription = subscribe_to(None, allow, deny, with_internal=False)
    assert subscription.is_pattern
    assert subscription.matching(TOPICS) == expected


def test_internal_topics_match_when_they_are_wanted() -> None:
    subscription = subscribe_to(None, "__.*", None, with_internal=True)
    assert subscription.matching(TOPICS) == {"__consumer_offsets"}


@pytest.mark.parametrize(
    ("topics", "pattern", "deny", "words"),
    [
        (None, None, None, "by their names, or to a pattern"),
        ("a", "b", None, "by their names, or to a pattern"),
        ("a", None, "b", "deny goes with a pattern"),
        (None, "(", None, "no regular expression"),
    ],
)
def test_what_makes_no_sense_is_refused(
    topics: str | None, pattern: str | None, deny: str | None, words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        subscribe_to(topics, pattern, deny, with_internal=False)


def test_names_that_no_topic_can_have_are_refused() -> None:
    with pytest.raises(InvalidTopicError, match="a b"):
        subscribe_to(["fine", "a b"], None, None, with_internal=False)
