"""A machine of a simulated cluster: a disk, a clock, and a broker process that comes and goes.

The broker is the production code with the ports of `moldau.testing`. Killing its process stops it
between two steps; what a dead process has sent is on its way, what it has written is on the disk.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from functools import lru_cache, partial
from pathlib import Path
from random import Random
from typing import Final, TypeVar

from moldau.broker.ports import Ports
from moldau.broker.server import BrokerServer
from moldau.clock import Clock
from moldau.coordination.port import Coordination, CoordinationError
from moldau.errors import KafkaError, MoldauError, StartupError
from moldau.model import TopicPartition
from moldau.records.batch_header import HEADER_BYTES, crc_matches, read_header
from moldau.records.record_batch import ControlType, find_control_type, records_of
from moldau.simulation.coordination_service import CoordinationService, open_session
from moldau.simulation.fault_plan import SeededStreams
from moldau.simulation.history import StoredBatch
from moldau.simulation.manual_clock import DEFAULT_START_MS
from moldau.simulation.memory_files import MemoryFiles
from moldau.simulation.memory_network import MemoryNetwork
from moldau.simulation.served_store import ServedStore
from moldau.simulation.virtual_loop import (
    ProcessClock,
    SimulatedProcess,
    VirtualLoop,
    current_process_name,
)
from moldau.storage.rules.file_names import PARTITION_METADATA_FILE

T = TypeVar("T")

DATA_FOLDER: Final = Path("/data")
PORT: Final = 9092
LISTENERS: Final = f"PLAINTEXT://HOST:{PORT}"
_MOST_SKEW_MS: Final = 90_000
_MOST_DRIFT: Final = 0.01
_PAUSE_BEFORE_RESTART: Final = 0.7
_LAGGING_SHARE: Final = 0.5
"""Of the seeds, in how many the coordination service is an ensemble whose servers lag."""

_EXPECTED: Final = (StartupError, CoordinationError, KafkaError, OSError)
"""What may be reported, and may keep a broker from starting, when disks and links fail."""


class EventLog:
    """What happened, in order. Two runs of one seed have the same."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.lines: list[str] = []
        self._loop = loop

    def note(self, text: str) -> None:
        name = current_process_name() or "-"
        self.lines.append(f"{self._loop.time():10.5f} {name:12s} {text}")

    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()


class LogCapture(logging.Handler):
    """Puts what brokers log into the event log."""

    def __init__(self, log: EventLog, level: int = logging.WARNING) -> None:
        super().__init__(level)
        self._log = log
        self.errors: list[str] = []  # with their tracebacks

    def emit(self, record: logging.LogRecord) -> None:
        self._log.note(f"{record.levelname.lower()} {record.getMessage()}")
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, _EXPECTED):
            self.errors.append(self.format(record))


class SimulatedWorkers:
    """Work takes some virtual time, and is done once begun, whoever still waits for it."""

    def __init__(self, clock: Clock, random: Random) -> None:
        self.most_seconds = 0.002
        self._clock = clock
        self._random = random

    async def run(self, work: Callable[[], T]) -> T:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._clock.call_later(self._random.uniform(0, self.most_seconds), lambda: _do(work, done))
        return await done

    def close(self) -> None:
        """Nothing runs between two calls."""


def _do(work: Callable[[], T], done: asyncio.Future[T]) -> None:
    try:
        result = work()
    except Exception as error:  # noqa: BLE001 it belongs to the one who waits
        if not done.done():
            done.set_exception(error)
    else:
        if not done.done():
            done.set_result(result)


def _draw_lag(random: Random) -> float:
    """Mostly a little, now and then so much that reads are noticeably old."""
    longest = 0.4 if random.random() < 0.03 else 0.004
    return random.uniform(0, longest)


