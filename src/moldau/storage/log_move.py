"""One log on its way to another log directory (Kafka's `ReplicaAlterLogDirsThread`).

`rules.log_move` has the steps and what each leaves behind in a crash. Batches are copied in slices,
in workers, and checked as a follower checks them. Only the last few are copied in one turn of the
event loop, so that nothing is appended between them and the change of folders.

The copy is Kafka's future log. While it is filled it belongs to one task, which appends to it in
workers: so it has a directory object of its own, which asks nobody for flushes. A note is left in
it when the broker stops in good order, so that the next start continues the copy. A shell, owned
by one task.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from moldau.config.broker_options import BrokerOptions
from moldau.errors import StorageError
from moldau.model import Offset, TopicPartition
from moldau.records.batch_header import HEADER_BYTES, read_header
from moldau.storage.checkpoint_files import (
    NOTE_FILE,
    LogNote,
    remove_note,
    write_compaction_offsets,
    write_note,
    write_partition_metadata,
)
from moldau.storage.checkpoints import Checkpoints
from moldau.storage.files import NO_ROOM, FailedSyncError, Files, FileSlice
from moldau.storage.local_log import LogRead, segment_index
from moldau.storage.log import Log
from moldau.storage.log_directory import Flushable, LogDirectory, Throttler
from moldau.storage.log_loader import LoadTerms, create_log, load_log
from moldau.storage.rules.file_names import (
    PARTITION_METADATA_FILE,
    deleted_folder_name,
    partition_folder_name,
)
from moldau.storage.rules.log_move import CopyNote, Reach, find_new_start, may_replace, may_resume
from moldau.tasks import finish_first

_log = logging.getLogger("moldau.storage")

T = TypeVar("T")

_TAIL_BYTES: Final = 256 << 10
"""What is copied on the event loop at the end: a fraction of a millisecond."""
_FLUSHED_BYTES: Final = 32 << 20
"""After so many the copy is flushed, so that the disk is not far behind at the end."""
_RETRY_SECONDS: Final = 0.1
_TRIES: Final = 10
"""To find the end within the tail, before flushes of the log go on for a while."""


class LogMove:
    """Invariant: the copy is a prefix of the log, or `_cut_to` says what is too much of it."""

    def __init__(
        self,
        log: Log,
        target: LogDirectory,
        folder: Path,
        *,
        checkpoints: Checkpoints,
        pace: Throttler,
        unique_id: Callable[[], str],
        options: Callable[[], BrokerOptions],
    ) -> None:
        self.log = log
        self.target = target
        self.folder = folder
        self.is_done = False
        self._future: Log | None = None
        self._checkpoints = checkpoints
        self._pace = pace
        self._unique_id = unique_id
        self._options = options
        self._cut_to: int | None = None  # the log was truncated, and its copy was not yet
        self._unflushed_bytes = 0
        self._leaving: Path | None = None  # this folder says that a copy may replace it
        log.is_moving = True
        log.on_truncated = self._note_truncation

    @property
    def topic_partition(self) -> TopicPartition:
        return self.log.topic_partition

    @property
    def has_copy(self) -> bool:
        """Whether `create` or `resume` is over: it can run."""
        return self._future is not None

    @property
    def size_bytes(self) -> int:
        return 0 if self._future is None else self._future.size_bytes

    @property
    def offset_lag(self) -> int:
        """How many offsets the copy is behind."""
        copied = 0 if self._future is None else self._future.log_end_offset
        return max(0, self.log.log_end_offset - copied)

    # Beginning and ending

    async def create(self) -> None:
        """Make an empty copy; what the checkpoints of its directory know is of another log."""
        target, folder, log = self.target, self.folder, self.log
        expiration_ms = self._options().producer_id_expiration_ms
        await self._checkpoints.forget(self.topic_partition, target)
        if await self._at_source(lambda: target.files.exists(log.folder / NOTE_FILE)):
            raise StorageError(
                f"{log.topic_partition} was moved before, and the directory that it came from "
                "failed; start the broker again once it is well"
            )
        self._future = await self._in_worker(
            lambda: create_future(target, folder, log, expiration_ms)
        )

    async def resume(self) -> bool:
        """Go on with a copy that was found; False when it has to begin anew."""
        target, folder, log = self.target, self.folder, self.log
        expiration_ms = self._options().producer_id_expiration_ms
        self._future = await self._in_worker(
            lambda: load_future(target, folder, log, expiration_ms)
        )
        return self._future is not None

    async def pause(self) -> None:
        """The broker stops: leave the copy so that the next start goes on with it."""
        self._release_log()
        if self._future is None or self._cut_to is not None or self.target.failure is not None:
            return
        await self._future.shut_down()
        note = CopyNote(self._future.log_end_offset, self.log.cleaned_offset)
        await self._in_worker(lambda: leave_note(self.target.files, self.folder, note))

    def abandon(self) -> None:
        """Throw the copy away."""
        self._release_log()
        if self._future is not None:
            self._future.close()
        remove_folder(self.target, self.folder, self.topic_partition, self._unique_id())

    def _release_log(self) -> None:
        self.log.is_moving = False
        self.log.on_truncated = None
        leaving, self._leaving = self._leaving, None
        if leaving is not None:
            with contextlib.suppress(OSError):  # who finds it at a start finds no other log
                remove_departure(self.log.directory.files, leaving)

    def _note_truncation(self) -> None:
        end_offset = self.log.log_end_offset
        self._cut_to = end_offset if self._cut_to is None else min(self._cut_to, end_offset)

    # Moving

    async def run(self) -> None:
        """Return when the log is in its new directory. What is cancelled can be run again."""
        source, old_folder = self.log.directory, self.log.folder
        try:
            while not await self._replace():
                await self.target.clock.sleep(_RETRY_SECONDS)
        finally:
            if self.is_done:
                await finish_first(self._retire(source, old_folder))

    async def _replace(self) -> bool:
        """Catch up, and put the copy in the log's place; False when the log was faster."""
        future, log, target = self._require_future(), self.log, self.target
        await self._catch_up()
        await self._flush(future)
        async with log.flushing.hold_flushes():
            await self._catch_up(is_paced=False)
            await self._flush(future)
            await self._note_departure()
            # After a power loss the old folder may be the log again, and needs its checkpoints.
            async with self._checkpoints.hold_writes(log.directory):
                for _ in range(_TRIES):
                    noted_start = await self._write_note()
                    await self._catch_up(is_paced=False)
                    if self._is_at_tail(noted_start):
                        self._take_place(future)
                        await self._in_worker(lambda: target.files.sync_folder(target.folder))
                        return True
        return False

    async def _catch_up(self, *, is_paced: bool = True) -> None:
        """Copy until what was the log's end is reached."""
        has_more = True
        while has_more:
            copied_bytes, has_more = await self._copy_slice()
            self._unflushed_bytes += copied_bytes
            if is_paced:
                await self._pace.wait(copied_bytes)
            if self._unflushed_bytes >= _FLUSHED_BYTES:
                await self._flush(self._require_future())

    async def _copy_slice(self) -> tuple[int, bool]:
        """Copy what comes next; returns its size, and whether there is more."""
        future, log = self._require_future(), self.log
        await self._apply_truncation(future)
        start = max(future.log_end_offset, log.log_start_offset)
        found = self._read(start, self._options().replica_fetch_max_bytes)
        disturbances = log.disturbances
        await self._begin_anew_if_left_behind(future, found.slice)
        records = found.slice
        if records is None:
            self._skip_gap(future)
            return 0, False

        def copy() -> int:
            with log.directory.judging():
                data = memoryview(records.read())
            if log.disturbances != disturbances or self._cut_to is not None:
                return 0  # half of it may be of other batches
            future.append_replicated(data)
            return len(data)

        copied_bytes = await self._in_worker(copy)
        return copied_bytes, not copied_bytes or found.end_offset < log.log_end_offset

    def _skip_gap(self, future: Log) -> None:
        """A log from Kafka may end behind its last batch: so does its copy, then."""
        log, copied = self.log, future.log_end_offset
        is_behind = self._cut_to is None and log.log_start_offset <= copied < log.log_end_offset
        if is_behind and self._read(copied, 1).slice is None:
            future.skip_to(log.log_end_offset)

    def _read(self, offset: int, max_bytes: int) -> LogRead:
        end_offset = self.log.log_end_offset
        return self.log.read(offset, max_bytes, end_offset=end_offset, min_one=True)

    async def _apply_truncation(self, future: Log) -> None:
        """Take away what the log has lost to a truncation; who did that before was interrupted."""
        while self._cut_to is not None or future.flushing.has_pending_truncation:
            if self._cut_to is not None:
                offset, self._cut_to = self._cut_to, None
                future.truncate_to(offset)
            await self._flush_truncation(future)

    async def _begin_anew_if_left_behind(self, future: Log, first: FileSlice | None) -> None:
        reach, end_offset = _reach_of(self.log), future.log_end_offset
        base_offset: int | None = None
        if first is not None and end_offset < reach.start_offset:
            header = FileSlice(first.file, first.position, HEADER_BYTES)
            base_offset = read_header(await self._at_source(header.read)).base_offset
        start = find_new_start(reach, end_offset, base_offset)
        if start is not None:
            future.truncate_fully(start)
            await self._flush_truncation(future)

    async def _flush_truncation(self, future: Log) -> None:
        await self._remove_files(future.directory)
        await finish_first(future.flushing.flush_truncation())
        future.flushing.has_pending_truncation = False

    async def _remove_files(self, directory: LogDirectory) -> None:
        """What the copy has no use for any more; nobody reads it."""
        removals, directory.to_remove = directory.to_remove, []

        def remove() -> None:
            for removal in removals:
                for path in removal.paths:
                    directory.files.remove(path)

        if removals:
            await self._in_worker(remove)

    async def _note_departure(self) -> None:
        """Say in the old folder that it may not be the log any more (MOV-4)."""
        if self._leaving is None:
            files, folder = self.log.directory.files, self.log.folder
            await self._at_source(lambda: note_departure(files, folder, self.target.folder))
            self._leaving = folder

    async def _write_note(self) -> Offset:
        """Say what the checkpoints of the new directory do not know yet; returns the log's start.

        It counts from the moment on in which the folder has the plain name.
        """
        log, target, folder = self.log, self.target, self.folder
        note = LogNote(
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            cleaned_offset=log.cleaned_offset,
            high_watermark=self._checkpoints.find_high_watermark(self.topic_partition),
        )
        compacted = log.compaction_offsets

        def write() -> None:
            write_note(target.files, folder, note)
            if any(compacted):
                write_compaction_offsets(target.files, folder, compacted)

        await self._in_worker(write)
        return Offset(note.log_start_offset)

    async def _flush(self, future: Log) -> None:
        self._unflushed_bytes = 0
        await finish_first(future.flushing.flush_all())

    # Changing places: no `await` from the tail on

    def _is_at_tail(self, noted_start: Offset) -> bool:
        """Copy the last batches; False when they are too many, or the note is not true any more."""
        future, log = self._require_future(), self.log
        self.target.require_online()
        log.require_usable()
        end_offset = future.log_end_offset
        if self._cut_to is not None or end_offset < log.log_start_offset:
            return False
        tail_bytes = min(_TAIL_BYTES, self._options().replica_fetch_max_bytes)
        found = self._read(end_offset, tail_bytes)
        if found.slice is not None:
            if found.end_offset < log.log_end_offset:
                return False
            with log.directory.judging():
                data = found.slice.read()
            future.append_replicated(memoryview(data))
        is_truncating = log.flushing.is_truncating
        return noted_start == log.log_start_offset and may_replace(
            _reach_of(log), _reach_of(future), is_truncating=is_truncating
        )

    def _take_place(self, future: Log) -> None:
        log, source, target = self.log, self.log.directory, self.target
        folder = target.folder / partition_folder_name(self.topic_partition)
        with target.failing():
            target.files.rename(self.folder, folder)
        log.take_over(future, folder, target)
        source.log_count -= 1
        target.log_count += 1
        self.is_done = True
        self._leaving = None  # it goes with its folder
        self._release_log()

    async def _retire(self, source: LogDirectory, old_folder: Path) -> None:
        """As `_try_to_retire`, also where too many files are open for a moment."""
        for _ in range(_TRIES):
            try:
                return await self._try_to_retire(source, old_folder)
            except StorageError:
                source.require_online()
                self.target.require_online()
            await self.target.clock.sleep(_RETRY_SECONDS)
        raise StorageError(f"{old_folder} is left over; the next start removes it")

    async def _try_to_retire(self, source: LogDirectory, old_folder: Path) -> None:
        """The old folder goes when the new one would be found after a power loss."""
        log, target = self.log, self.target
        await self._in_worker(lambda: target.files.sync_folder(target.folder))
        await self._checkpoints.write(target)
        await self._checkpoints.write_high_watermarks()
        _log.info("%s has moved from %s to %s", log.topic_partition, old_folder, log.folder)
        if source.failure is not None:
            return  # the note stays: the next start knows which of the two is the log
        unique_id = self._unique_id()
        remove_folder(source, old_folder, self.topic_partition, unique_id)
        await source.run(lambda: source.files.sync_folder(source.folder))
        await self._in_worker(lambda: remove_note(target.files, log.folder))
        await self._checkpoints.write(source)

    # Workers

    async def _at_source(self, work: Callable[[], T]) -> T:
        """What is done in the old folder: its own disk answers for it."""
        return await finish_first(self.log.directory.run(work))

    async def _in_worker(self, work: Callable[[], T]) -> T:
        """What is begun comes to its end: nobody else may touch the copy meanwhile."""
        try:
            return await finish_first(self.target.workers.run(work))
        except OSError as error:
            self.log.directory.require_online()
            if error.errno in NO_ROOM:
                raise StorageError(f"there is no room for {self.folder}: {error}") from error
            raise self.target.judge(error) from error

    def _require_future(self) -> Log:
        self.target.require_online()
        if self._future is None:
            raise StorageError(f"there is no copy of {self.topic_partition} in {self.folder}")
        return self._future


