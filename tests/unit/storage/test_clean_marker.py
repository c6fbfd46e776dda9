"""Files that are lost or cut short between a clean stop and the next start (LOG-13)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_bench import START_MS, batch_of, offsets_of, options, read_all

from moldau.config.broker_options import BrokerOptions
from moldau.model import TopicId, TopicPartition
from moldau.simulation.manual_clock import ManualClock
from moldau.simulation.memory_files import MemoryFiles
from moldau.storage.checkpoint_files import describe_segments
from moldau.storage.log import Log
from moldau.storage.log_store import LogStore
from moldau.workers import InlineWorkers

CLICKS = TopicPartition("clicks", 0)
DATA = Path("data")
FOLDER = DATA / "clicks-0"
RECORDS = 12  # in batches of one, three to a segment
SEALED = ["00000000000000000000.log", "00000000000000000003.log", "00000000000000000006.log"]
ACTIVE = "00000000000000000009.log"


class Bench:
    """A machine on which stores are opened one after the other."""

    def __init__(self) -> None:
        self.files = MemoryFiles()
        self.clock = ManualClock()

    def directory_failed(self, folder: Path, error: OSError) -> None:
        """Nothing fails here."""

    async def open(self) -> LogStore:
        store = LogStore(
            (DATA,),
            files=self.files,
            clock=self.clock,
            workers=InlineWorkers(),
            options=lambda: BrokerOptions.resolve({}),
            failures=self,
            random=Random(1),
        )
        await store.open()
        return store

    async def fill(self, segment_records: int = 3, value: bytes = b"value") -> None:
        """A log with four segments, or fewer, closed in good order."""
        store = await self.open()
        batch, header = batch_of(1, value)
        log = await store.create_log(
            CLICKS, TopicId(UUID(int=1)), options(segment_bytes=segment_records * len(batch))
        )
        for _ in range(RECORDS):
            batch, header = batch_of(1, value)
            log.append(batch, header, leader_epoch=0, now_ms=START_MS)
        await store.close(broker_epoch=42)
        names = [name for name in self.files.list_folder(FOLDER) if name.endswith(".log")]
        assert sorted(names) == [*SEALED, ACTIVE][: RECORDS // segment_records]

    def cut(self, name: str, bytes_less: int = 1) -> None:
        path = FOLDER / name
        self.files.replace(path, self.files.read(path)[:-bytes_less])

    async def reopened(self) -> Log:
        """As a process finds it that ends again without a word."""
        log = (await self.open()).logs[CLICKS]
        self.files.crash_process()
        return log


def run(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(story())  # type: ignore[arg-type]


def worth(log: Log) -> tuple[bool, bool]:
    return log.is_incomplete, log.has_lost_its_end


def test_a_log_that_is_as_it_was_is_not_read() -> None:
    async def story() -> None:
        bench = Bench()
        await bench.fill()
        bench.files.fail_next("read", path_matching=f"{FOLDER}/0*[036].log", count=None)
        log = await bench.reopened()
        assert worth(log) == (False, False)
        assert log.log_end_offset == RECORDS

    run(story)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_sealed_segment_that_is_gone_is_noticed_and_nothing_else_goes(number: int) -> None:
    async def story() -> None:
        bench = Bench()
        await bench.fill()
        bench.files.remove(FOLDER / SEALED[number])
        log = await bench.reopened()
        assert worth(log) == (True, True)
        gone = range(3 * number, 3 * number + 3)
        kept = [offset for offset in range(RECORDS) if offset not in gone]
        assert offsets_of(read_all(log)) == kept

    run(story)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_sealed_segment_that_is_short_is_noticed_and_cut_behind_its_last_batch(
    number: int,
) -> None:
    async def story() -> None:
        bench = Bench()
        await bench.fill()
        bench.cut(SEALED[number])
        log = await bench.reopened()
        assert worth(log) == (True, True)
        assert offsets_of(read_all(log)) == [
            each for each in range(RECORDS) if each != 3 * number + 2
        ]

    run(story)


def test_a_hole_is_remembered_until_somebody_has_said_what_becomes_of_it() -> None:
    async def story() -> None:
        bench = Bench()
        await bench.fill()
        bench.files.remove(FOLDER / SEALED[1])
        assert worth(await bench.reopened()) == (True, True)
        assert worth(await bench.reopened()) == (True, True)  # it was killed before it said so
        store = await bench.open()
        assert worth(store.logs[CLICKS]) == (True, True)
        await store.accept_incomplete(store.logs[CLICKS])
        await store.forget_losses()
        await store.close()
        assert worth(await bench.reopened()) == (False, False)
        log = await bench.reopened()  # after a kill, the hole does not end the log either
        assert log.log_end_offset == RECORDS
        assert worth(log) == (False, False)

    run(story)


def test_an_active_segment_that_is_gone_or_short_costs_the_end_only() -> None:
    async def story(harm: Callable[[Bench], None], end_offset: int) -> None:
        bench = Bench()
        await bench.fill()
        harm(bench)
        log = await bench.reopened()
        assert worth(log) == (False, True)
        assert offsets_of(read_all(log)) == list(range(end_offset))

    run(lambda: story(lambda bench: bench.cut(ACTIVE), 11))
    run(lambda: story(lambda bench: bench.files.remove(FOLDER / ACTIVE), 9))


def test_an_active_segment_that_is_short_is_read_and_checked() -> None:
    """Also before its last index entry, where a clean stop vouches for the batches otherwise."""

    async def story() -> None:
        bench = Bench()
        await bench.fill(segment_records=RECORDS, value=bytes(1_000))
        whole = bench.files.read(FOLDER / SEALED[0])
        size = len(whole) // RECORDS
        damaged = bytearray(whole[:-size])
        damaged[3 * size - 1] ^= 1  # in the third batch
        bench.files.replace(FOLDER / SEALED[0], bytes(damaged))
        log = await bench.reopened()
        assert worth(log) == (False, True)
        assert offsets_of(read_all(log)) == [0, 1]

    run(story)


def test_an_active_segment_that_is_short_is_noticed_without_checkpoints() -> None:
    async def story(harm: Callable[[Bench], None], end_offset: int) -> None:
        bench = Bench()
        await bench.fill()
        for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            if bench.files.exists(DATA / name):
                bench.files.remove(DATA / name)
        harm(bench)
        log = await bench.reopened()
        assert worth(log) == (False, True)
        assert offsets_of(read_all(log)) == list(range(end_offset))

    batch, _ = batch_of(1)
    run(lambda: story(lambda bench: bench.cut(ACTIVE, len(batch)), 11))
    run(lambda: story(lambda bench: bench.files.remove(FOLDER / ACTIVE), 9))


def test_what_was_appended_to_the_active_segment_meanwhile_is_cut_off() -> None:
    async def story() -> None:
        bench = Bench()
        await bench.fill()
        path = FOLDER / ACTIVE
        bench.files.replace(path, bench.files.read(path) + bytes(70))
        log = await bench.reopened()
        assert log.log_end_offset == RECORDS
        assert not log.is_incomplete

    run(story)


@pytest.mark.parametrize("harm", ["another stop", "no list", "nonsense", "a row too short"])
def test_a_list_that_belongs_to_no_clean_stop_says_nothing(harm: str) -> None:
    """Another version or a Kafka was there meanwhile; or somebody wrote into it."""

    async def story() -> None:
        bench = Bench()
        await bench.fill()
        listed = DATA / "segments-at-stop"
        match harm:
            case "another stop":
                marker = b'{"version":0,"brokerEpoch":43}'
                bench.files.replace(DATA / ".kafka_cleanshutdown", marker)
            case "no list":
                bench.files.remove(listed)
            case "nonsense":
                bench.files.replace(listed, b"[1, 2")
            case _:
                fields = json.loads(bench.files.read(listed))
                fields["logs"][0].pop()
                bench.files.replace(listed, json.dumps(fields).encode())
        bench.files.remove(FOLDER / SEALED[1])
        assert worth(await bench.reopened()) == (False, False)

    run(story)


SEGMENTS = st.lists(
    st.tuples(st.integers(1, 50), st.integers(0, 1000)), min_size=1, max_size=6
).map(
    lambda steps: [
        (sum(step for step, _ in steps[:number]), size) for number, (_, size) in enumerate(steps)
    ]
)


@given(SEGMENTS, st.data())
def test_any_file_that_is_gone_or_of_another_size_is_noticed(
    segments: list[tuple[int, int]], data: st.DataObject
) -> None:
    closed = describe_segments(segments)
    assert not closed.has_lost_sealed(segments)
    assert not closed.has_lost_active(segments)
    number = data.draw(st.integers(0, len(segments) - 1))
    offset, size = segments[number]
    other = data.draw(st.integers(0, 1000).filter(lambda each: each != size))
    for found in (
        [*segments[:number], *segments[number + 1 :]],
        [*segments[:number], (offset, other), *segments[number + 1 :]],
    ):
        is_active = number == len(segments) - 1
        assert closed.has_lost_sealed(found) is not is_active
        assert closed.has_lost_active(found) is is_active or not found