class World:
    """What all machines share."""

    def __init__(self, seed: int, session_seconds: float, *, is_served: bool = False) -> None:
        """`is_served`: all machines are processes of one, whose supervisor serves the store."""
        self.streams = SeededStreams(seed)
        self.loop = VirtualLoop()  # type: ignore[abstract]  # sockets and threads are not served
        self.log = EventLog(self.loop)
        self.session_seconds = session_seconds
        self.story = SimulatedProcess("story", self.loop)
        self.clock = ProcessClock(self.loop, self.story, start_ms=DEFAULT_START_MS)
        self.network = MemoryNetwork(self.clock, random=self.streams.stream("network"))
        self.supervisor = self._make_supervisor() if is_served else None
        self.service = self.supervisor or self._make_service()

    def _make_service(self) -> CoordinationService:
        service = SimulatedProcess("coordination", self.loop)
        lag = self.streams.stream("lag")
        return CoordinationService(
            self.network,
            ProcessClock(self.loop, service, start_ms=DEFAULT_START_MS),
            draw_lag=partial(_draw_lag, lag) if lag.random() < _LAGGING_SHARE else None,
        )

    def _make_supervisor(self) -> ServedStore:
        random = self.streams.stream("supervisor")
        return ServedStore(
            self.network,
            self.loop,
            DEFAULT_START_MS,
            lambda clock: SimulatedWorkers(clock, random),
        )

    def close(self) -> None:
        """The end. Links and sessions hold on to the tasks that waited for them."""
        loop = self.loop
        if self.supervisor is not None:
            self.supervisor.close()
        vars(self).clear()
        loop.close()