def remove_folder(
    directory: LogDirectory, folder: Path, topic_partition: TopicPartition, unique_id: str
) -> None:
    """Rename a folder that is not needed any more; its files go later."""
    if directory.failure is not None:
        return
    renamed = directory.folder / deleted_folder_name(topic_partition, unique_id)
    try:
        directory.files.rename(folder, renamed)
    except FileNotFoundError:
        return
    except OSError as error:
        raise directory.fail(error) from error
    directory.remove_later((renamed,), 0, are_folders=True)


def _reach_of(log: Log) -> Reach:
    return Reach(log.log_start_offset, log.log_end_offset, Offset(log.flushing.recovery_point))


COPY_FILE = "copied-log.json"
DEPARTURE_FILE = "moving-to.json"


class _CopyDirectory(LogDirectory):
    """A log directory as a copy in it sees it: whoever fills the copy flushes it."""

    def __init__(self, directory: LogDirectory) -> None:
        super().__init__(
            directory.folder,
            directory.open_files,
            directory.workers,
            directory.clock,
            random=directory.random,
            on_failure=lambda folder, error: _fail_unless_full(directory, error),
            figures=directory.figures,
            history=directory.history,
        )

    def flush_later(self, log: Flushable, delay_ms: int) -> None:
        pass  # a copy need not be durable before it is whole

    def flush_soon(self, log: Flushable) -> None:
        pass


