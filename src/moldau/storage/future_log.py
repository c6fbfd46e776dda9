"""The copy of a log that moves to another log directory: its folder, and the log in it.

While it is filled it belongs to one task, which appends to it in workers: so it has a directory of
its own, which asks nobody for flushes. A note is left in it when the broker stops in good order,
so that the next start goes on. A shell. The functions block: run them in a worker.
"""

from __future__ import annotations

import json
from pathlib import Path

from moldau.model import TopicPartition
from moldau.records.batch_header import HEADER_BYTES
from moldau.storage.files import NO_ROOM, FailedSyncError, Files
from moldau.storage.log import Log
from moldau.storage.log_directory import Flushable, LogDirectory
from moldau.storage.partition_metadata import write_partition_metadata
from moldau.storage.recovery import LoadTerms, create_log, load_log
from moldau.storage.rules.file_names import PARTITION_METADATA_FILE
from moldau.storage.rules.log_move import CopyNote, may_resume
from moldau.storage.segment_search import segment_index

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
            on_failure=lambda folder, error: _fail(directory, error),
            figures=directory.figures,
            history=directory.history,
        )

    def flush_later(self, log: Flushable, delay_ms: int) -> None:
        pass  # a copy need not be durable before it is whole

    def flush_soon(self, log: Flushable) -> None:
        pass


def _fail(directory: LogDirectory, error: OSError) -> None:
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
    try:
        return _last_header(log, end_offset)
    except OSError as error:  # of its own disk, and not of the copy's
        raise log.directory.judge(error) from error


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
