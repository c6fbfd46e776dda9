"""Which offsets an option means: where `moldau consume` begins, where groups are reset to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import typer

from moldau.client.consumer.consumer import AsyncConsumer
from moldau.client.rules.offsets import (
    AtBeginning,
    AtOffset,
    AtTime,
    BeforeEnd,
    ShiftBy,
    Start,
    Target,
    TopicChoice,
)
from moldau.errors import UsageError
from moldau.model import TopicPartition
from moldau.ops.formatting import parse_duration_ms


def parse_offset(text: str) -> Start:
    """`earliest`, `latest`, an offset, or -N for the last N."""
    if text == "earliest":
        return AtBeginning()
    if text == "latest":
        return BeforeEnd(0)
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()):
        raise UsageError(
            f"{text!r} is no offset; give a number, earliest, latest, or -N for the last N"
        )
    return BeforeEnd(int(digits)) if text.startswith("-") else AtOffset(int(digits))


def parse_timestamp(text: str) -> int:
    """Milliseconds since 1970, or an ISO 8601 time; without a zone it is this machine's."""
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError):
        raise UsageError(
            f"{text!r} is no time; give milliseconds since 1970 or one like 2030-01-31T12:00:00"
        ) from None


def choose_start(offset: str | None, timestamp: str | None, from_beginning: bool) -> Start:
    """At most one of the three may be given; without any, only what is new is read."""
    given = [offset is not None, timestamp is not None, from_beginning]
    if sum(given) > 1:
        raise UsageError(
            "choose one of --from-beginning, --offset and --timestamp to say where to begin"
        )
    if from_beginning:
        return AtBeginning()
    if timestamp is not None:
        return AtTime(parse_timestamp(timestamp))
    return BeforeEnd(0) if offset is None else parse_offset(offset)


async def go_to_start(
    consumer: AsyncConsumer, partitions: Sequence[TopicPartition], start: Start
) -> None:
    """Let a consumer read these partitions from where it is to begin, as things are now."""
    consumer.assign(partitions)
    match start:
        case AtOffset(offset):
            for partition in partitions:
                consumer.seek(partition, offset)
        case AtBeginning():
            consumer.seek_to_beginning()
        case AtTime(timestamp_ms):
            consumer.seek_to_time(timestamp_ms)
        case BeforeEnd(0):
            consumer.seek_to_end()
        case BeforeEnd(count):
            earliest = await consumer.beginning_offsets(partitions)
            latest = await consumer.end_offsets(partitions)
            for partition in partitions:
                consumer.seek(partition, max(latest[partition] - count, earliest[partition]))
    for partition in partitions:
        await consumer.position(partition)  # looked up now, not when the first record is wanted


# What `moldau groups reset-offsets` is told: which partitions, and where to. Pure.
#
# A place is one of those that `moldau consume` can begin at, or a distance from where the group is.


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
