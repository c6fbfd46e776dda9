"""Reads and prints for `moldau consume --group`: as one member among others, with commits.

What is printed is committed: every few seconds, when partitions move to another member, and at the
end, however the end comes. Records that could not be printed are left for the next one.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from moldau.cli.output import note
from moldau.cli.record_format import Formatter
from moldau.client.consumer import AsyncConsumer
from moldau.client.rules.consumer_record import ConsumerRecord
from moldau.model import TopicPartition
from moldau.records.record import Record

_POLL_SECONDS = 1.0
_POLL_RECORDS = 5000

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConsumption:
    """What to print of which topic, and as a member of which group."""

    topic: str
    group_id: str
    from_beginning: bool  # where the group has not read before
    formatter: Formatter
    max_records: int | None
    idle_seconds: float | None
    until_end: bool


async def consume_in_group(bootstrap: str, consumption: GroupConsumption) -> None:
    """Print until it is time to stop, then commit and leave."""
    async with AsyncConsumer(
        bootstrap,
        group=consumption.group_id,
        topics=[consumption.topic],
        commit="after",
        client_id="moldau-cli",
        allow_auto_create_topics=False,
        auto_offset_reset="earliest" if consumption.from_beginning else "latest",
    ) as consumer:
        topic = await consumer.partitions_for(consumption.topic)
        partitions = [TopicPartition(topic.name, row.index) for row in topic.partitions]
        ends = await _find_ends(consumer, partitions) if consumption.until_end else None
        if ends is None and sys.stderr.isatty():
            note(f"reading {consumption.topic} as a member of {consumption.group_id}")
        await _GroupReader(consumer, consumption, ends).run()


async def _find_ends(
    consumer: AsyncConsumer, partitions: Collection[TopicPartition]
) -> Mapping[TopicPartition, int]:
    """The ends of all partitions that have records; the others are at their end already."""
    earliest = await consumer.beginning_offsets(partitions)
    latest = await consumer.end_offsets(partitions)
    return {one: latest[one] for one in partitions if latest[one] > earliest[one]}


class _GroupReader:
    """Prints what a member gets; `ends` is where to stop, if anywhere."""

    def __init__(
        self, consumer: AsyncConsumer, consumption: GroupConsumption, ends: Offsets | None
    ) -> None:
        self._consumer = consumer
        self._consumption = consumption
        self._ends = ends
        self._left = consumption.max_records

    async def run(self) -> None:
        idle_seconds = self._consumption.idle_seconds
        patience = _POLL_SECONDS if idle_seconds is None else idle_seconds
        while self._left != 0 and not await self._is_at_end():
            records = await self._consumer.poll(patience, self._left or _POLL_RECORDS)
            if not records and idle_seconds is not None:
                return
            self._print(records if self._ends is None else self._cut(records, self._ends))

    async def _is_at_end(self) -> bool:
        """Whether this member has read its partitions to their ends.

        One without partitions looks at the group: others may be at work for it.
        """
        if self._ends is None:
            return False
        assigned = self._consumer.assignment
        if assigned:
            return all(
                [await self._consumer.position(one) >= self._end_of(one) for one in assigned]
            )
        committed = await self._consumer.committed(self._ends)
        return all(
            found is not None and found.offset >= self._ends[one]
            for one, found in committed.items()
        )

    def _end_of(self, partition: TopicPartition) -> int:
        return (self._ends or {}).get(partition, 0)

    def _cut(self, records: Sequence[ConsumerRecord], ends: Offsets) -> list[ConsumerRecord]:
        """What is before the ends. What is behind stays for whoever reads the topic next."""
        kept: list[ConsumerRecord] = []
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            if record.offset < ends.get(partition, 0):
                kept.append(record)
            elif partition not in self._consumer.paused:
                self._consumer.seek(partition, record.offset)
                self._consumer.pause(partition)
        return kept

    def _print(self, records: Sequence[ConsumerRecord]) -> None:
        formatter = self._consumption.formatter
        out = sys.stdout.buffer
        out.write(b"".join([formatter(*_split(record)) for record in records]))
        out.flush()
        if self._left is not None:
            self._left -= len(records)


def _split(record: ConsumerRecord) -> tuple[TopicPartition, Record]:
    return TopicPartition(record.topic, record.partition), Record(
        record.offset, record.timestamp_ms, record.key, record.value, record.headers
    )
