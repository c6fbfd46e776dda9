"""Where `moldau consume` begins and ends in each partition.

The texts of --offset and --timestamp become a `Start`; with the cluster's answers a `Start` becomes
offsets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from moldau.client.admin_logs import LogAdmin
from moldau.client.admin_values import OffsetSpec
from moldau.client.cluster_client import ClusterClient
from moldau.errors import ConfigurationError, KafkaError
from moldau.model import TopicPartition

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtOffset:
    """This offset in each partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class BeforeEnd:
    """The last `count` offsets of each partition; 0 is the end."""

    count: int


@dataclass(frozen=True, slots=True)
class AtBeginning:
    """The first record that is still there."""


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after a time; the end where there is none."""

    timestamp_ms: int


Start = AtOffset | BeforeEnd | AtBeginning | AtTime


def parse_offset(text: str) -> Start:
    """`earliest`, `latest`, an offset, or -N for the last N."""
    if text == "earliest":
        return AtBeginning()
    if text == "latest":
        return BeforeEnd(0)
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()):
        raise ConfigurationError(
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
        raise ConfigurationError(
            f"{text!r} is no time; give milliseconds since 1970 or one like 2030-01-31T12:00:00"
        ) from None


def choose_start(offset: str | None, timestamp: str | None, from_beginning: bool) -> Start:
    """At most one of the three may be given; without any, only what is new is read."""
    given = [offset is not None, timestamp is not None, from_beginning]
    if sum(given) > 1:
        raise ConfigurationError(
            "choose one of --from-beginning, --offset and --timestamp to say where to begin"
        )
    if from_beginning:
        return AtBeginning()
    if timestamp is not None:
        return AtTime(parse_timestamp(timestamp))
    return BeforeEnd(0) if offset is None else parse_offset(offset)


async def find_start(
    client: ClusterClient, partitions: Sequence[TopicPartition], start: Start
) -> Offsets:
    """The offset to begin with in each partition."""
    match start:
        case AtOffset(offset):
            return dict.fromkeys(partitions, offset)
        case AtBeginning():
            return await _list(client, partitions, OffsetSpec.EARLIEST)
        case AtTime(timestamp_ms):
            return await _find_time(client, partitions, timestamp_ms)
        case BeforeEnd(count):
            return await _find_before_end(client, partitions, count)


async def find_end(client: ClusterClient, partitions: Sequence[TopicPartition]) -> Offsets:
    """The offset after the last record of each partition, as of now."""
    return await _list(client, partitions, OffsetSpec.LATEST)


async def _find_before_end(
    client: ClusterClient, partitions: Sequence[TopicPartition], count: int
) -> Offsets:
    latest = await _list(client, partitions, OffsetSpec.LATEST)
    if not count:
        return latest
    earliest = await _list(client, partitions, OffsetSpec.EARLIEST)
    return {one: max(latest[one] - count, earliest[one]) for one in partitions}


async def _find_time(
    client: ClusterClient, partitions: Sequence[TopicPartition], timestamp_ms: int
) -> Offsets:
    found = dict(await _list(client, partitions, timestamp_ms))
    too_late = [one for one in partitions if found[one] < 0]
    if too_late:
        found.update(await _list(client, too_late, OffsetSpec.LATEST))
    return found


async def _list(
    client: ClusterClient, partitions: Sequence[TopicPartition], question: int
) -> Offsets:
    answers = await LogAdmin(client).list_offsets(dict.fromkeys(partitions, int(question)))
    offsets: dict[TopicPartition, int] = {}
    for partition, answer in answers.items():
        if isinstance(answer, KafkaError):
            raise answer
        offsets[partition] = answer.offset
    return offsets
