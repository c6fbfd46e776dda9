"""Reads the logs of a replica from the bytes on its disk, past the broker. A rule over files.

A machine may have a second log directory, `SECOND_FOLDER`, to which logs move: where a log is found
in both, in the middle of that, the longer one is meant.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

from moldau.errors import MoldauError
from moldau.model import TopicPartition
from moldau.records.batch_header import HEADER_BYTES, crc_matches, read_header
from moldau.records.record_batch import ControlType, find_control_type, records_of
from moldau.storage.rules.file_names import PARTITION_METADATA_FILE
from moldau.testing.cluster_history import StoredBatch
from moldau.testing.memory_files import MemoryFiles

SECOND_FOLDER: Final = Path("/more")

_LOG_SUFFIX = ".log"
_SWAP_SUFFIX = ".swap"
_DIGITS = 20  # of the base offset
_PARTITION_FOLDER = re.compile(r"(.+)-(\d+)")  # not those renamed to be deleted, or set aside


def list_logs(files: MemoryFiles, folder: Path) -> list[TopicPartition]:
    """The partitions that have a log there, in the order of their names."""
    names = {*files.peek_folder(folder), *files.peek_folder(SECOND_FOLDER)}
    matches = (_PARTITION_FOLDER.fullmatch(name) for name in sorted(names))
    return [TopicPartition(match[1], int(match[2])) for match in matches if match is not None]


def _places(files: MemoryFiles, folder: Path, partition: TopicPartition) -> list[Path]:
    """Where its log is; one of them where there is none."""
    places = _folders_of(folder, partition)
    return [place for place in places if files.peek_folder(place)] or places[:1]


@lru_cache(maxsize=1024)
def _folders_of(folder: Path, partition: TopicPartition) -> list[Path]:
    return [each / str(partition) for each in (folder, SECOND_FOLDER)]


def find_topic_id(files: MemoryFiles, folder: Path, partition: TopicPartition) -> str | None:
    """Whose log it is: of a topic that was made again there may be one of its first life."""
    for place in _places(files, folder, partition):
        data = files.peek(place / PARTITION_METADATA_FILE)
        if data:
            return data.decode().split()[-1]
    return None


def read_log(files: MemoryFiles, folder: Path, partition: TopicPartition) -> list[StoredBatch]:
    """The whole batches from the beginning to the end, or to the first that is damaged."""
    found = (_read_log(files, place) for place in _places(files, folder, partition))
    return max(found, key=lambda batches: batches[-1].end_offset if batches else -1)


def _read_log(files: MemoryFiles, place: Path) -> list[StoredBatch]:
    batches: list[StoredBatch] = []
    names = files.peek_folder(place)
    swap_end = -1
    for name in names:
        is_swap = name.endswith(_LOG_SUFFIX + _SWAP_SUFFIX)
        if is_swap or (name.endswith(_LOG_SUFFIX) and int(name[:_DIGITS]) >= swap_end):
            if name + _SWAP_SUFFIX in names:
                continue  # compaction is about to put another in its place
            found = _walk(files.peek(place / name) or b"")
            if is_swap and found:
                swap_end = found[-1].end_offset
            if batches and found and found[0].base_offset < batches[-1].end_offset:
                break  # what a power loss left of a segment before its recovery
            batches += found
    return batches


def find_log_end(files: MemoryFiles, folder: Path, partition: TopicPartition) -> int:
    """Behind the last whole batch; of a log whose records are all deleted, where it goes on."""
    batches = read_log(files, folder, partition)
    if batches:
        return batches[-1].end_offset
    names = (name for at in _places(files, folder, partition) for name in files.peek_folder(at))
    starts = [int(name.removesuffix(_LOG_SUFFIX)) for name in names if name.endswith(_LOG_SUFFIX)]
    return max(starts, default=0)


@lru_cache(maxsize=512)
def _walk(data: bytes) -> tuple[StoredBatch, ...]:
    """Replicas have the same bytes, and segments that are full stay as they are."""
    return tuple(_batches_of(data))


def _batches_of(data: bytes) -> Iterator[StoredBatch]:
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


def committed_offsets_of(batches: Iterable[StoredBatch]) -> set[int]:
    """The offsets of all records that `read_committed` has to show: those of no transaction, and
    those of transactions whose marker in the log says commit."""
    committed: set[int] = set()
    open_offsets: defaultdict[int, list[int]] = defaultdict(list)  # by producer
    for batch in batches:
        header = read_header(batch.content)
        offsets = range(header.base_offset, header.next_offset)
        if header.is_control:
            decided = open_offsets.pop(header.producer_id, [])
            (marker,) = records_of(batch.content, header)
            if find_control_type(marker.key) is ControlType.COMMIT:
                committed.update(decided)
        elif header.is_transactional:
            open_offsets[header.producer_id] += offsets
        else:
            committed.update(offsets)
    return committed
