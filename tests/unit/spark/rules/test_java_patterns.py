from __future__ import annotations

import re

import pytest

from moldau.spark.rules.java_patterns import translate_java_pattern


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("clicks-.*", "clicks-eu", "orders"),
        ("(?<kind>a|b)-\\k<kind>", "a-a", "a-b"),
        ("\\Qa.b\\E-\\d+", "a.b-7", "axb-7"),
        ("\\Qa.b", "a.b", "axb"),
        ("\\p{Alpha}+", "abc", "abc1"),
        ("\\P{Digit}+", "abc", "abc1"),
        ("[\\p{Lower}_]+", "a_b", "A_b"),
        ("\\p{L}\\p{IsDigit}", "a1", "11"),
        ("[^-]+-x", "ab-x", "a-b-x"),
        ("[]a]+", "]a", "b"),
        ("[^]a]+", "b", "]"),
        ("(?i)Clicks", "CLICKS", "orders"),
        ("a*+b", "aab", "aac"),
        ("(?>a|ab)c", "ac", "abc"),
        ("clicks\\z", "clicks", "clicks2"),
        ("a\\.b\\[0\\]", "a.b[0]", "a.b0"),
    ],
)
def test_a_pattern_of_java_matches_what_it_matches_there(
    pattern: str, matching: str, other: str
) -> None:
    translated = re.compile(translate_java_pattern(pattern))
    assert translated.fullmatch(matching)
    assert not translated.fullmatch(other)


@pytest.mark.parametrize(
    ("pattern", "word"),
    [
        ("[a-z&&[^b]]+", "&&"),
        ("[a[bc]]", "a class inside a class"),
        ("\\p{IsGreek}+", "\\p{IsGreek}"),
        ("\\h+", "\\h"),
        ("\\R", "\\R"),
        ("[\\P{Alpha}]", "\\P{Alpha}"),
    ],
)
def test_what_python_cannot_say_is_refused(pattern: str, word: str) -> None:
    with pytest.raises(ValueError, match=re.escape(word)):
        translate_java_pattern(pattern)
