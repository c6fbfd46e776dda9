"""What the tests of logs share: a place to keep them, batches to append, a way to read them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from random import Random

from moldau.config.broker_options import BrokerOptions
from moldau.config.topic_options import TopicOptions
from moldau.model import TopicPartition
from moldau.records.batch_header import BatchHeader, read_header, walk_headers
from moldau.records.record_batch import build_batch
from moldau.simulation.manual_clock import ManualClock
from moldau.simulation.memory_files import MemoryFiles
from moldau.storage.files import Files, OpenFiles
from moldau.storage.log import AppendResult, Log
from moldau.storage.log_directory import LogDirectory
from moldau.storage.log_loader import LoadTerms, create_log, load_log
from moldau.workers import InlineWorkers

PARTITION = TopicPartition("clicks", 0)
DEFAULTS = TopicOptions.resolve({}, BrokerOptions.resolve({}))
EXPIRATION_MS = 24 * 3_600_000
START_MS = 1_700_000_000_000


def options(**values: object) -> TopicOptions:
    return DEFAULTS.replace(**values)


def batch_of(count: int = 1, value: bytes = b"value", timestamp_ms: int = START_MS, **fields):
    """A batch as a producer sends it, with its header; timestamps grow by one."""
    rows = [(timestamp_ms + i, b"key-%d" % i, value, ()) for i in range(count)]
    batch = build_batch(rows, **fields)
    return batch, read_header(batch)


class LogBench:
    """One log directory with at most one log in it, which can be stopped in several ways."""

    def __init__(self, files: Files, folder: Path) -> None:
        self.files = files
        self.root = folder
        self.folder = folder / str(PARTITION)
        self.clock = ManualClock()
        self.failures: list[tuple[Path, OSError]] = []
        self._renew_directory()

    def _renew_directory(self) -> None:
        self.open_files = OpenFiles(self.files, limit=100)
        self.directory = LogDirectory(
            self.root,
            self.open_files,
            InlineWorkers(),
            self.clock,
            random=Random(0),
            on_failure=lambda folder, error: self.failures.append((folder, error)),
        )

    def create(self, **values: object) -> Log:
        self.options = options(**values)
        self.files.make_folder(self.folder)
        return create_log(self.directory, self.folder, PARTITION, None, self.options, EXPIRATION_MS)

    def load(
        self,
        *,
        clean: bool = False,
        recovery_point: int = 0,
        log_start: int = 0,
        cleaned_offset: int = 0,
    ) -> Log:
        """Open the log as a new process would."""
        self._renew_directory()
        terms = LoadTerms(
            clean_shutdown=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start,
            producer_expiration_ms=EXPIRATION_MS,
            cleaned_offset=cleaned_offset,
        )
        return load_log(self.directory, self.folder, PARTITION, self.options, terms)

    def append(self, log: Log, count: int = 1, *, leader_epoch: int = 0, **fields) -> AppendResult:
        batch, header = batch_of(count, **fields)
        return log.append(batch, header, leader_epoch=leader_epoch, now_ms=self.clock.now_ms())


def a_memory_bench() -> LogBench:
    """A bench on files that fail and crash on request."""
    files = MemoryFiles()
    root = Path("data")
    files.make_folder(root)
    files.sync_everything()
    return LogBench(files, root)


def read_all(log: Log, max_bytes: int = 1 << 20) -> list[BatchHeader]:
    """The headers of all batches, as a reader gets them who follows the log in order."""
    offset, found = log.log_start_offset, []
    while offset < log.log_end_offset:
        read = log.read(offset, max_bytes, end_offset=log.log_end_offset, min_one=True)
        assert read.slice is not None, f"nothing at {offset} of {log}"
        assert read.end_offset > offset
        found += headers_in(read.slice.read())
        offset = read.end_offset
    return found


def headers_in(data: bytes) -> list[BatchHeader]:
    headers = [header for _, header in walk_headers(data)]
    assert sum(header.size_bytes for header in headers) == len(data), "not whole batches"
    return headers


def offsets_of(headers: Iterable[BatchHeader]) -> list[int]:
    return [
        offset for header in headers for offset in range(header.base_offset, header.next_offset)
    ]
