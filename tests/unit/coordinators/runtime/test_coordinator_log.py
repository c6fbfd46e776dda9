"""The log of a shard over a real partition: what is durable, what is safe, and what is read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple

import pytest

from moldau.coordinators.runtime.log import CoordinatorLog, CoordinatorLogFormat
from moldau.errors import (
    CorruptBatchError,
    InvalidRecordError,
    NotEnoughReplicasError,
    NotLeaderError,
    StorageError,
)
from moldau.records.batch_header import BatchHeader
from moldau.records.compression import Codec
from moldau.records.record import Record
from moldau.records.record_batch import ControlType, EndTransactionMarker
from moldau.storage.rules.producer_state import NOT_REQUIRED
from moldau.workers import InlineWorkers
from unit.replication.replica_bench import CLICKS, Bench, run_story


class Row(NamedTuple):
    """A record: text, and where it was found. The text "?" has no room in the format."""

    text: str
    offset: int = -1


class Transaction(NamedTuple):
    producer_id: int
    producer_epoch: int
    verification: int = NOT_REQUIRED


def encode(row: Row) -> tuple[bytes, bytes | None]:
    if row.text == "?":
        raise InvalidRecordError("no room")
    return row.text.encode(), None


def decode(key: bytes | None, value: bytes | None) -> Row | None:
    if key == b"garbage":
        raise InvalidRecordError("garbage")
    return None if key == b"of a later version" else Row((key or b"").decode())


def decode_transactional(header: BatchHeader, record: Record) -> Row | None:
    if header.is_control:
        return Row(f"end of {header.producer_id}")
    return Row(f"{(record.key or b'').decode()} of {header.producer_id}")


class Scene:
    """A log over the replica of the leader."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.flushes: list[asyncio.Task[None]] = []
        self.commits = 0
        leader = bench.replicas[1]
        log_format: CoordinatorLogFormat[Row, Row] = CoordinatorLogFormat(
            encode=encode,
            decode=decode,
            codec=lambda: Codec.NONE,
            load_buffer_bytes=lambda: 200,
            decode_transactional=decode_transactional,
            locate=lambda row, offset: row._replace(offset=offset),
        )
        self.partition = leader.partition
        self.log = CoordinatorLog(
            leader.partition,
            log_format,
            clock=bench.clock,
            workers=InlineWorkers(),
            require=self._require,
        )
        self.log.watch(self._on_commit)

    def _require(self, name: str, work: Coroutine[Any, Any, None]) -> object:
        assert name == f"flush of {CLICKS}"
        self.flushes.append(asyncio.ensure_future(work))
        return self.flushes[-1]

    def _on_commit(self) -> None:
        self.commits += 1

    def append(self, *texts: str) -> None:
        self.log.append([Row(text) for text in texts])

    def flip_bit(self, position: int) -> None:
        """On the leader's disk."""
        leader = self.bench.replicas[1]
        file = leader.files.open(self.partition.log.segments[-1].path, create=False)
        file.write_at(position, bytes([file.read_at(position, 1)[0] ^ 0x40]))

    async def loaded(self) -> list[Row]:
        return [row async for piece in self.log.load() for row in piece]


def run(
    story: Callable[[Scene], Awaitable[None]], *, replicas: int = 1, **topic_config: str
) -> None:
    async def play(bench: Bench) -> None:
        await bench.open(*range(1, replicas + 1))
        bench.elect(1, 1)
        await story(Scene(bench))

    run_story(play, **topic_config)


def test_what_is_written_is_read_with_its_offset() -> None:
    async def story(scene: Scene) -> None:
        scene.append("a", "b")
        scene.append("c")
        assert await scene.loaded() == [Row("a", 0), Row("b", 1), Row("c", 2)]

    run(story)


def test_what_is_not_known_and_what_is_damaged_is_left_out() -> None:
    async def story(scene: Scene) -> None:
        scene.append("a", "garbage", "of a later version", "b")
        assert await scene.loaded() == [Row("a", 0), Row("b", 3)]

    run(story)


