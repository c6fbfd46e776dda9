"""A follower goes back to where its history leaves its leader's, and not further."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.replication.rules.truncation import (
    decide_truncation,
    find_cut,
    find_divergence,
    find_earlier_start,
    find_last_epoch,
    find_missed_deletions,
)
from moldau.storage.rules.epoch_cache import EpochCache, EpochStart


def cache(*entries: tuple[int, int]) -> EpochCache:
    return EpochCache(tuple(EpochStart(*entry) for entry in entries))


def test_the_leader_has_less_of_the_same_epoch():
    assert decide_truncation(cache((0, 0), (5, 50)), 100, 5, 80) == 80


def test_the_leader_has_more_of_an_epoch_that_we_left_earlier():
    ours = cache((0, 0), (4, 40), (6, 60))
    assert decide_truncation(ours, 100, 4, 90) == 60


def test_the_leader_knows_only_an_epoch_between_ours():
    ours = cache((0, 0), (3, 30), (6, 60))
    assert decide_truncation(ours, 100, 5, 70) == 60


def test_an_epoch_without_records_is_not_in_the_log():
    ours = cache((0, 0), (5, 50), (9, 100))
    assert find_last_epoch(ours, 0, 100) == 5
    assert find_last_epoch(ours, 0, 101) == 9


def test_an_empty_log_has_no_last_epoch():
    assert find_last_epoch(cache((5, 50)), 50, 50) == -1


# A leader and a follower write a common beginning and then their own histories; they meet again
# by asking and going back, as `Partition` and `ReplicaFetcher` do.

History = list[int]
"""The epoch of each record, by offset."""


def starts_of(history: History, latest: int | None = None) -> EpochCache:
    epochs = EpochCache()
    for offset, epoch in enumerate(history):
        epochs = epochs.assign(epoch, offset)
    return epochs if latest is None else epochs.assign(latest, len(history))


def answer_of_leader(leader: History, latest: int, offset: int, last_epoch: int):
    epochs = starts_of(leader, latest)
    epoch, end = epochs.end_offset_for(last_epoch, len(leader))
    if last_epoch < 0 or epoch < 0 or (epoch == last_epoch and end >= offset):
        return None
    return epoch, end


@st.composite
def histories(draw):
    """Epochs grow, no epoch has two leaders: what one writes in it, the other has from there."""
    common = sorted(draw(st.lists(st.integers(0, 5), max_size=8)))
    last = common[-1] if common else 0
    epochs = st.integers(last + 1, last + 9)
    ours = sorted(draw(st.lists(epochs.filter(lambda epoch: epoch % 2 == 0), max_size=8)))
    theirs = sorted(draw(st.lists(epochs.filter(lambda epoch: epoch % 2 == 1), max_size=8)))
    return common, common + ours, common + theirs


@given(histories())
def test_the_logs_meet_at_the_end_of_what_they_have_in_common(drawn):
    common, follower, leader = drawn
    latest = max([*leader, *follower, 0]) + 1
    for _ in range(len(follower) + 2):
        last = find_last_epoch(starts_of(follower), 0, len(follower))
        diverging = answer_of_leader(leader, latest, len(follower), last)
        if diverging is None:
            break
        end = decide_truncation(starts_of(follower), len(follower), *diverging)
        assert end < len(follower)
        follower = follower[:end]
    else:
        raise AssertionError("the logs never met")
    assert follower == leader[: len(follower)]
    assert len(follower) >= len(common)  # nothing that both have is thrown away


@pytest.mark.parametrize(
    ("log_start", "log_end", "base", "last", "start"),
    [
        (5, 5, 3, 7, 3),  # the leader's log begins in the middle of the batch
        (5, 5, 3, 5, 3),
        (5, 5, 5, 7, None),  # it fits
        (5, 5, 6, 7, None),  # compaction left a gap
        (5, 5, 3, 4, None),  # all of it lies before: a fault of the leader's
        (4, 5, 3, 7, None),  # there is something: overlaps are a fault
    ],
)
def test_an_empty_log_begins_with_a_batch_that_begins_before_it(
    log_start: int, log_end: int, base: int, last: int, start: int | None
) -> None:
    assert find_earlier_start(log_start, log_end, base, last) == start


@pytest.mark.parametrize(
    ("offset", "cleaned", "compared", "cut"),
    [
        (50, 0, 0, 50),
        (50, 50, 50, 50),
        (50, 51, 0, 10),
        (50, 0, 51, 10),
        (5, 51, 0, 5),  # before its start it begins anew
    ],
)
def test_a_log_that_was_compacted_behind_an_offset_is_cut_at_its_start(
    offset: int, cleaned: int, compared: int, cut: int
) -> None:
    assert find_cut(offset, 10, cleaned, compared) == cut


def test_histories_part_where_an_epoch_ends_earlier_or_is_not_known() -> None:
    ours = cache((2, 0), (5, 50))
    assert find_divergence(ours, 100, 80, -1) is None
    assert find_divergence(ours, 100, 100, 5) is None
    assert find_divergence(ours, 100, 101, 5) == (5, 100)
    assert find_divergence(ours, 100, 50, 2) is None
    assert find_divergence(ours, 100, 51, 2) == (2, 50)
    assert find_divergence(ours, 100, 60, 4) == (2, 50)
    assert find_divergence(ours, 100, 60, 1) == (1, 0)
    assert find_divergence(cache(), 100, 60, 1) is None
    from_the_first = cache((0, 0), (5, 50))
    assert find_divergence(from_the_first, 100, 51, 0) == (0, 50)


def test_who_was_away_for_too_long_copies_everything_again() -> None:
    assert find_missed_deletions(10, 50, 30, 4) == (4, 10)
    assert find_missed_deletions(10, 50, 30, 0) == (0, 10)
    assert find_missed_deletions(10, 50, 30, -1) is None
    assert find_missed_deletions(10, 50, 10, 4) is None
    assert find_missed_deletions(10, 50, 50, 4) is None
    assert find_missed_deletions(10, 50, 49, 4) == (4, 10)


def test_a_log_without_known_epochs_has_no_last_one() -> None:
    assert find_last_epoch(cache(), 0, 10) == -1
    assert find_last_epoch(cache((5, 5)), 0, 5) == -1
    assert find_last_epoch(cache((5, 0)), 10, 10) == -1
    assert find_last_epoch(cache((5, 0)), 10, 11) == 5


def test_a_log_is_cut_within_itself() -> None:
    assert decide_truncation(cache((5, 50)), 100, 5, 120) == 100
    assert decide_truncation(cache((5, 50)), 100, 2, 120) == 50
    assert decide_truncation(cache(), 100, 2, 30) == 30
