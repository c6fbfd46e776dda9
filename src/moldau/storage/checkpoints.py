"""Offset checkpoints: one file per log directory with an offset for each partition in it.

`recovery-point-offset-checkpoint`, `replication-offset-checkpoint` (high watermarks),
`log-start-offset-checkpoint` and `cleaner-offset-checkpoint` share this format: `topic partition
offset` on each line. None of them is needed to start. So an absent file is an empty one, and for a
damaged one `DamagedFileError` is raised, which the caller reports and takes for an empty one:
recovery then scans more. A codec and a tiny shell.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from moldau.errors import DamagedFileError
from moldau.model import Offset, TopicPartition
from moldau.storage.files import Files
from moldau.storage.rules.checkpoint_format import decode_lines, encode_lines


def encode_offsets(offsets: Mapping[TopicPartition, Offset]) -> bytes:
    return encode_lines(
        [
            f"{partition.topic} {partition.partition} {offset}"
            for partition, offset in sorted(offsets.items())
        ]
    )


def decode_offsets(data: bytes) -> dict[TopicPartition, Offset]:
    return dict(_decode_line(line) for line in decode_lines(data))


def write_offsets(files: Files, path: Path, offsets: Mapping[TopicPartition, Offset]) -> None:
    """Blocks until it is on disk: call it in a worker."""
    files.replace(path, encode_offsets(offsets))


def read_offset_checkpoint(files: Files, path: Path) -> dict[TopicPartition, Offset]:
    return decode_offsets(files.read(path)) if files.exists(path) else {}


def _decode_line(line: str) -> tuple[TopicPartition, Offset]:
    try:
        topic, partition, offset = line.split()
        place = TopicPartition(topic, int(partition)), Offset(int(offset))
    except ValueError as error:
        raise DamagedFileError(f"an offset checkpoint has the line {line!r}") from error
    if place[0].partition < 0 or place[1] < 0:
        raise DamagedFileError(f"an offset checkpoint has the line {line!r}")
    return place
