"""Where `moldau consume` begins in each partition: from the texts of its options to positions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from moldau.client.consumer import AsyncConsumer
from moldau.client.rules.offset_targets import AtBeginning, AtOffset, AtTime, BeforeEnd, Start
from moldau.errors import UsageError
from moldau.model import TopicPartition


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
