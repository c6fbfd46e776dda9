"""What is written to a partition per second, from two readings of its log."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moldau.ops.rules.rebalance_plan import LogReading, bytes_per_second


def reading(start: int, end: int, size: int) -> LogReading:
    return LogReading(start_offset=start, end_offset=end, size_bytes=size)


def test_what_a_log_has_grown_by_is_what_was_written() -> None:
    assert bytes_per_second(reading(0, 100, 1000), reading(0, 200, 6000), 5.0) == 1000


def test_a_log_whose_old_segments_were_deleted_counts_its_new_records() -> None:
    """It is smaller than before, or larger by less than was written."""
    before = reading(0, 100, 10_000)
    assert bytes_per_second(before, reading(50, 120, 7000), 2.0) == 1000
    assert bytes_per_second(before, reading(50, 160, 11_000), 2.0) == 3000


def test_a_log_that_was_compacted_meanwhile_counts_its_new_records() -> None:
    assert bytes_per_second(reading(0, 100, 10_000), reading(0, 110, 1100), 1.0) == 100


def test_nothing_is_written_where_the_end_stays_or_goes_back() -> None:
    assert bytes_per_second(reading(0, 100, 1000), reading(0, 100, 5000), 1.0) == 0
    assert bytes_per_second(reading(0, 100, 1000), reading(0, 90, 900), 1.0) == 0
    assert bytes_per_second(reading(0, 100, 1000), reading(0, 200, 2000), 0.0) == 0


@given(
    st.tuples(*[st.integers(0, 10**12)] * 3),
    st.tuples(*[st.integers(0, 10**12)] * 3),
    st.floats(0.001, 100),
)
def test_no_pair_of_readings_gives_less_than_nothing(
    one: tuple[int, int, int], other: tuple[int, int, int], seconds: float
) -> None:
    before, after = (reading(min(a, b), max(a, b), size) for a, b, size in (one, other))
    assert bytes_per_second(before, after, seconds) >= 0
