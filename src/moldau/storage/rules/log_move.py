"""When the copy of a log may take its place, and which of two folders is the log after a crash.

A log that moves to another log directory is copied into a folder there whose name ends in
`-future`, while it is served from the old one. The steps of the change, in order:

1. Everything that was flushed of the log is flushed of the copy (MOV-2).
2. A note in the old folder says where the copy is, one in the copy's folder that it replaces
   another one, and what the checkpoints of the old directory know of the log.
3. The copy gets the last batches, and its folder the plain name: from here on it is the log.
4. The new name is made durable, and until then the checkpoints of the old directory stay as they
   are. Then the old folder is renamed to `-delete`, and that is made durable; then the note goes.

So a start finds the old folder under the plain name (before 3), both with the note in the new one
(between 3 and 4), or the new one. It never finds none, and never two that it cannot tell apart
(MOV-3). Where it finds the old one, and the directory of the copy is offline, its own note says
that it may not be the log any more (MOV-4). A rule: values in, a decision out.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import NamedTuple, TypeVar

Place = TypeVar("Place")


class Reach(NamedTuple):
    """How far a log goes."""

    start_offset: int
    end_offset: int
    recovery_point: int


class CopyNote(NamedTuple):
    """What a copy says of itself that was left in good order when its broker stopped."""

    end_offset: int
    cleaned_offset: int
    """How far compaction of the original had been while it was copied."""


def find_new_start(log: Reach, copied_end: int, first_base_offset: int | None) -> int | None:
    """Where a copy begins anew that the log has left behind; None when it goes on at its end.

    Retention and DeleteRecords move the start of the log while it is copied. The first batch that
    is left may begin before the start: `first_base_offset`, None when no batch is left.
    """
    if copied_end >= log.start_offset:
        return None
    if first_base_offset is None:
        return log.end_offset
    return min(first_base_offset, log.start_offset)  # compaction leaves gaps, also before it


def may_replace(log: Reach, copy: Reach, *, is_truncating: bool) -> bool:
    """Whether a copy may take the place of the log now (MOV-1, MOV-2).

    A truncation of the log that is under way speaks to its own folder's checkpoints.
    """
    return (
        not is_truncating
        and copy.end_offset == log.end_offset
        and copy.start_offset <= log.start_offset
        and copy.recovery_point >= log.recovery_point
    )


def may_resume(note: CopyNote | None, copy_end: int, log_end: int, cleaned_offset: int) -> bool:
    """Whether a copy that a start finds goes on, or begins anew.

    Compaction must not have been at the log since: a copy that has an old value, and goes on behind
    a deletion that compaction has removed meanwhile, would bring the value back.
    """
    return (
        note is not None
        and note.end_offset == copy_end
        and copy_end <= log_end
        and note.cleaned_offset == cleaned_offset
    )


def find_replaced(has_note: Mapping[Place, bool]) -> tuple[Place, ...]:
    """Of several folders of one log, those that another one has replaced; none if nobody knows."""
    noted = [place for place, noted in has_note.items() if noted]
    if len(noted) != 1:
        return ()
    return tuple(place for place in has_note if place != noted[0])


class Departure(Enum):
    """What a folder is that was about to be replaced, when nothing that replaced it is found."""

    NOT_DONE = auto()
    """It is the log."""
    UNKNOWN = auto()
    """The log may be in a directory that is offline: this one must not be served for it."""
    BEYOND_REACH = auto()
    """The directory is none of ours any more: this one is served, and may lack records."""


def judge_departure(*, is_target_known: bool, has_offline_directory: bool) -> Departure:
    """Whether the folder that a log was about to leave may be served (MOV-4)."""
    if has_offline_directory:
        return Departure.UNKNOWN
    return Departure.NOT_DONE if is_target_known else Departure.BEYOND_REACH
