"""`partition.metadata`: the id of the topic that a partition's folder belongs to.

    version: 0
    topic_id: 5q7mWlOxRyS9hrrX9e3zrA

A topic that was deleted and made again has another id, so what is left of the old one is known for
what it is. A codec and a tiny shell.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from uuid import UUID

from moldau.errors import DamagedFileError
from moldau.model import TopicId, format_uuid, parse_uuid
from moldau.storage.files import Files

_FORMAT = r"version:\s*0\r?\ntopic_id:\s*([A-Za-z0-9_-]{22})\s*\Z"
_ZERO = UUID(int=0)


def encode_partition_metadata(topic_id: TopicId) -> bytes:
    return f"version: 0\ntopic_id: {format_uuid(topic_id)}\n".encode()


def decode_partition_metadata(data: bytes) -> TopicId:
    match = re.match(_FORMAT, data.decode(errors="replace"))
    topic_id = _parse_id(match[1]) if match else _ZERO
    if topic_id == _ZERO:
        raise DamagedFileError(f"a partition metadata file has no topic id: {data[:80]!r}")
    return TopicId(topic_id)


def _parse_id(text: str) -> UUID:
    try:
        return parse_uuid(text)
    except ValueError:
        return _ZERO


def write_partition_metadata(files: Files, path: Path, topic_id: TopicId) -> None:
    """Blocks until its content is on disk; its name may have to wait for the folder's sync."""
    with contextlib.closing(files.open(path, create=True)) as file:
        file.truncate(0)
        file.write_at(0, encode_partition_metadata(topic_id))
        file.sync()


def read_partition_metadata(files: Files, path: Path) -> TopicId | None:
    """None when there is no such file."""
    return decode_partition_metadata(files.read(path)) if files.exists(path) else None
