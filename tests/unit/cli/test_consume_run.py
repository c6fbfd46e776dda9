"""When `moldau consume` stops, and what it leaves for others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

import pytest

from moldau.cli.consume_run import Consumption, Printing, ValuePrinting
from moldau.cli.record_format import parse_format
from moldau.client.admin.values import GroupOffset
from moldau.client.consumer.rules.fetch_buffer import ConsumerRecord, RawBatch
from moldau.client.rules.offsets import AtBeginning
from moldau.model import TopicPartition
from moldau.records.batch_header import read_header
from moldau.records.record import NewRecord
from moldau.records.record_batch import build_batch

Printed = Callable[[], list[str]]

FIRST, SECOND = TopicPartition("clicks", 0), TopicPartition("clicks", 1)


class ScriptedConsumer:
    """Stands in for an `AsyncConsumer`: each poll gives one of the bunches."""

    def __init__(
        self,
        *bunches: Sequence[ConsumerRecord],
        assigned: Collection[TopicPartition] = (FIRST,),
        committed: dict[TopicPartition, int] | None = None,
    ) -> None:
        self.assignment = frozenset(assigned)
        self.paused: set[TopicPartition] = set()
        self.positions = dict.fromkeys(assigned, 0)
        self.limits: list[int] = []
        self._bunches = list(bunches)
        self._committed = committed or {}

    async def poll(self, timeout_seconds: float, max_records: int) -> Sequence[ConsumerRecord]:
        self.limits.append(max_records)
        given = self._bunches.pop(0)[:max_records]
        for record in given:
            self.positions[TopicPartition(record.topic, record.partition)] = record.offset + 1
        return given

    async def poll_batches(self, timeout_seconds: float, max_bytes: int) -> Sequence[RawBatch]:
        """Each bunch is of one partition here, and makes one batch."""
        bunch = await self.poll(timeout_seconds, 1 << 30)
        return [_batch_of(bunch)] if bunch else []

    async def position(self, partition: TopicPartition) -> int:
        return self.positions[partition]

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, GroupOffset | None]:
        found = {one: self._committed.get(one) for one in partitions}
        return {
            one: None if offset is None else GroupOffset(offset=offset)
            for one, offset in found.items()
        }

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.positions[partition] = offset

    def pause(self, partition: TopicPartition) -> None:
        self.paused.add(partition)

    @property
    def is_exhausted(self) -> bool:
        return not self._bunches


def _batch_of(bunch: Sequence[ConsumerRecord]) -> RawBatch:
    first, last = bunch[0], bunch[-1]
    rows = [NewRecord(0, None, record.value, ()) for record in bunch]
    data = build_batch(rows, base_offset=first.offset)
    partition = TopicPartition(first.topic, first.partition)
    return RawBatch(partition, memoryview(data), read_header(data), first.offset, last.offset + 1)


def records(partition: TopicPartition, start: int, end: int) -> list[ConsumerRecord]:
    return [
        ConsumerRecord(*partition, offset, 0, None, b"%d.%d" % (partition.partition, offset))
        for offset in range(start, end)
    ]


def read(
    consumer: ScriptedConsumer,
    ends: dict[TopicPartition, int] | None = None,
    *,
    max_records: int | None = None,
    idle_seconds: float | None = None,
    kind: type[Printing] = Printing,
) -> None:
    consumption = Consumption(
        topics=("clicks",),
        formatter=parse_format("value"),
        start=AtBeginning(),
        max_records=max_records,
        idle_seconds=idle_seconds,
    )
    asyncio.run(kind(consumer, consumption, ends).run())  # type: ignore[arg-type]
    assert consumer.is_exhausted


@pytest.fixture
def printed(capsysbinary: pytest.CaptureFixture[bytes]) -> Printed:
    return lambda: capsysbinary.readouterr().out.decode().split()


def test_no_more_is_taken_than_is_to_be_printed(printed: Printed) -> None:
    consumer = ScriptedConsumer(records(FIRST, 0, 3), [], records(FIRST, 3, 9))
    read(consumer, max_records=5)
    assert printed() == ["0.0", "0.1", "0.2", "0.3", "0.4"]
    assert consumer.limits == [5, 2, 2]
    assert consumer.positions[FIRST] == 5


def test_silence_ends_it_where_that_was_asked_for(printed: Printed) -> None:
    read(ScriptedConsumer(records(FIRST, 0, 1), []), idle_seconds=0.1)
    assert printed() == ["0.0"]


def test_at_the_end_of_all_its_partitions_it_stops(printed: Printed) -> None:
    consumer = ScriptedConsumer(
        records(FIRST, 0, 2), records(SECOND, 0, 1), records(FIRST, 2, 3), assigned=(FIRST, SECOND)
    )
    read(consumer, {FIRST: 3, SECOND: 1})
    assert printed() == ["0.0", "0.1", "1.0", "0.2"]


def test_what_came_behind_the_end_is_left_for_the_next(printed: Printed) -> None:
    consumer = ScriptedConsumer(
        [*records(FIRST, 0, 5), *records(SECOND, 0, 1)],
        records(SECOND, 1, 2),
        assigned=(FIRST, SECOND),
    )
    read(consumer, {FIRST: 3, SECOND: 2})
    assert printed() == ["0.0", "0.1", "0.2", "1.0", "1.1"]
    assert consumer.positions == {FIRST: 3, SECOND: 2}
    assert consumer.paused == {FIRST}


def test_a_partition_that_was_empty_at_the_beginning_stays_unread(printed: Printed) -> None:
    consumer = ScriptedConsumer(records(SECOND, 0, 1), assigned=(FIRST, SECOND))
    consumer.positions[FIRST] = 0
    read(consumer, {SECOND: 1})
    assert printed() == ["1.0"]


@pytest.mark.parametrize("kind", [Printing, ValuePrinting])
def test_a_partition_all_records_of_which_were_deleted_is_at_its_end(
    printed: Printed, kind: type[Printing]
) -> None:
    """It is empty, and begins where it ends."""
    consumer = ScriptedConsumer(records(SECOND, 0, 1), assigned=(FIRST, SECOND))
    consumer.positions[FIRST] = 3
    read(consumer, {SECOND: 1}, kind=kind)
    assert printed() == ["1.0"]
    assert consumer.positions[FIRST] == 3


def test_when_all_is_read_already_nothing_is_waited_for(printed: Printed) -> None:
    read(ScriptedConsumer(assigned=(), committed={FIRST: 7}), {FIRST: 7})
    read(ScriptedConsumer(assigned=()), {})
    assert printed() == []


def test_a_member_without_partitions_waits_for_the_group(printed: Printed) -> None:
    consumer = ScriptedConsumer([], [], assigned=(), committed={FIRST: 2})
    polls = consumer.poll

    async def others_go_on(*arguments: float) -> Sequence[ConsumerRecord]:
        consumer._committed[SECOND] = 1 + len(consumer.limits)
        return await polls(*arguments)  # type: ignore[arg-type]

    consumer.poll = others_go_on  # type: ignore[method-assign, assignment]
    read(consumer, {FIRST: 2, SECOND: 2})
    assert printed() == []


# --- values by the batch ----------------------------------------------------------------------


def test_of_a_batch_that_is_too_long_only_so_many_values_are_printed(printed: Printed) -> None:
    consumer = ScriptedConsumer(records(FIRST, 0, 3), [], records(FIRST, 3, 9))
    read(consumer, max_records=5, kind=ValuePrinting)
    assert printed() == ["0.0", "0.1", "0.2", "0.3", "0.4"]


def test_silence_ends_the_printing_of_values_too(printed: Printed) -> None:
    read(ScriptedConsumer(records(FIRST, 0, 1), []), idle_seconds=0.1, kind=ValuePrinting)
    assert printed() == ["0.0"]


def test_values_behind_the_ends_are_not_printed(printed: Printed) -> None:
    consumer = ScriptedConsumer(
        records(FIRST, 0, 5),
        records(SECOND, 0, 1),
        records(SECOND, 1, 4),
        assigned=(FIRST, SECOND),
    )
    read(consumer, {FIRST: 3, SECOND: 2}, kind=ValuePrinting)
    assert printed() == ["0.0", "0.1", "0.2", "1.0", "1.1"]
    assert consumer.paused == {FIRST, SECOND}