def _fail_unless_full(directory: LogDirectory, error: OSError) -> None:
    """A copy that has no room is given up, and the logs in its directory go on."""
    if error.errno not in NO_ROOM or isinstance(error, FailedSyncError):
        directory.fail(error)


def create_future(
    directory: LogDirectory, folder: Path, log: Log, producer_expiration_ms: int
) -> Log:
    """An empty copy of a log. Raises `OSError`."""
    directory.files.make_folder(folder)
    if log.topic_id is not None:
        path = folder / PARTITION_METADATA_FILE
        write_partition_metadata(directory.files, path, log.topic_id)
    return create_log(
        _CopyDirectory(directory),
        folder,
        log.topic_partition,
        log.topic_id,
        log.options,
        producer_expiration_ms,
    )


def load_future(
    directory: LogDirectory, folder: Path, log: Log, producer_expiration_ms: int
) -> Log | None:
    """A copy that was left in good order and is still one; None when it has to begin anew."""
    files = directory.files
    note = _take_note(files, folder)
    if note is None:
        return None
    terms = LoadTerms(
        clean_shutdown=True,
        recovery_point=note.end_offset,
        log_start_offset=0,
        producer_expiration_ms=producer_expiration_ms,
    )
    key: TopicPartition = log.topic_partition
    future = load_log(_CopyDirectory(directory), folder, key, log.options, terms)
    end_offset = future.log_end_offset
    if (
        future.topic_id == log.topic_id
        and may_resume(note, end_offset, log.log_end_offset, log.cleaned_offset)
        and end_offset > max(log.log_start_offset, future.log_start_offset)
        and _last_header(future, end_offset) == _last_header_of_original(log, end_offset)
    ):
        return future
    future.close()
    return None


