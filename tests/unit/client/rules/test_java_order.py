"""Java's order, on values that Java's documentation and folklore give."""

from __future__ import annotations

import pytest

from moldau.client.consumer.rules.assignors import hash_of, in_hash_order


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("Aa", 2112),
        ("BB", 2112),
        ("polygenelubricants", 1 << 31),  # Integer.MIN_VALUE
        ("\U0001f600", 0xD83D * 31 + 0xDE00),  # two units of UTF-16
    ],
)
def test_hashes_are_those_of_java(text: str, expected: int) -> None:
    assert hash_of(text) == expected


def test_names_come_by_bucket() -> None:
    assert in_hash_order(["c", "b", "a", "p"]) == ["p", "a", "b", "c"]  # p is 112: bucket 0


def test_names_of_one_bucket_come_as_they_were_put() -> None:
    assert in_hash_order(["BB", "a", "Aa"]) == ["BB", "Aa", "a"]


def test_more_names_make_more_buckets() -> None:
    names = [chr(97 + place) for place in range(13)]  # more than three quarters of 16
    assert in_hash_order(names) == names  # 97 to 109 in 32 buckets: 1 to 13
    assert in_hash_order(["q", "a"]) == ["q", "a"]  # 113 and 97 share bucket 1 of 16
    assert in_hash_order(["q", *names]) == [*names, "q"]
