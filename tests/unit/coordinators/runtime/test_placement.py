"""Java's hash codes, and the partitions that follow from them."""

from __future__ import annotations

import pytest

from moldau.coordinators.runtime.internal_topic import java_hash, partition_for


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99_162_322),
        ("Hello, World!", 1_498_789_909),
        ("polygenelubricants", -(2**31)),
        ("ö", 246),
        ("🌊", 31 * 0xD83C + 0xDF0A),
    ],
)
def test_the_hash_is_javas(text: str, value: int) -> None:
    assert java_hash(text) == value


def test_a_group_belongs_to_the_partition_of_its_hash() -> None:
    assert partition_for("hello", 50) == 22
    assert partition_for("a", 50) == 47


def test_the_number_without_a_positive_twin_is_zero() -> None:
    assert partition_for("polygenelubricants", 50) == 0


def test_every_partition_gets_some_group() -> None:
    assert {partition_for(f"group-{number}", 50) for number in range(1_000)} == set(range(50))
