"""What `moldau groups reset-offsets` is told: which partitions, and where to. Pure.

A place is one of those that `moldau consume` can begin at, or a distance from where the group is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import typer

from moldau.cli.consume_start import parse_timestamp
from moldau.cli.durations import parse_duration_ms
from moldau.client.rules.offset_targets import (
    AtBeginning,
    AtOffset,
    AtTime,
    BeforeEnd,
    ShiftBy,
    Target,
    TopicChoice,
)
from moldau.errors import UsageError

_WHERE_TO = "--to-earliest, --to-latest, --to-offset, --to-datetime, --by-duration and --shift-by"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOptions:
    """The options as they were given."""

    to_earliest: bool = False
    to_latest: bool = False
    to_offset: int | None = None
    to_datetime: str | None = None
    by_duration: str | None = None
    shift_by: int | None = None


def choose_target(options: TargetOptions, now_ms: int) -> Target:
    """Exactly one of them has to be given."""
    targets: list[Target] = []
    if options.to_earliest:
        targets.append(AtBeginning())
    if options.to_latest:
        targets.append(BeforeEnd(0))
    if options.to_offset is not None:
        targets.append(AtOffset(options.to_offset))
    if options.to_datetime is not None:
        targets.append(AtTime(parse_timestamp(options.to_datetime)))
    if options.by_duration is not None:
        targets.append(AtTime(max(0, now_ms - parse_duration_ms(options.by_duration))))
    if options.shift_by is not None:
        targets.append(ShiftBy(options.shift_by))
    if len(targets) != 1:
        raise typer.BadParameter(f"choose one of {_WHERE_TO}", param_hint="--to-earliest")
    return targets[0]


def choose_topics(texts: Sequence[str], all_topics: bool) -> Sequence[TopicChoice] | None:
    """None stands for all that the group has read."""
    if bool(texts) == all_topics:
        raise typer.BadParameter("name topics with --topic, or --all-topics", param_hint="--topic")
    return None if all_topics else [parse_topic(text) for text in texts]


def parse_topic(text: str) -> TopicChoice:
    """`clicks`, or `clicks:0,3` for two of its partitions."""
    topic, colon, numbers = text.partition(":")
    indexes = numbers.split(",") if colon else []
    if not topic or not all(index.isascii() and index.isdecimal() for index in indexes):
        raise UsageError(
            f"{text!r} is no topic; give a name, or a name with partitions such as clicks:0,3"
        )
    return TopicChoice(topic, tuple(map(int, indexes)))
