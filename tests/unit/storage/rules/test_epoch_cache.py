"""Leader epochs and where they begin."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.errors import InvariantViolation
from moldau.storage.rules.epoch_cache import UNDEFINED_END, EpochCache, EpochEnd, EpochStart

CACHE = EpochCache((EpochStart(2, 10), EpochStart(4, 20), EpochStart(7, 30)))


def test_an_epoch_is_assigned_once():
    cache = EpochCache().assign(2, 10)

    assert cache.entries == (EpochStart(2, 10),)
    assert cache.latest_epoch == 2
    assert cache.assign(2, 10) is cache
    assert cache.assign(2, 15) is cache
    assert cache.assign(3, 15).entries == (EpochStart(2, 10), EpochStart(3, 15))


def test_an_epoch_without_records_gives_way():
    assert CACHE.assign(8, 30).entries == (*CACHE.entries[:2], EpochStart(8, 30))


def test_entries_that_contradict_a_new_one_go():
    assert CACHE.assign(4, 15).entries == (EpochStart(2, 10), EpochStart(4, 15))
    assert CACHE.assign(9, 5).entries == (EpochStart(9, 5),)


@pytest.mark.parametrize(("epoch", "offset"), [(-1, 5), (5, -1)])
def test_negative_values_are_a_bug(epoch, offset):
    with pytest.raises(InvariantViolation):
        CACHE.assign(epoch, offset)


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, UNDEFINED_END),
        (0, EpochEnd(0, 10)),  # its records are gone: start where ours begin
        (2, EpochEnd(2, 20)),
        (3, EpochEnd(2, 20)),
        (4, EpochEnd(4, 30)),
        (6, EpochEnd(4, 30)),
        (7, EpochEnd(7, 99)),
        (8, UNDEFINED_END),
    ],
)
def test_the_end_of_an_epoch_is_where_the_next_begins(asked, answer):
    assert CACHE.end_offset_for(asked, log_end_offset=99) == answer


def test_a_log_without_epochs_knows_no_end():
    assert EpochCache().end_offset_for(0, log_end_offset=99) == UNDEFINED_END


@pytest.mark.parametrize(("offset", "epoch"), [(9, None), (10, 2), (19, 2), (20, 4), (500, 7)])
def test_the_epoch_of_an_offset_is_found(offset, epoch):
    assert CACHE.find_epoch_at(offset) == epoch


def test_cutting_the_end_forgets_epochs_that_begin_there():
    assert CACHE.truncate_from_end(31) is CACHE
    assert CACHE.truncate_from_end(30).entries == CACHE.entries[:2]
    assert CACHE.truncate_from_end(0) == EpochCache()


def test_cutting_the_start_moves_the_epoch_that_goes_on():
    assert CACHE.truncate_from_start(5) is CACHE
    assert CACHE.truncate_from_start(10) is CACHE
    assert CACHE.truncate_from_start(25).entries == (EpochStart(4, 25), EpochStart(7, 30))
    assert CACHE.truncate_from_start(30).entries == (EpochStart(7, 30),)
    assert CACHE.truncate_from_start(99).entries == (EpochStart(7, 99),)


def test_caches_with_equal_entries_are_equal():
    twin = EpochCache(CACHE.entries)

    assert twin == CACHE
    assert hash(twin) == hash(CACHE)
    assert twin != EpochCache()
    assert "EpochStart" in repr(CACHE)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("assign"), st.integers(0, 9), st.integers(0, 30)),
            st.tuples(st.just("start"), st.integers(0, 30), st.just(0)),
            st.tuples(st.just("end"), st.integers(0, 30), st.just(0)),
        ),
        max_size=25,
    )
)
def test_epochs_and_offsets_always_grow(steps):
    cache = EpochCache()
    for step, first, second in steps:
        match step:
            case "assign":
                cache = cache.assign(first, second)
                assert cache.latest_epoch == first
            case "start":
                cache = cache.truncate_from_start(first)
            case "end":
                cache = cache.truncate_from_end(first)
        epochs = [entry.epoch for entry in cache.entries]
        starts = [entry.start_offset for entry in cache.entries]
        assert epochs == sorted(set(epochs))
        assert starts == sorted(set(starts))
