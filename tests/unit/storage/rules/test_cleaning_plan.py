from __future__ import annotations

from moldau.storage.rules.log_cleaner import (
    Cleanable,
    CleaningTerms,
    DirtyLog,
    DirtySegment,
    explain_cleaning,
    find_dirtiest,
    find_first_dirty_offset,
    group_segments,
    is_due,
    max_keys,
    survey,
)

NOW_MS = 1_000_000
NEVER_MS = 1 << 62
TERMS = CleaningTerms(0.5, 0, NEVER_MS, 1000, 100)


def a_segment(base_offset: int, size_bytes: int = 100, **values: int) -> DirtySegment:
    return DirtySegment(base_offset, size_bytes, -1, 0, 8, 12)._replace(**values)


def a_log(**values: int) -> DirtyLog:
    return DirtyLog(0, 40, 40, 40, 0)._replace(**values)


SEGMENTS = [a_segment(0), a_segment(10), a_segment(20), a_segment(30)]


def test_the_active_segment_is_not_cleaned():
    assert survey(SEGMENTS, a_log(), TERMS, NOW_MS) == Cleanable(0, 30, 0, 300, False)


def test_what_was_cleaned_is_the_clean_part():
    found = survey(SEGMENTS, a_log(cleaned_offset=20), TERMS, NOW_MS)
    assert (found.clean_bytes, found.cleanable_bytes) == (200, 100)
    assert found.dirty_ratio == 1 / 3


def test_a_segment_that_was_cleaned_in_part_is_dirty():
    found = survey(SEGMENTS, a_log(cleaned_offset=15), TERMS, NOW_MS)
    assert found[:4] == (15, 30, 100, 200)


def test_a_log_that_is_clean_up_to_its_active_segment_has_nothing_to_clean():
    found = survey(SEGMENTS, a_log(cleaned_offset=30), TERMS, NOW_MS)
    assert found.cleanable_bytes == 0
    assert not is_due(found, 0.0)


def test_what_is_not_committed_decided_or_flushed_is_left_alone():
    for name in ("last_stable_offset", "recovery_point"):
        found = survey(SEGMENTS, a_log(**{name: 25}), TERMS, NOW_MS)
        assert found.first_uncleanable_offset == 20, name
        assert found.cleanable_bytes == 200, name


def test_nothing_is_cleaned_when_the_log_begins_behind_what_was_flushed():
    segments = [a_segment(15), a_segment(20), a_segment(30)]
    found = survey(segments, a_log(log_start_offset=16, recovery_point=0), TERMS, NOW_MS)
    assert found.cleanable_bytes == 0


def test_what_is_younger_than_the_minimal_lag_is_left_alone_with_all_behind_it():
    young = [SEGMENTS[0], a_segment(10, largest_timestamp_ms=NOW_MS - 5), *SEGMENTS[2:]]
    terms = TERMS._replace(min_compaction_lag_ms=10)
    assert survey(young, a_log(), terms, NOW_MS).first_uncleanable_offset == 10
    assert survey(young, a_log(), terms, NOW_MS + 10).first_uncleanable_offset == 30


def test_a_log_is_overdue_when_its_oldest_dirty_batch_is_older_than_the_maximal_lag():
    old = [a_segment(0, first_timestamp_ms=NOW_MS - 11), *SEGMENTS[1:]]
    terms = TERMS._replace(max_compaction_lag_ms=10)
    overdue = survey(old, a_log(), terms, NOW_MS)
    assert overdue.is_overdue
    assert is_due(overdue, 1.0)
    assert not survey(old, a_log(), terms, NOW_MS - 1).is_overdue
    assert not survey(old, a_log(cleaned_offset=10), terms, NOW_MS).is_overdue


def test_a_checkpoint_outside_the_log_means_that_all_is_dirty():
    assert find_first_dirty_offset(a_log(log_start_offset=5, cleaned_offset=3)) == 5
    assert find_first_dirty_offset(a_log(log_start_offset=5, cleaned_offset=41)) == 5
    assert find_first_dirty_offset(a_log(log_start_offset=5, cleaned_offset=40)) == 40


def test_a_log_is_due_when_more_than_the_ratio_is_dirty():
    cleanable = Cleanable(0, 30, 100, 100, False)
    assert is_due(cleanable, 0.49)
    assert not is_due(cleanable, 0.5)


def test_the_dirtiest_log_is_first():
    due = {"a": Cleanable(0, 9, 100, 100, True), "b": Cleanable(0, 9, 100, 300, False)}
    assert find_dirtiest(due) == "b"
    assert find_dirtiest({}) is None


def test_small_segments_become_one_as_long_as_it_is_not_too_large():
    sizes = [400, 400, 400, 900, 200, 10]
    segments = [a_segment(10 * i, size) for i, size in enumerate(sizes)]
    assert group_segments(segments, 50, TERMS) == (
        range(2),
        range(2, 3),
        range(3, 4),
        range(4, 5),
    )


def test_only_segments_that_begin_before_the_end_are_grouped():
    assert group_segments(SEGMENTS, 11, TERMS) == (range(2),)
    assert group_segments(SEGMENTS, 10, TERMS) == (range(1),)
    assert group_segments(SEGMENTS, 0, TERMS) == ()


def test_the_indexes_of_a_group_fit_into_one():
    for name in ("offset_index_bytes", "time_index_bytes"):
        segments = [a_segment(10 * i, **{name: 60}) for i in range(3)]
        assert group_segments(segments, 20, TERMS) == (range(1), range(1, 2)), name


def test_the_offsets_of_a_group_fit_into_31_bits():
    segments = [a_segment(0), a_segment(10), a_segment(1 << 31), a_segment((1 << 31) + 1)]
    groups = group_segments(segments, (1 << 31) + 1, TERMS)
    assert groups == (range(2), range(2, 3))


def test_memory_is_turned_into_a_number_of_keys():
    assert max_keys(128 << 20, 0.9, 24) == 5_033_164
    assert max_keys(128 << 20, 0.5, 24) == 2_796_202
    assert max_keys(0, 0.9, 24) == 1


def test_no_table_of_keys_is_filled_to_its_last_place():
    assert max_keys(24_000, 1.0, 24) == 900


def test_a_log_is_due_for_its_dirt_or_for_its_age():
    dirty = Cleanable(0, 30, 100, 300, False)
    assert explain_cleaning(dirty, TERMS) == "min.cleanable.dirty.ratio 0.5: 0.75 of it was dirty"
    old = Cleanable(0, 30, 900, 100, True)
    assert explain_cleaning(old, TERMS._replace(max_compaction_lag_ms=10)) == (
        "max.compaction.lag.ms 10: a dirty record was older"
    )
