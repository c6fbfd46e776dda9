"""Records of groups in a real partition: written in batches, loaded in pieces."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest
from group_world import World

from moldau.broker.server import BrokerServer
from moldau.config.broker_options import BrokerOptions
from moldau.coordinators.groups.rules.groups import Groups
from moldau.coordinators.groups.rules.outcome import group_limits_of
from moldau.coordinators.groups.rules.records import (
    CommittedOffset,
    CoordinatorRecord,
    GroupRecord,
    OffsetRecord,
    PendingOffsetRecord,
    TransactionEnd,
    encode,
)
from moldau.coordinators.runtime.log import CoordinatorLog
from moldau.errors import BatchTooLargeError, InvalidRecordError, NotLeaderError
from moldau.model import GROUP_OFFSETS_TOPIC
from moldau.records.batch_header import walk_headers
from moldau.records.compression import Codec
from moldau.records.record_batch import (
    ControlType,
    EndTransactionMarker,
    build_batch,
    build_marker_batch,
)
from moldau.replication.partition import Partition


class Bench:
    """A partition of the offsets topic, and a log over it."""

    def __init__(self, world: World, broker: BrokerServer) -> None:
        self._world = world
        self._broker = broker
        found = broker.services.partitions.find(GROUP_OFFSETS_TOPIC, 0)
        assert found is not None
        self.partition: Partition = found
        shard = broker.services.groups._make_shard(found)
        self.log = cast("CoordinatorLog[CoordinatorRecord, CoordinatorRecord]", shard._log)

    @property
    def now(self) -> float:
        return self._world.clock.monotonic()

    async def loaded(self) -> list[CoordinatorRecord]:
        return [one async for piece in self.log.load() for one in piece]

    def batches(self) -> list[tuple[int, int]]:
        """Codec and number of records of each."""
        log = self.partition.log
        read = log.read(0, 1 << 30, end_offset=log.log_end_offset, min_one=True)
        assert read.slice is not None
        return [(one.codec, one.record_count) for _, one in walk_headers(read.slice.read())]

    def append(
        self, records: list[CoordinatorRecord], producer_id: int, *, transactional: bool
    ) -> None:
        rows = [(0, *encode(record), ()) for record in records]
        batch = build_batch(
            rows,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            transactional=transactional,
        )
        self.partition.append_internal(batch)


def run(story: Callable[[Bench], Awaitable[None]], **config: str) -> None:
    async def tell() -> None:
        world = World(**config)
        broker = await world.start()
        await broker.services.groups.topic.ensure()
        await story(Bench(world, broker))
        await broker.stop()

    asyncio.run(tell())


def position(number: int, text: str = "") -> OffsetRecord:
    return OffsetRecord(f"group-{number}", "t", number, CommittedOffset(number, 3, text, 7))


def test_what_is_appended_together_is_one_batch_and_is_loaded_again() -> None:
    async def story(bench: Bench) -> None:
        written: list[CoordinatorRecord] = [position(1), position(2), GroupRecord("group-1", None)]
        bench.log.append(written)
        bench.log.append([position(3)])
        assert bench.batches() == [(Codec.NONE, 3), (Codec.NONE, 1)]
        assert await bench.loaded() == [*written, position(3)]
        assert bench.log.end_offset == bench.log.committed_offset == 4

    run(story)


def test_a_flood_is_written_in_batches_that_fit() -> None:
    async def story(bench: Bench) -> None:
        written: list[CoordinatorRecord] = [position(number, "x" * 100) for number in range(500)]
        bench.log.append(written)
        assert len(bench.batches()) > 10
        assert await bench.loaded() == written

    run(story, message_max_bytes="8000")


def test_a_flood_with_a_record_that_does_not_fit_is_not_written_in_part() -> None:
    async def story(bench: Bench) -> None:
        written: list[CoordinatorRecord] = [position(number, "x" * 100) for number in range(500)]
        with pytest.raises(BatchTooLargeError):
            bench.log.append([*written, position(501, "x" * 9_000)])
        assert bench.log.end_offset == 0

    run(story, message_max_bytes="8000")


def test_a_lease_that_ends_while_a_flood_is_written_lets_all_of_it_pass() -> None:
    async def story(bench: Bench) -> None:
        ends = iter([bench.now + 1])
        bench.partition._lease_end = lambda: next(ends, bench.now)
        bench.log.append([position(number, "x" * 100) for number in range(500)])
        assert bench.log.end_offset == 500
        with pytest.raises(NotLeaderError):
            bench.log.append([position(501)])

    run(story, message_max_bytes="8000")


@pytest.mark.parametrize("codec", list(Codec))
def test_the_codec_is_the_brokers_choice(codec: Codec) -> None:
    async def story(bench: Bench) -> None:
        bench.log.append([position(number) for number in range(50)])
        assert bench.batches() == [(codec, 50)]
        assert len(await bench.loaded()) == 50

    run(story, offsets_topic_compression_codec=str(codec.value))


def test_a_log_of_many_buffers_is_loaded_in_its_order() -> None:
    async def story(bench: Bench) -> None:
        for number in range(200):
            bench.log.append([position(number)])
        assert await bench.loaded() == [position(number) for number in range(200)]

    run(story, offsets_load_buffer_size="500")


def test_garbage_in_the_log_is_stepped_over() -> None:
    async def story(bench: Bench) -> None:
        bench.log.append([position(1)])
        rows = [(0, b"?", b"?", ()), (0, *encode(position(2)), ()), (0, None, b"", ())]
        bench.partition.append_internal(build_batch(rows))
        bench.log.append([position(3)])
        assert await bench.loaded() == [position(1), position(2), position(3)]

    run(story)


def test_commits_within_transactions_count_when_their_transaction_does() -> None:
    async def story(bench: Bench) -> None:
        bench.append([position(1)], 11, transactional=True)
        bench.append([position(2)], 12, transactional=True)
        bench.append([position(3)], 13, transactional=True)
        bench.log.append([position(4)])
        for producer_id, end in ((11, ControlType.COMMIT), (12, ControlType.ABORT)):
            marker = EndTransactionMarker(end, 0)
            bench.partition.append_internal(
                build_marker_batch(
                    marker, timestamp_ms=0, producer_id=producer_id, producer_epoch=0
                )
            )
        pending = [PendingOffsetRecord(10 + number, *position(number)) for number in (1, 2, 3)]
        ends = [TransactionEnd(11, is_commit=True), TransactionEnd(12, is_commit=False)]
        assert await bench.loaded() == [*pending, position(4), *ends]
        groups = Groups(group_limits_of(BrokerOptions.resolve({})))
        for record in await bench.loaded():
            groups.apply(record)
        assert [group.group_id for group in groups if group.offsets] == ["group-1", "group-4"]
        assert [group.group_id for group in groups if group.pending_offsets] == ["group-3"]

    run(story)


def test_only_the_leader_writes() -> None:
    async def story(bench: Bench) -> None:
        bench.partition.suspend()
        with pytest.raises(NotLeaderError):
            bench.log.append([position(1)])

    run(story)


def test_a_record_that_the_format_has_no_room_for_is_not_written() -> None:
    async def story(bench: Bench) -> None:
        with pytest.raises(InvalidRecordError):
            bench.log.append([position(1), position(2, "x" * 40_000)])
        assert bench.log.end_offset == 0

    run(story)
