"""Offset checkpoints: one file per log directory with an offset for each partition in it.

`recovery-point-offset-checkpoint`, `replication-offset-checkpoint` (high watermarks),
`log-start-offset-checkpoint` and `cleaner-offset-checkpoint` share this format: `topic partition
offset` on each line. None of them is needed to start. So an absent file is an empty one, and for a
damaged one is reported and taken for an empty one: recovery then scans more. A codec and a tiny
shell.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from moldau.errors import DamagedFileError
from moldau.model import Offset, TopicPartition
from moldau.storage.files import Files
from moldau.storage.rules.checkpoint_format import decode_lines, encode_lines
from moldau.storage.rules.file_names import (
    CLEANER_OFFSETS_FILE,
    DROPPED_OFFSETS_FILE,
    HIGH_WATERMARKS_FILE,
    LOG_START_OFFSETS_FILE,
    RECOVERY_POINTS_FILE,
)

_log = logging.getLogger("moldau.storage")

_MAX_OFFSET = (1 << 63) - 1

OffsetsByPartition: TypeAlias = Mapping[TopicPartition, Offset]


class CheckpointedOffsets(NamedTuple):
    """What the files of a folder say."""

    recovery_points: OffsetsByPartition
    log_start_offsets: OffsetsByPartition
    cleaned_offsets: OffsetsByPartition
    high_watermarks: OffsetsByPartition
    dropped_offsets: OffsetsByPartition = MappingProxyType({})
    """Not Kafka's: see `Log.dropped_offset`."""
    are_starts_known: bool = True
    """Whether the file of log start offsets is there and sound."""


def encode_offsets(offsets: OffsetsByPartition) -> bytes:
    return encode_lines(
        [
            f"{partition.topic} {partition.partition} {offset}"
            for partition, offset in sorted(offsets.items())
        ]
    )


def decode_offsets(data: bytes) -> dict[TopicPartition, Offset]:
    return dict(_decode_line(line) for line in decode_lines(data))


def read_offset_checkpoint(files: Files, path: Path) -> dict[TopicPartition, Offset]:
    return decode_offsets(files.read(path)) if files.exists(path) else {}


def read_checkpoints(files: Files, folder: Path) -> CheckpointedOffsets:
    """All of them; a damaged file is passed over."""
    log_start_offsets = _find_sound(files, folder / LOG_START_OFFSETS_FILE)
    return CheckpointedOffsets(
        recovery_points=_read_sound(files, folder / RECOVERY_POINTS_FILE),
        log_start_offsets=log_start_offsets or {},
        are_starts_known=log_start_offsets is not None,
        cleaned_offsets=_read_sound(files, folder / CLEANER_OFFSETS_FILE),
        high_watermarks=_read_sound(files, folder / HIGH_WATERMARKS_FILE),
        dropped_offsets=_read_sound(files, folder / DROPPED_OFFSETS_FILE),
    )


def _find_sound(files: Files, path: Path) -> OffsetsByPartition | None:
    """None when there is none, or a damaged one; one without a version has lost everything."""
    try:
        data = files.read(path) if files.exists(path) else b""
        return decode_offsets(data) if data else None
    except DamagedFileError as error:
        _log.warning("%s is passed over: %s", path, error)
        return None


def _read_sound(files: Files, path: Path) -> OffsetsByPartition:
    return _find_sound(files, path) or {}


def _decode_line(line: str) -> tuple[TopicPartition, Offset]:
    try:
        topic, partition, offset = line.split()
        place = TopicPartition(topic, int(partition)), Offset(int(offset))
    except ValueError as error:
        raise DamagedFileError(f"an offset checkpoint has the line {line!r}") from error
    if place[0].partition < 0 or not 0 <= place[1] <= _MAX_OFFSET:
        raise DamagedFileError(f"an offset checkpoint has the line {line!r}")
    return place
