"""What is in a log directory, how much room there is and what is wrong with it, for people.

DescribeLogDirs and metrics show it. What asks the file system says so: run it in a worker.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from moldau.model import TopicPartition
from moldau.storage.files import NO_ROOM
from moldau.storage.log import Log
from moldau.storage.log_directory import LogDirectory
from moldau.storage.log_move import LogMove

_MAKE_ROOM = (
    "Make room on the disk and start the broker again: what it acknowledged is there. Topics keep "
    "less with retention.bytes or retention.ms"
)
_REPAIR = "Repair or replace the disk and start the broker again"


class DirectoryCapacity(NamedTuple):
    """The disk of one log directory; -1 where it does not tell."""

    folder: Path
    online: bool
    total_bytes: int
    usable_bytes: int


class FutureReport(NamedTuple):
    """A copy that is to take the place of its log in another directory."""

    size_bytes: int
    offset_lag: int


class DirectoryReport(NamedTuple):
    """One log directory as DescribeLogDirs shows it."""

    folder: Path
    online: bool
    total_bytes: int
    usable_bytes: int
    sizes: Mapping[TopicPartition, int]
    """Bytes of each log in it."""
    futures: Mapping[TopicPartition, FutureReport]
    """The copies in it of logs that move here."""


def capacity_of(directory: LogDirectory) -> DirectoryCapacity:
    """Asks the file system."""
    total_bytes = usable_bytes = -1
    is_online = directory.failure is None
    if is_online:
        with contextlib.suppress(OSError):
            total_bytes, usable_bytes = directory.files.capacity_bytes(directory.folder)
    return DirectoryCapacity(directory.folder, is_online, total_bytes, usable_bytes)


def describe_directory(
    directory: LogDirectory, logs: Iterable[Log], moves: Iterable[LogMove]
) -> DirectoryReport:
    """`logs` are in it, `moves` lead to it. Asks the file system."""
    capacity = capacity_of(directory)
    return DirectoryReport(
        folder=directory.folder,
        online=capacity.online,
        total_bytes=capacity.total_bytes,
        usable_bytes=capacity.usable_bytes,
        sizes={log.topic_partition: log.size_bytes for log in logs},
        futures={
            move.topic_partition: FutureReport(move.size_bytes, move.offset_lag) for move in moves
        },
    )


def find_failure_of_all(directories: Sequence[LogDirectory]) -> str | None:
    """Why no log directory is left, and what to do; None while one is."""
    failures = [one.failure for one in directories if one.failure is not None]
    if len(failures) < len(directories):
        return None
    reasons = "; ".join(f"{one.folder}: {one.failure}" for one in directories)
    is_full = any(failure.errno in NO_ROOM for failure in failures)
    return f"no log directory is left ({reasons}). {_MAKE_ROOM if is_full else _REPAIR}"
