"""When a copy may take the place of a log, where it begins, and which of two folders is the log."""

from __future__ import annotations

import pytest

from moldau.storage.rules.log_move import (
    CopyNote,
    Departure,
    Reach,
    find_new_start,
    find_replaced,
    judge_departure,
    may_replace,
    may_resume,
)

LOG = Reach(start_offset=10, end_offset=100, recovery_point=50)


@pytest.mark.parametrize(
    ("copied_end", "first_base_offset", "start"),
    [
        (10, 10, None),
        (60, 10, None),
        (9, 10, 10),
        (0, 7, 7),  # a batch into which DeleteRecords has cut
        (0, 15, 10),  # compaction has left a gap at the start
        (0, None, 100),  # nothing is left
    ],
)
def test_a_copy_that_was_left_behind_begins_anew_where_the_log_begins(
    copied_end: int, first_base_offset: int | None, start: int | None
):
    assert find_new_start(LOG, copied_end, first_base_offset) == start


@pytest.mark.parametrize(
    ("copy", "is_truncating", "may"),
    [
        (Reach(10, 100, 50), False, True),
        (Reach(0, 100, 100), False, True),
        (Reach(10, 99, 50), False, False),
        (Reach(11, 100, 50), False, False),
        (Reach(10, 100, 49), False, False),  # of the log more is flushed (MOV-2)
        (Reach(10, 100, 50), True, False),
    ],
)
def test_a_copy_takes_the_place_when_it_is_whole_and_as_durable(
    copy: Reach, is_truncating: bool, may: bool
):
    assert may_replace(LOG, copy, is_truncating=is_truncating) is may


@pytest.mark.parametrize(
    ("note", "copy_end", "cleaned_offset", "may"),
    [
        (CopyNote(60, 20), 60, 20, True),
        (None, 60, 20, False),
        (CopyNote(60, 20), 59, 20, False),  # it has lost its end
        (CopyNote(60, 20), 60, 30, False),  # compaction was at the log
        (CopyNote(101, 20), 101, 20, False),  # the log has lost its end
    ],
)
def test_a_copy_goes_on_when_it_and_the_log_are_as_they_were(
    note: CopyNote | None, copy_end: int, cleaned_offset: int, may: bool
):
    assert may_resume(note, copy_end, LOG.end_offset, cleaned_offset) is may


@pytest.mark.parametrize(
    ("has_note", "replaced"),
    [
        ({"a": False, "b": True}, ("a",)),
        ({"a": True, "b": False}, ("b",)),
        ({"a": False, "b": False}, ()),
        ({"a": True, "b": True}, ()),
    ],
)
def test_the_folder_with_a_note_is_the_log(has_note: dict[str, bool], replaced: tuple[str, ...]):
    assert find_replaced(has_note) == replaced


@pytest.mark.parametrize(
    ("is_target_known", "has_offline_directory", "departure"),
    [
        (True, False, Departure.NOT_DONE),
        (True, True, Departure.UNKNOWN),
        (False, True, Departure.UNKNOWN),  # it may have another name now
        (False, False, Departure.BEYOND_REACH),
    ],
)
def test_a_folder_that_a_log_was_about_to_leave_is_served_when_the_log_can_be_nowhere_else(
    is_target_known: bool, has_offline_directory: bool, departure: Departure
):
    found = judge_departure(
        is_target_known=is_target_known, has_offline_directory=has_offline_directory
    )
    assert found is departure