class SimulatedMachine:
    """One broker's machine. Used from the story's tasks only."""

    def __init__(self, world: World, broker_id: int, static: Mapping[str, str]) -> None:
        self.broker_id = broker_id
        self.host = f"broker-{broker_id}"
        self._world = world
        self.files = self._empty_disk()
        self._unmounted: MemoryFiles | None = None  # what is in the place of the empty folder
        self._is_disk_lost = False  # one was replaced, and its owner knows it
        self.process: SimulatedProcess | None = None  # None while it is down
        self.broker: BrokerServer | None = None  # once it has started
        self.workers: SimulatedWorkers | None = None
        self.clock: ProcessClock | None = None
        self.failures: list[str] = []  # of starts, that should not be
        self.is_closed = False  # stopped in good order: there is nothing that a power loss takes
        self.on_serving: Callable[[BrokerServer], None] | None = None  # told of each new broker
        self._stop: Callable[[], None] | None = None
        self._is_wanted = False
        self._starts = 0
        self._boots = 1
        self._static = {
            "log.dirs": str(DATA_FOLDER),
            **static,
            "broker.id": str(broker_id),
            "listeners": static.get("listeners", LISTENERS).replace("HOST", self.host),
        }
        random = world.streams.stream(f"machine {broker_id}")
        self._skew_ms = random.randint(-_MOST_SKEW_MS, _MOST_SKEW_MS)
        self._rate = 1 + random.uniform(-_MOST_DRIFT, _MOST_DRIFT)
        self._monotonic_start = random.uniform(0, 1e6)

    @property
    def is_running(self) -> bool:
        return self.process is not None

    @property
    def is_serving(self) -> bool:
        return self.broker is not None

    # Coming and going

    def start(self) -> None:
        self._is_wanted = True
        supervisor = self._world.supervisor
        if self.process is not None or (supervisor is not None and not supervisor.is_serving):
            return
        self._starts += 1
        self.is_closed = False
        world = self._world
        process = self.process = SimulatedProcess(self.host, world.loop)
        self.clock = clock = ProcessClock(
            world.loop,
            process,
            start_ms=DEFAULT_START_MS + self._skew_ms,
            monotonic_start=self._monotonic_start,
            rate=self._rate,
        )
        self.workers = SimulatedWorkers(clock, world.streams.stream(f"workers {self.broker_id}"))
        world.network.host(self.host).clock = clock
        world.network.rejoin(self.host)
        world.log.note(f"{self.host} starts")
        stopping = asyncio.Event()
        self._stop = stopping.set
        if supervisor is not None:
            supervisor.on_gone[self.host] = stopping.set
        process.kept.append(process.spawn(self._serve(process, self._ports(clock), stopping)))

    def _ports(self, clock: ProcessClock) -> Ports:
        world = self._world

        def open_coordination(_: Path) -> AbstractAsyncContextManager[Coordination]:
            return open_session(
                world.service,
                host=self.host,
                clock=clock,
                timeout_seconds=world.session_seconds,
                process_id=self._process_id,
            )

        if self.workers is None:
            raise RuntimeError("the machine is down")
        return Ports(
            clock=clock,
            files=self.files,
            network=world.network.host(self.host),
            workers=self.workers,
            open_coordination=open_coordination,
            random=Random(f"{world.streams.seed}/{self.host}/{self._starts}"),  # noqa: S311 no secret
            boot_id=lambda: self.boot_id,
        )

    async def _serve(
        self, process: SimulatedProcess, ports: Ports, stopping: asyncio.Event
    ) -> None:
        try:
            broker = BrokerServer(self._static, ports)
            process.kept.append(broker)
            await broker.start(stopping.is_set)
        except Exception as error:  # noqa: BLE001 a broker that cannot start is tried again
            if not isinstance(error, _EXPECTED):
                self.failures.append("".join(traceback.format_exception(error)))
            self._world.log.note(f"did not start: {type(error).__name__}: {error}")
            self._give_up_disk(str(error))
            self._world.clock.call_later(0, lambda: self._ended(process))
            return
        self.broker = broker
        self._world.log.note("serves")
        if self.on_serving is not None:
            self.on_serving(broker)
        is_over = asyncio.Event()
        for end in (stopping.wait(), broker.wait_until_failed()):
            process.kept.append(waiting := asyncio.ensure_future(end))
            waiting.add_done_callback(lambda _: is_over.set())
        await is_over.wait()
        if broker.failure is not None:
            self._world.log.note(f"cannot go on: {broker.failure}")
        await broker.stop()
        directories = broker.services.log_store.directories
        self.is_closed = all(one.failure is None for one in directories)
        self._world.log.note("stopped")
        self._world.clock.call_later(0, lambda: self._ended(process))

    def _ended(self, process: SimulatedProcess) -> None:
        """It could not start, or has stopped; it may have been wanted again meanwhile."""
        if self.process is process:
            self._kill()
            self._world.clock.call_later(_PAUSE_BEFORE_RESTART, self.start_if_wanted)

    def start_if_wanted(self) -> None:
        if self._is_wanted:
            self.start()

    @property
    def _process_id(self) -> int:
        return self._starts * 100 + self.broker_id

    def stop(self) -> None:
        """Begin a controlled shutdown."""
        self._is_wanted = False
        if self.broker is not None and self._stop is not None:
            self._stop()
        elif self.process is not None:
            self.crash()

    def crash(self) -> None:
        """Kill the process: what it wrote is there."""
        self._is_wanted = False
        if self.process is not None:
            self._kill()

    def lose_power(self) -> None:
        """Switch the machine off: what was not flushed may be gone, and nobody hears of it."""
        self._is_wanted = False
        self._world.network.isolate(self.host)
        self._kill()
        self.files.lose_power(self._world.streams.stream(f"disk {self.broker_id}"))
        self._boots += 1

    def replace_disk(self) -> None:
        """Kill the process and put an empty disk in."""
        self.crash()
        self.files = self._empty_disk()

        self._is_disk_lost = True

    def _empty_disk(self) -> MemoryFiles:
        random = self._world.streams.stream(f"disk {self.broker_id}")
        return MemoryFiles(self._world.clock, random=random)

    def _give_up_disk(self, message: str) -> None:
        """A broker that misses its disk has said by which id to give it up, if that is so."""
        asked = re.search(r"log\.dirs\.lost=(\S+):", message)
        if asked is not None and self._is_disk_lost and not self.is_unmounted:
            self._static["log.dirs.lost"] = asked[1]

    def unmount(self) -> None:
        """Kill the process and leave an empty folder in the place of its disk."""
        self.crash()
        self._unmounted, self.files = self.files, self._empty_disk()

    def mount(self) -> None:
        """Kill the process and put the disk back, over what was written into the empty folder."""
        if self._unmounted is None:
            return
        self.crash()
        self.files, self._unmounted = self._unmounted, None
        self._is_disk_lost = True  # nobody looks again at what was written meanwhile

    @property
    def is_unmounted(self) -> bool:
        return self._unmounted is not None

    def _kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            if self._world.supervisor is not None:
                self._world.supervisor.end_process(self._process_id)
        self.forget()
        self._world.network.crash(self.host)
        self.files.crash_process()

    def forget(self) -> None:
        """Let go of everything that lived; the loop keeps it until its own end."""
        self.process = self.broker = self.workers = self.clock = self._stop = None

    @property
    def boot_id(self) -> str:
        return f"boot {self._boots} of {self.host}"


# Reads the logs of a replica from the bytes on its disk, past the broker. A rule over files.
#
# A machine may have a second log directory, `SECOND_FOLDER`, to which logs move: where a log is
# found in both, in the middle of that, the longer one is meant.


SECOND_FOLDER: Final = Path("/more")

_LOG_SUFFIX = ".log"
_SWAP_SUFFIX = ".swap"
_DIGITS = 20  # of the base offset
_PARTITION_FOLDER = re.compile(r"(.+)-(\d+)")  # not those renamed to be deleted, or set aside


