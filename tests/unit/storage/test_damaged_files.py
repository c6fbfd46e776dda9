"""Each file beside the batches is damaged on its own, in each way, after each kind of stop.

Whatever it is, a start either gives the same log as before, or ends with a message that names the
file. Never: another log, fewer aborted transactions (readers of committed records would see
aborted ones) or more of them (they would miss committed ones).
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple
from uuid import UUID

import pytest
from log_bench import DEFAULTS, START_MS, batch_of, offsets_of, read_all

from moldau.config.broker_options import BrokerOptions
from moldau.errors import StartupError
from moldau.model import BrokerId, Offset, TopicId, TopicPartition
from moldau.records.batch_header import read_header
from moldau.records.record_batch import ControlType, EndTransactionMarker, build_marker_batch
from moldau.simulation.manual_clock import ManualClock
from moldau.simulation.memory_files import MemoryFiles
from moldau.storage.log import Log
from moldau.storage.log_store import LogStore
from moldau.storage.rules.file_names import CLEAN_SHUTDOWN_FILE
from moldau.workers import InlineWorkers

DATA = Path("data")
PARTITION = TopicPartition("clicks", 0)
TOPIC_ID = TopicId(UUID("6f1f0b36-7a3c-4a0e-9e0a-0c7b5a1d2e3f"))
OPTIONS = DEFAULTS.replace(segment_bytes=1000, index_interval_bytes=100)
ROUNDS = 12


class Seen(NamedTuple):
    """What of a log has to be the same after every start."""

    offsets: list[int]
    aborted: list[tuple[int, int, int]]
    last_stable_offset: int
    epochs: object
    producers: object
    topic_id: TopicId | None


class Machine:
    """A folder on which stores are opened one after the other."""

    def __init__(self) -> None:
        self.files = MemoryFiles()
        self.failures: list[OSError] = []

    def directory_failed(self, folder: Path, error: OSError) -> None:
        self.failures.append(error)

    async def open(self) -> LogStore:
        options = BrokerOptions.resolve({})
        store = LogStore(
            (DATA,),
            files=self.files,
            clock=ManualClock(),
            workers=InlineWorkers(),
            options=lambda: options,
            failures=self,
            random=Random(1),
        )
        await store.open(lambda _: OPTIONS)
        await store.write_identity(BrokerId(1), "cluster-one")
        return store


def append(log: Log, producer_id: int, sequence: int, epoch: int) -> None:
    batch, header = batch_of(
        2,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )
    log.append(batch, header, leader_epoch=epoch, now_ms=START_MS)


def end(log: Log, producer_id: int, kind: ControlType, epoch: int) -> None:
    marker = build_marker_batch(
        EndTransactionMarker(kind, 5),
        timestamp_ms=START_MS,
        producer_id=producer_id,
        producer_epoch=0,
    )
    log.append(marker, read_header(marker), leader_epoch=epoch, now_ms=START_MS)


def write(log: Log, first: int, count: int) -> None:
    """Transactions of two producers, some across segments, some aborted; one is open at the end."""
    for number in range(first, first + count):
        epoch = number // 3
        append(log, 7, 4 * number, epoch)
        append(log, 8, 2 * number, epoch)
        append(log, 7, 4 * number + 2, epoch)
        end(log, 7, ControlType.ABORT if number % 2 else ControlType.COMMIT, epoch)
        if number % 4 == 3:
            end(log, 8, ControlType.ABORT if number % 8 == 3 else ControlType.COMMIT, epoch)


def look(log: Log) -> Seen:
    found = log.aborted_transactions(0, log.log_end_offset)
    return Seen(
        offsets=offsets_of(read_all(log)),
        aborted=sorted((one.producer_id, one.first_offset, one.last_offset) for one in found),
        last_stable_offset=log.last_stable_offset(log.log_end_offset),
        epochs=log.epochs,
        producers=sorted(
            (one.producer_id, one.batches[-1].last_sequence, one.transaction_first_offset)
            for one in log.active_producers()
        ),
        topic_id=log.topic_id,
    )


async def make(machine: Machine, stop: str) -> Seen:
    store = await machine.open()
    log = await store.create_log(PARTITION, TOPIC_ID, OPTIONS)
    write(log, 0, ROUNDS)
    log.cleaned_offset = Offset(2)
    store.checkpoints.high_watermarks = lambda: {PARTITION: log.log_end_offset}
    await log.flush()
    await store.checkpoints.write_high_watermarks()
    await store.checkpoints.write_all()
    write(log, ROUNDS, 2)
    seen = look(log)
    await store.close()
    if stop == "killed":
        machine.files.remove(DATA / CLEAN_SHUTDOWN_FILE)
    return seen


def replace_by(make_content: Callable[[bytes], bytes]) -> Callable[[MemoryFiles, Path], None]:
    return lambda files, path: files.replace(path, make_content(files.read(path)))


def put_folder(files: MemoryFiles, path: Path) -> None:
    files.remove(path)
    files.make_folder(path)


def forbid(files: MemoryFiles, path: Path) -> None:
    files.fail_next("*", errno.EACCES, path_matching=str(path), count=None)


DAMAGES: dict[str, Callable[[MemoryFiles, Path], None]] = {
    "missing": lambda files, path: files.remove(path),
    "empty": replace_by(lambda _: b""),
    "half": replace_by(lambda data: data[: len(data) // 2]),
    "cut at an entry": replace_by(lambda data: data[: (len(data) - 1) // 34 * 34]),
    "an entry twice": replace_by(lambda data: data + data[-34:]),
    "random": replace_by(lambda data: Random(7).randbytes(len(data))),
    "zeros": replace_by(lambda data: bytes(len(data))),
    "a bit": replace_by(lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]),
    "a folder": put_folder,
    "not readable": forbid,
}

FILES = (
    "clicks-0/.txnindex",
    "clicks-0/.snapshot",
    "clicks-0/leader-epoch-checkpoint",
    "clicks-0/partition.metadata",
    "recovery-point-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "replication-offset-checkpoint",
    "aborted-transactions-checkpoint",
    "meta.properties",
)
CASES = [
    (name, damage)
    for name in FILES
    for damage in DAMAGES
    # One bit makes the id of another topic: what becomes of such a log is for the broker to say.
    if (name, damage) != ("clicks-0/partition.metadata", "a bit")
]


@pytest.mark.parametrize("stop", ["clean", "killed"])
@pytest.mark.parametrize(("name", "damage"), CASES)
def test_a_damaged_file_costs_nothing_or_is_named(name: str, damage: str, stop: str) -> None:
    async def story() -> None:
        machine = Machine()
        seen = await make(machine, stop)
        folder, ending = (DATA / name).parent, Path(name).name
        found = [one for one in machine.files.list_folder(folder) if one.endswith(ending)]
        path = folder / found[len(found) // 3]
        DAMAGES[damage](machine.files, path)
        message = await start_and_look(machine, seen)
        assert message is None or path.name in message, message
        if message is None:
            assert await start_and_look(machine, seen) is None  # what was mended, stays so

    asyncio.run(story())


async def start_and_look(machine: Machine, seen: Seen) -> str | None:
    """What the start ends with; None when all is as it was."""
    machine.failures.clear()
    try:
        store = await machine.open()
    except StartupError as error:
        return str(error)
    log = store.logs[PARTITION]
    found = look(log)
    if found.topic_id is None:
        found = found._replace(topic_id=seen.topic_id)  # it is unknown, and no other
    assert found == seen
    await store.close()
    return None
