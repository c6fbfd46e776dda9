"""What a clean stop leaves in a log directory, for the next start.

`.kafka_cleanshutdown`, Kafka's marker, promises that there is nothing to recover. It says nothing
of what the logs were like, so a file that was cut short or removed while the broker was stopped
would go unnoticed. `segments-at-stop` says it, log by log: where it began, how many segments were
sealed and their bytes, where the active one began and its bytes. A start compares that with the
names and sizes that it looks at anyway, and reads nothing for it.

    {"version":1,"brokerEpoch":42,"logs":[["clicks",0,0,3,3145728,8211,4096]]}

It belongs to the marker with the same broker epoch: if another version or a Kafka was in the folder
meanwhile, its marker has another one, and nothing is compared.

A codec and a tiny shell. It blocks: run it in workers.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from moldau.model import TopicPartition
from moldau.storage.files import Files
from moldau.storage.rules.file_names import CLEAN_SHUTDOWN_FILE, SEGMENTS_AT_STOP_FILE

_log = logging.getLogger("moldau.storage.recovery")

_VERSION = 1


class ClosedSegments(NamedTuple):
    """The segments of one log when it was closed."""

    first_offset: int  # base offset of the first, sealed or not
    sealed_count: int
    sealed_bytes: int
    active_offset: int  # base offset of the last
    active_bytes: int

    def __str__(self) -> str:
        return (
            f"{self.sealed_count} sealed segments with {self.sealed_bytes} bytes from offset "
            f"{self.first_offset}, and {self.active_bytes} bytes from offset {self.active_offset}"
        )

    def has_lost_sealed(self, found: Sequence[tuple[int, int]]) -> bool:
        """Whether sealed segments are not as they were, of those found: base offsets and sizes."""
        sealed = [each for each in found if each[0] < self.active_offset]
        if not self.sealed_count:
            return bool(sealed)
        return (
            len(sealed) != self.sealed_count
            or sealed[0][0] != self.first_offset
            or sum(size for _, size in sealed) != self.sealed_bytes
        )

    def has_lost_active(self, found: Sequence[tuple[int, int]]) -> bool:
        """Whether the active segment is not as it was."""
        return not found or found[-1] != (self.active_offset, self.active_bytes)

    def has_lost_end(self, found: Sequence[tuple[int, int]]) -> bool:
        """Whether the active segment is gone or shorter than it was."""
        active = self.active_offset, self.active_bytes
        return self.active_bytes > 0 and (not found or found[-1] < active)


def describe_segments(segments: Sequence[tuple[int, int]]) -> ClosedSegments:
    """Of a log with these base offsets and sizes; it has at least one."""
    *sealed, active = segments
    return ClosedSegments(
        segments[0][0], len(sealed), sum(size for _, size in sealed), active[0], active[1]
    )


def write_clean_marker(
    files: Files,
    folder: Path,
    broker_epoch: int,
    logs: Iterable[tuple[TopicPartition, ClosedSegments]],
) -> None:
    """Promise the next start that there is nothing to recover, and how to tell."""
    rows = [(*key, *segments) for key, segments in logs]
    listed = {"version": _VERSION, "brokerEpoch": broker_epoch, "logs": rows}
    files.replace(folder / SEGMENTS_AT_STOP_FILE, _encode(listed))
    files.replace(
        folder / CLEAN_SHUTDOWN_FILE, _encode({"version": 0, "brokerEpoch": broker_epoch})
    )


def take_clean_marker(files: Files, folder: Path) -> Mapping[TopicPartition, ClosedSegments] | None:
    """Remove it, durably, and say how the logs were left, as far as is known; None without it."""
    marker = folder / CLEAN_SHUTDOWN_FILE
    if not files.exists(marker):
        return None
    closed = _read_closed(files, folder)
    files.remove(marker)
    files.remove(folder / SEGMENTS_AT_STOP_FILE)
    files.sync_folder(folder)
    return closed


def _read_closed(files: Files, folder: Path) -> Mapping[TopicPartition, ClosedSegments]:
    path = folder / SEGMENTS_AT_STOP_FILE
    if not files.exists(path):
        return {}
    try:
        marker = json.loads(files.read(folder / CLEAN_SHUTDOWN_FILE))
        listed = json.loads(files.read(path))
        if listed["version"] != _VERSION or listed["brokerEpoch"] != marker["brokerEpoch"]:
            return {}
        return {
            TopicPartition(topic, partition): ClosedSegments(*map(int, numbers))
            for topic, partition, *numbers in listed["logs"]
        }
    except (ValueError, TypeError, KeyError) as error:
        _log.warning("%s is passed over: %s", path, error)
        return {}


def _encode(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()