def list_logs(files: MemoryFiles, folder: Path) -> list[TopicPartition]:
    """The partitions that have a log there, in the order of their names."""
    names = {*files.peek_folder(folder), *files.peek_folder(SECOND_FOLDER)}
    matches = (_PARTITION_FOLDER.fullmatch(name) for name in sorted(names))
    return [TopicPartition(match[1], int(match[2])) for match in matches if match is not None]


def _places(files: MemoryFiles, folder: Path, partition: TopicPartition) -> list[Path]:
    """Where its log is; one of them where there is none."""
    places = _folders_of(folder, partition)
    return [place for place in places if files.peek_folder(place)] or places[:1]


@lru_cache(maxsize=1024)
def _folders_of(folder: Path, partition: TopicPartition) -> list[Path]:
    return [each / str(partition) for each in (folder, SECOND_FOLDER)]


def find_topic_id(files: MemoryFiles, folder: Path, partition: TopicPartition) -> str | None:
    """Whose log it is: of a topic that was made again there may be one of its first life."""
    for place in _places(files, folder, partition):
        data = files.peek(place / PARTITION_METADATA_FILE)
        if data:
            return data.decode().split()[-1]
    return None


def read_log(files: MemoryFiles, folder: Path, partition: TopicPartition) -> list[StoredBatch]:
    """The whole batches from the beginning to the end, or to the first that is damaged."""
    found = (_read_log(files, place) for place in _places(files, folder, partition))
    return max(found, key=lambda batches: batches[-1].end_offset if batches else -1)


def _read_log(files: MemoryFiles, place: Path) -> list[StoredBatch]:
    batches: list[StoredBatch] = []
    names = files.peek_folder(place)
    swap_end = -1
    for name in names:
        is_swap = name.endswith(_LOG_SUFFIX + _SWAP_SUFFIX)
        if is_swap or (name.endswith(_LOG_SUFFIX) and int(name[:_DIGITS]) >= swap_end):
            if name + _SWAP_SUFFIX in names:
                continue  # compaction is about to put another in its place
            found = _walk(files.peek(place / name) or b"")
            if is_swap and found:
                swap_end = found[-1].end_offset
            if batches and found and found[0].base_offset < batches[-1].end_offset:
                break  # what a power loss left of a segment before its recovery
            batches += found
    return batches


def find_log_end(files: MemoryFiles, folder: Path, partition: TopicPartition) -> int:
    """Behind the last whole batch; of a log whose records are all deleted, where it goes on."""
    batches = read_log(files, folder, partition)
    if batches:
        return batches[-1].end_offset
    names = (name for at in _places(files, folder, partition) for name in files.peek_folder(at))
    starts = [int(name.removesuffix(_LOG_SUFFIX)) for name in names if name.endswith(_LOG_SUFFIX)]
    return max(starts, default=0)


@lru_cache(maxsize=512)
def _walk(data: bytes) -> tuple[StoredBatch, ...]:
    """Replicas have the same bytes, and segments that are full stay as they are."""
    return tuple(_batches_of(data))


def _batches_of(data: bytes) -> Iterator[StoredBatch]:
    position = 0
    while position + HEADER_BYTES <= len(data):
        header = read_header(data, position)
        batch = data[position : position + header.size_bytes]
        if header.size_bytes < HEADER_BYTES or len(batch) < header.size_bytes:
            return
        if not crc_matches(batch, header):
            return
        yield StoredBatch(header.base_offset, header.next_offset, header.leader_epoch, batch)
        position += header.size_bytes


def values_of(batches: list[StoredBatch]) -> dict[int, bytes]:
    """The values by offset; control records and what is no record are left out."""
    values: dict[int, bytes] = {}
    for batch in batches:
        header = read_header(batch.content)
        if header.is_control:
            continue
        try:
            for record in records_of(batch.content, header):
                values[record.offset] = bytes(record.value or b"")
        except MoldauError:
            continue
    return values


def committed_offsets_of(batches: Iterable[StoredBatch]) -> set[int]:
    """The offsets of all records that `read_committed` has to show: those of no transaction, and
    those of transactions whose marker in the log says commit."""
    committed: set[int] = set()
    open_offsets: defaultdict[int, list[int]] = defaultdict(list)  # by producer
    for batch in batches:
        header = read_header(batch.content)
        offsets = range(header.base_offset, header.next_offset)
        if header.is_control:
            decided = open_offsets.pop(header.producer_id, [])
            (marker,) = records_of(batch.content, header)
            if find_control_type(marker.key) is ControlType.COMMIT:
                committed.update(decided)
        elif header.is_transactional:
            open_offsets[header.producer_id] += offsets
        else:
            committed.update(offsets)
    return committed
