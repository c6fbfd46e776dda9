"""What the names in a folder mean when a log is opened."""

from __future__ import annotations

import pytest

from moldau.storage.rules.recovery_plan import (
    find_swap_segments,
    fits_behind,
    plan_folder,
    plan_scan,
    plan_snapshot_removals,
    usable_snapshots,
)


def files(base_offset: int, *suffixes: str) -> list[str]:
    return [f"{base_offset:020d}{suffix}" for suffix in suffixes or (".log", ".index")]


def test_a_healthy_folder_needs_nothing():
    names = [
        *files(0, ".log", ".index", ".timeindex", ".txnindex"),
        *files(100, ".log", ".index", ".timeindex", ".snapshot"),
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]

    plan = plan_folder(names)

    assert plan.removals == ()
    assert plan.renames == ()
    assert plan.segments == (0, 100)
    assert plan.snapshots == (100,)


def test_left_over_files_go_and_foreign_ones_stay():
    names = [
        *files(0),
        *files(50, ".log.deleted", ".index.deleted", ".snapshot.deleted"),
        *files(0, ".log.cleaned", ".index.cleaned"),
        "notes.txt",
        "checkpoint.deleted",
    ]

    plan = plan_folder(names)

    assert set(plan.removals) == {
        *files(50, ".log.deleted", ".index.deleted", ".snapshot.deleted"),
        *files(0, ".log.cleaned", ".index.cleaned"),
    }
    assert plan.segments == (0,)


def test_an_index_without_its_log_goes_and_a_snapshot_without_one_stays():
    plan = plan_folder([*files(0), *files(70, ".index", ".timeindex", ".txnindex", ".snapshot")])

    assert plan.removals == tuple(sorted(files(70, ".index", ".timeindex", ".txnindex")))
    assert plan.snapshots == (70,)


def test_swap_segments_take_the_place_of_what_they_were_made_from():
    names = [
        *files(0, ".log", ".index", ".timeindex"),
        *files(10),
        *files(20),
        *files(0, ".log.swap", ".index.swap"),
    ]

    assert find_swap_segments(names) == (0,)
    plan = plan_folder(names, swap_end_offset=20)

    assert plan.removals == tuple(sorted([*files(0, ".timeindex"), *files(10)]))
    assert plan.renames == tuple(
        sorted(zip(files(0, ".log.swap", ".index.swap"), files(0, ".log", ".index"), strict=True))
    )
    assert plan.segments == (0, 20)


def test_an_index_that_was_still_to_be_swapped_takes_its_place():
    names = [*files(0, ".log"), *files(0, ".index.swap"), *files(10)]

    assert find_swap_segments(names) == ()
    plan = plan_folder(names)

    assert plan.removals == ()
    assert plan.segments == (0, 10)


def test_swap_files_of_an_unfinished_split_go():
    names = [*files(0), *files(0, ".log.swap"), *files(5, ".log.swap"), *files(5, ".log.cleaned")]

    assert find_swap_segments(names) == (0,)
    assert find_swap_segments([*names, *files(0, ".log.cleaned")]) == ()
    assert plan_folder([*names, *files(0, ".log.cleaned")]).renames == ()
    assert plan_folder([*names, *files(0, ".log.cleaned")]).segments == (0,)


@pytest.mark.parametrize(
    ("recovery_point", "scanned"),
    [
        (0, (0, 10, 20)),
        (9, (0, 10, 20)),
        (10, (0, 10, 20)),
        (11, (10, 20)),
        (25, (20,)),
        (1000, (20,)),
    ],
)
def test_scanning_starts_with_the_segment_that_was_active_at_the_recovery_point(
    recovery_point, scanned
):
    assert plan_scan((0, 10, 20), recovery_point, clean_shutdown=False) == scanned


def test_a_recovery_point_before_the_first_segment_scans_all():
    assert plan_scan((10, 20), 3, clean_shutdown=False) == (10, 20)
    assert plan_scan((), 3, clean_shutdown=False) == ()


def test_after_a_clean_shutdown_nothing_is_scanned():
    assert plan_scan((0, 10, 20), 0, clean_shutdown=True) == ()


@pytest.mark.parametrize(
    ("snapshots", "segments", "removed"),
    [
        ((10, 20), (0, 10, 20), ()),
        ((10, 15, 20), (0, 10, 20), (15,)),
        ((15, 20, 25), (0, 20), (15,)),
        ((25, 27), (0, 20), (25,)),
        ((5, 7), (), (5,)),
        ((), (0,), ()),
    ],
)
def test_snapshots_at_no_segment_go_except_that_of_the_shutdown(snapshots, segments, removed):
    assert plan_snapshot_removals(snapshots, segments) == removed


def test_usable_snapshots_are_within_the_log_and_the_latest_comes_first():
    assert usable_snapshots((0, 5, 10, 15, 20), log_start_offset=5, log_end_offset=15) == (15, 10)


@pytest.mark.parametrize(
    ("end_offset", "start_offset", "cleaned_offset", "recovery_point", "fits"),
    [
        (10, 10, 0, 0, True),
        (9, 10, 0, 0, False),  # the end of a file is lost
        (11, 10, 0, 0, False),  # a file is back that was truncated away
        (11, 10, 50, 50, False),
        (9, 10, 10, 0, True),  # Kafka's cleaner was there
        (9, 10, 9, 0, False),
        (9, 10, 0, 10, True),  # all of this was flushed
    ],
)
def test_a_segment_follows_another_where_it_ends_or_where_compaction_has_been(
    end_offset, start_offset, cleaned_offset, recovery_point, fits
):
    assert fits_behind(end_offset, start_offset, cleaned_offset, recovery_point) is fits
