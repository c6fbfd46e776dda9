"""Bytes per second as people write and read them."""

from __future__ import annotations

import pytest

from moldau.errors import ConfigurationError
from moldau.ops.formatting import byte_rate_text, parse_byte_rate


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("200MB/s", 200e6),
        ("1.5 GB/s", 1.5e9),
        ("800k", 800e3),
        ("1MiB/s", 1 << 20),
        ("300", 300.0),
        ("5kBps", 5000.0),
    ],
)
def test_rates_are_read(text: str, rate: float) -> None:
    assert parse_byte_rate(text) == rate


@pytest.mark.parametrize("text", ["", "fast", "0MB/s", "-5", "10 apples"])
def test_other_texts_are_no_rates(text: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_byte_rate(text)


@pytest.mark.parametrize(
    ("rate", "text"),
    [(20, "20 B/s"), (1500, "1.5 kB/s"), (200e6, "200 MB/s"), (1.5e9, "1,500 MB/s")],
)
def test_a_rate_is_told_in_a_unit_of_its_size(rate: float, text: str) -> None:
    assert byte_rate_text(rate) == text
