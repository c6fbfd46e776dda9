"""One of the folders in `log.dirs`, as its logs see it: is it well, and who does the slow work.

A disk fails as a whole: the first error of the operating system while a log is written, synced or
read takes the folder offline, for all its logs and until the broker is started again. Nobody can
know what a disk holds after a failed write or sync, and answering from it as if nothing had
happened is how acknowledged records get lost. After a failed sync not even the next process can
know, as long as the machine runs: so the folder keeps a note of it.

What a log cannot do on the event loop it leaves here: logs to flush, files to remove. The store
takes up this work. A shell.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from moldau.clock import Clock
from moldau.config.topic_options import TopicOptions
from moldau.errors import StorageError
from moldau.metrics.figures import StorageFigures
from moldau.metrics.history import History
from moldau.storage.files import SCARCITY, FailedSyncError, Files, OpenFiles
from moldau.storage.rules.file_names import LOSS_FILE
from moldau.storage.rules.retention import RetentionPolicy, kafka_policies
from moldau.workers import Workers

_log = logging.getLogger("moldau.storage")

T = TypeVar("T")

RetentionPolicies: TypeAlias = Callable[[TopicOptions], Iterable[RetentionPolicy]]
"""Why segments of a topic with these options may be deleted."""


class DirectoryFailures(Protocol):
    """Hears of folders that went offline; the broker implements it."""

    def directory_failed(self, folder: Path, error: OSError) -> None:
        """Called once for a folder, on the event loop."""
        ...


class Flushable(Protocol):
    """What a log leaves here to be flushed."""

    async def flush(self) -> None: ...


class Removal(NamedTuple):
    """Files, or folders with all in them, that go once the delay is over."""

    paths: tuple[Path, ...]
    delay_ms: int
    are_folders: bool


def _ignore_failure(folder: Path, error: OSError) -> None:
    """For a folder that nobody watches."""


def _wake_nobody() -> None:
    """For a folder whose work somebody fetches in his own time."""


class LogDirectory:
    """A folder of logs. Belongs to the event loop, except `fail`, which any thread may call."""

    def __init__(
        self,
        folder: Path,
        open_files: OpenFiles,
        workers: Workers,
        clock: Clock,
        *,
        random: Random,
        on_failure: Callable[[Path, OSError], None] = _ignore_failure,
        figures: StorageFigures | None = None,
        history: History | None = None,
    ) -> None:
        self.folder = folder
        self.figures = figures or StorageFigures()
        self.history = history or History(clock.now_ms)
        self.files: Files = open_files.files
        self.open_files = open_files
        self.workers = workers
        self.clock = clock
        self.random = random  # for the jitter of segments
        self.retention_policies: RetentionPolicies = kafka_policies
        self.log_count = 0
        self.failure: OSError | None = None  # set once, never taken back
        self.dirty: dict[Flushable, None] = {}  # appended to since they were last flushed, in order
        self.to_flush: dict[Flushable, None] = {}
        self.to_remove: list[Removal] = []
        self.offsets_changed = False  # a checkpoint would say something else than the last one
        self.wake: Callable[[], None] = _wake_nobody  # called when there is work
        self._on_failure = on_failure
        self._failing = threading.Lock()

    def note_loss(self, reason: str) -> None:
        """Let the next start know that logs in here may have holes, until the cluster knows it.

        Any thread. Nothing is synced: when the machine is started again, every log that was not
        closed is taken for one with a hole anyway.
        """
        path = self.folder / LOSS_FILE
        try:
            with contextlib.closing(self.files.open(path, create=True)) as file:
                file.truncate(0)
                file.write_at(0, f"{reason}\n".encode())
        except OSError as error:
            _log.error("cannot write to %s that %s: %s", path, reason, error)

    def fail(self, error: OSError) -> StorageError:
        """Take the folder offline; the caller raises what is returned."""
        if isinstance(error, FailedSyncError):
            self.note_loss(f"a sync failed: {error}")
        with self._failing:
            first, self.failure = self.failure is None, self.failure or error
        if first:
            self._on_failure(self.folder, error)
        return self.refusal()

    def judge(self, error: OSError) -> StorageError:
        """As `fail`, unless the process has merely too many files open and nothing was changed."""
        if error.errno in SCARCITY:
            return StorageError(f"too many files are open: {error}; raise the limit (ulimit -n)")
        return self.fail(error)

    @contextlib.contextmanager
    def judging(self) -> Iterator[None]:
        """Judge an error of the operating system inside; the caller gets a `StorageError`."""
        try:
            yield
        except OSError as error:
            raise self.judge(error) from error

    @contextlib.contextmanager
    def failing(self) -> Iterator[None]:
        """Take the folder offline for an error of the operating system inside."""
        try:
            yield
        except OSError as error:
            raise self.fail(error) from error

    async def run(self, work: Callable[[], T]) -> T:
        """Do work on the folder in a worker; an error of the operating system is judged."""
        with self.judging():
            return await self.workers.run(work)

    def refusal(self) -> StorageError:
        return StorageError(f"the log directory {self.folder} is offline: {self.failure}")

    def require_online(self) -> None:
        if self.failure is not None:
            raise self.refusal()

    def flush_soon(self, log: Flushable) -> None:
        self.to_flush[log] = None
        self.wake()

    def flush_later(self, log: Flushable, delay_ms: int) -> None:
        """Have a log flushed after `flush.ms`; one that was flushed meanwhile is left alone."""
        self.clock.call_later(delay_ms / 1000, lambda: self._flush_if_dirty(log))

    def _flush_if_dirty(self, log: Flushable) -> None:
        if log in self.dirty:
            self.flush_soon(log)

    def remove_later(
        self, paths: tuple[Path, ...], delay_ms: int, *, are_folders: bool = False
    ) -> None:
        self.to_remove.append(Removal(paths, delay_ms, are_folders))
        self.wake()

    def checkpoint_soon(self) -> None:
        self.offsets_changed = True
        self.wake()


# Keeps work on disks within so many bytes per second.
#
# A tiny shell: it asks the clock, and sleeps on it.


_SHORTEST_SECONDS = 0.001
"""Shorter waits are summed up first."""

_LONGEST_SECONDS = 1.0
"""Slept at once: then the rate may be another one."""


class Throttler:
    """An allowance that may be shared; its rate may change at any time, also for who waits."""

    def __init__(self, clock: Clock, rate: Callable[[], float]) -> None:
        self._clock = clock
        self._rate = rate  # bytes per second
        self._owed_bytes = 0.0  # moved, and not paid for with time
        self._paid_until = 0.0  # by the clock

    async def wait(self, moved_bytes: int) -> None:
        """Wait as long as these bytes may take, and those of others that share the allowance."""
        self._update_debt()
        self._owed_bytes += moved_bytes
        while (seconds := self._owed_bytes / max(self._rate(), 1.0)) >= _SHORTEST_SECONDS:
            await self._clock.sleep(min(seconds, _LONGEST_SECONDS))
            self._update_debt()

    def _update_debt(self) -> None:
        now = self._clock.monotonic()
        paid_bytes = (now - self._paid_until) * max(self._rate(), 1.0)
        self._owed_bytes = max(0.0, self._owed_bytes - paid_bytes)
        self._paid_until = now
