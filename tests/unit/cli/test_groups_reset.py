"""What `moldau groups reset-offsets` understands, and where it puts a group."""

from __future__ import annotations

import pytest
import typer

from moldau.cli.offset_target import TargetOptions, choose_target, choose_topics, parse_topic
from moldau.client.rules.offsets import (
    AtBeginning,
    AtOffset,
    AtTime,
    BeforeEnd,
    Ground,
    PlannedReset,
    ShiftBy,
    Target,
    TopicChoice,
    plan_reset,
)
from moldau.errors import ConfigurationError
from moldau.model import TopicPartition

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (TargetOptions(to_earliest=True), AtBeginning()),
        (TargetOptions(to_latest=True), BeforeEnd(0)),
        (TargetOptions(to_offset=0), AtOffset(0)),
        (TargetOptions(to_datetime="2023-11-14T22:13:20+00:00"), AtTime(NOW_MS)),
        (TargetOptions(to_datetime="12345"), AtTime(12345)),
        (TargetOptions(by_duration="1h"), AtTime(NOW_MS - 3_600_000)),
        (TargetOptions(by_duration="9999999w"), AtTime(0)),
        (TargetOptions(shift_by=-5), ShiftBy(-5)),
        (TargetOptions(shift_by=0), ShiftBy(0)),
    ],
)
def test_a_target_is_read_from_its_option(options: TargetOptions, expected: Target) -> None:
    assert choose_target(options, NOW_MS) == expected


@pytest.mark.parametrize(
    "options",
    [
        TargetOptions(),
        TargetOptions(to_earliest=True, to_latest=True),
        TargetOptions(to_offset=0, shift_by=0),
    ],
)
def test_exactly_one_target_has_to_be_given(options: TargetOptions) -> None:
    with pytest.raises(typer.BadParameter, match="choose one of --to-earliest"):
        choose_target(options, NOW_MS)


@pytest.mark.parametrize("option", ["to_datetime", "by_duration"])
def test_nonsense_is_no_time(option: str) -> None:
    with pytest.raises(ConfigurationError, match="'soon'"):
        choose_target(TargetOptions(**{option: "soon"}), NOW_MS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("clicks", TopicChoice("clicks")),
        ("clicks:3", TopicChoice("clicks", (3,))),
        ("clicks:0,12", TopicChoice("clicks", (0, 12))),
    ],
)
def test_a_topic_may_come_with_partitions(text: str, expected: TopicChoice) -> None:
    assert parse_topic(text) == expected


@pytest.mark.parametrize("text", ["", ":1", "clicks:", "clicks:a", "clicks:1,", "clicks:-1", "t:²"])
def test_what_is_no_topic_is_explained(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is no topic"):
        parse_topic(text)


def test_topics_are_named_or_all_are_meant() -> None:
    assert choose_topics(["a", "b:1"], False) == [TopicChoice("a"), TopicChoice("b", (1,))]
    assert choose_topics([], True) is None
    for texts, all_topics in (([], False), (["a"], True)):
        with pytest.raises(typer.BadParameter, match="--all-topics"):
            choose_topics(texts, all_topics)


READ, UNREAD = TopicPartition("clicks", 0), TopicPartition("clicks", 1)
GROUND = Ground(
    committed={READ: 50},
    earliest={READ: 10, UNREAD: 0},
    latest={READ: 100, UNREAD: 30},
    at_time={READ: 70, UNREAD: -1},
)


def places(target: Target, *partitions: TopicPartition) -> list[int]:
    return [row.after for row in plan_reset(target, partitions or (READ, UNREAD), GROUND)]


def test_every_partition_goes_to_its_own_beginning_end_or_time() -> None:
    assert places(AtBeginning()) == [10, 0]
    assert places(BeforeEnd(0)) == [100, 30]
    assert places(AtOffset(20)) == [20, 20]
    assert places(AtTime(5)) == [70, 30]


@pytest.mark.parametrize(
    ("target", "wanted", "after"),
    [
        (AtOffset(5), 5, 10),
        (AtOffset(500), 500, 100),
        (ShiftBy(-45), 5, 10),
        (ShiftBy(51), 101, 100),
        (ShiftBy(7), 57, 57),
    ],
)
def test_a_plan_stays_within_the_log_and_tells_what_was_wanted(
    target: Target, wanted: int, after: int
) -> None:
    assert plan_reset(target, [READ], GROUND) == [
        PlannedReset(partition=READ, before=50, wanted=wanted, after=after)
    ]


def test_where_nothing_was_read_there_is_no_before() -> None:
    (row,) = plan_reset(AtOffset(3), [UNREAD], GROUND)
    assert (row.before, row.after) == (None, 3)


def test_where_nothing_was_read_nothing_can_be_shifted() -> None:
    with pytest.raises(ConfigurationError, match="no offset in clicks-1"):
        plan_reset(ShiftBy(1), [READ, UNREAD], GROUND)
