"""Reads the logs of a replica from the bytes on its disk, past the broker. A rule over files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from moldau.errors import MoldauError
from moldau.model import TopicPartition
from moldau.records.batch_header import HEADER_BYTES, read_header
from moldau.records.batch_reader import records_of
from moldau.records.crc import crc_matches
from moldau.testing.cluster_history import StoredBatch
from moldau.testing.memory_files import MemoryFiles

_LOG_SUFFIX = ".log"
_PARTITION_FOLDER = re.compile(r"(.+)-(\d+)")  # not those renamed to be deleted, or set aside


def list_logs(files: MemoryFiles, folder: Path) -> list[TopicPartition]:
    """The partitions that have a log there, in the order of their names."""
    matches = (_PARTITION_FOLDER.fullmatch(name) for name in sorted(files.peek_folder(folder)))
    return [TopicPartition(match[1], int(match[2])) for match in matches if match is not None]


def read_log(files: MemoryFiles, folder: Path, partition: TopicPartition) -> list[StoredBatch]:
    """The whole batches from the beginning to the end, or to the first that is damaged."""
    batches: list[StoredBatch] = []
    place = folder / str(partition)
    for name in files.peek_folder(place):
        if name.endswith(_LOG_SUFFIX):
            found = list(_walk(files.peek(place / name) or b""))
            if batches and found and found[0].base_offset < batches[-1].end_offset:
                break  # what a power loss left of a segment before its recovery
            batches += found
    return batches


def _walk(data: bytes) -> Iterator[StoredBatch]:
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