def test_a_flipped_bit_is_not_loaded_and_the_partition_is_reported_as_damaged() -> None:
    async def story(scene: Scene) -> None:
        scene.append("a")
        size_bytes = scene.partition.log.size_bytes
        scene.append("b")
        scene.append("c")
        scene.flip_bit(2 * size_bytes - 2)  # in the key of the second record
        with pytest.raises(CorruptBatchError, match="clicks-0 at offset 1"):
            await scene.loaded()
        assert scene.bench.replicas[1].observer.suspicions == [1]

    run(story)


def test_a_disk_that_cannot_be_read_goes_offline_and_the_load_says_so() -> None:
    async def story(scene: Scene) -> None:
        scene.append("a")
        scene.bench.replicas[1].files.fail_next("read", path_matching="*.log")
        with pytest.raises(StorageError):
            await scene.loaded()
        assert scene.partition.log.directory.failure is not None

    run(story)


@pytest.mark.parametrize("byte", [8, 9, 11], ids=["negative", "huge", "a little longer"])
def test_a_batch_with_a_damaged_length_does_not_end_the_load_early(byte: int) -> None:
    async def story(scene: Scene) -> None:
        scene.append("a")
        size_bytes = scene.partition.log.size_bytes
        for _ in range(5):
            scene.append("b")
        scene.flip_bit(size_bytes + byte)
        with pytest.raises(CorruptBatchError):
            await scene.loaded()
        assert scene.bench.replicas[1].observer.suspicions == [1]

    run(story)


def test_what_has_no_room_is_not_written_in_part() -> None:
    async def story(scene: Scene) -> None:
        with pytest.raises(InvalidRecordError):
            scene.append("a", "?")
        assert scene.log.end_offset == 0

    run(story)


def test_transactions_of_producers_are_read_with_their_ends() -> None:
    async def story(scene: Scene) -> None:
        scene.log.append([Row("a")], Transaction(7, 0))
        scene.append("b")
        scene.log.append_marker(EndTransactionMarker(ControlType.COMMIT, 3), 7, 0, 1)
        texts = [row.text for row in await scene.loaded()]
        assert texts == ["a of 7", "b", "end of 7"]

    run(story)


def test_a_record_is_committed_when_the_follower_has_it() -> None:
    async def story(scene: Scene) -> None:
        scene.append("a")
        assert (scene.log.end_offset, scene.log.committed_offset) == (1, 0)
        scene.bench.copy(2, 1)
        await scene.bench.settle()
        assert scene.log.committed_offset == 1
        assert scene.commits

    run(story, replicas=2)


def test_it_is_safe_while_enough_are_in_sync() -> None:
    async def story(scene: Scene) -> None:
        assert scene.log.is_safe
        scene.bench.elect(1, 2, isr=(1,))
        assert not scene.log.is_safe
        with pytest.raises(NotEnoughReplicasError):
            scene.append("a")

    run(story, replicas=2, min_insync_replicas="2")


def test_nobody_but_the_leader_writes() -> None:
    async def story(scene: Scene) -> None:
        scene.partition.suspend()
        with pytest.raises(NotLeaderError):
            scene.append("a")

    run(story)


def test_with_flush_messages_a_record_is_committed_when_it_is_on_the_disk() -> None:
    async def story(scene: Scene) -> None:
        scene.append("a")
        assert (scene.partition.high_watermark, scene.log.committed_offset) == (1, 0)
        scene.append("b")
        assert scene.log.committed_offset == 0
        commits = scene.commits
        await asyncio.gather(*scene.flushes)
        assert scene.log.committed_offset == scene.partition.log.recovery_point == 2
        assert scene.commits > commits

    run(story, flush_messages="1")


def test_a_closed_log_tells_nobody() -> None:
    async def story(scene: Scene) -> None:
        scene.log.close()
        scene.append("a")
        assert scene.commits == 0
        scene.log.close()  # a second time does nothing

    run(story)