def _last_header_of_original(log: Log, end_offset: int) -> bytes | None:
    with log.directory.judging():  # its own disk, and not the copy's
        return _last_header(log, end_offset)


def _last_header(log: Log, end_offset: int) -> bytes | None:
    """Of the batch before an offset; it has a checksum of what is in the batch."""
    segment = log.segments[segment_index(log.segments, end_offset - 1)]
    place = segment.find_batch(end_offset - 1)
    return None if place is None else segment.opened().read_at(place.position, HEADER_BYTES)


def leave_note(files: Files, folder: Path, note: CopyNote) -> None:
    content = json.dumps({"version": 1, **note._asdict()}, separators=(",", ":"))
    files.replace(folder / COPY_FILE, content.encode())


def note_departure(files: Files, folder: Path, target: Path) -> None:
    """Say in the folder of a log that a copy in another directory is about to take its place."""
    content = json.dumps({"version": 1, "directory": str(target.absolute())})
    files.replace(folder / DEPARTURE_FILE, content.encode())


def find_departure(files: Files, folder: Path) -> Path | None:
    """The directory that the log in a folder was about to move to."""
    path = folder / DEPARTURE_FILE
    if not files.exists(path):
        return None
    try:
        return Path(str(json.loads(files.read(path))["directory"]))
    except (ValueError, TypeError, KeyError):
        return Path()  # of nobody knows which


def remove_departure(files: Files, folder: Path) -> None:
    files.remove(folder / DEPARTURE_FILE)


def _take_note(files: Files, folder: Path) -> CopyNote | None:
    """It must not vouch for what is copied from now on."""
    path = folder / COPY_FILE
    if not files.exists(path):
        return None
    try:
        fields = json.loads(files.read(path))
        note = CopyNote(int(fields["end_offset"]), int(fields["cleaned_offset"]))
    except (ValueError, TypeError, KeyError):
        note = None
    files.remove(path)
    files.sync_folder(folder)
    return note
