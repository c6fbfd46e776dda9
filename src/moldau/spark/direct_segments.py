"""Reads closed segments from the broker's own files, for jobs that run beside its data folder.

Only files that the broker no longer appends to are read, and only offsets that the driver planned,
which lie below the high watermark. A file may be compacted or deleted meanwhile: an open one stays
as it was, and one that is gone ends the reading here; the broker is asked for the rest. Readers of
committed records always ask the broker, who knows which transactions were aborted. A shell.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from moldau.client.rules.delivery import RawBatch
from moldau.client.rules.fetched_batches import require_crc, split_batches
from moldau.errors import DamagedFileError
from moldau.records.batch_header import HEADER_BYTES, LOG_OVERHEAD_BYTES, read_header, read_size
from moldau.spark.rules.ranges import PartitionRange
from moldau.spark.worker_client import client_for
from moldau.storage.files import RealFiles
from moldau.storage.offset_index import IndexedBatch, OffsetIndex
from moldau.storage.partition_metadata import decode_partition_metadata
from moldau.storage.rules.file_names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA_FILE,
    find_segment_file,
)

if TYPE_CHECKING:
    from moldau.spark.options import SourceOptions

_log = logging.getLogger("moldau.spark")

_CHUNK_BYTES: Final = 4 * 1024 * 1024


def read_closed_segments(
    options: SourceOptions, wanted: PartitionRange
) -> Generator[Sequence[RawBatch], None, None]:
    """The first part of a range, as far as it lies in closed segments; nothing if in none."""
    if options.read_committed:
        return
    folder = find_folder(options, wanted)
    if folder is None:
        return
    position = wanted.start_offset
    for path, base_offset in closed_files(folder, wanted):
        try:
            file = path.open("rb")
        except OSError:
            return  # compacted or deleted meanwhile; the broker has the rest
        with file:
            file.seek(_find_position(path, base_offset, position))
            for batches in _read_batches(file, wanted, position):
                position = batches[-1].next_offset
                yield batches


def find_folder(options: SourceOptions, wanted: PartitionRange) -> Path | None:
    """The partition's folder, if there is one and it belongs to this very topic."""
    partition = wanted.partition
    for root in (options.data_folder or "").split(","):
        folder = Path(root.strip()) / str(partition)
        with contextlib.suppress(OSError, DamagedFileError):
            topic_id = decode_partition_metadata((folder / PARTITION_METADATA_FILE).read_bytes())
            client = client_for(options)
            metadata = client.run(client.cluster.wait_until_topic_is_ready(partition.topic))
            if topic_id == (wanted.topic_id or metadata.topic_id):
                return folder
    _log.warning("dataFolder=%s does not hold %s; it is read through the broker", root, partition)
    return None


def closed_files(folder: Path, wanted: PartitionRange) -> list[tuple[Path, int]]:
    """The closed segments that reach into a range, each with its base offset, in order."""
    found = []
    for path in sorted(folder.iterdir()):
        name = find_segment_file(path.name)
        if name is not None and name.suffix == LOG_SUFFIX and not name.stage:
            found.append((path, name.base_offset))
    ends = [base_offset for _, base_offset in found[1:]]  # the last one is being written to
    return [
        (path, base_offset)
        for (path, base_offset), end in zip(found, ends, strict=False)
        if base_offset < wanted.end_offset and end > wanted.start_offset
    ]


def _find_position(path: Path, base_offset: int, offset: int) -> int:
    """Where to begin in a file; its beginning when the index cannot be read, or is damaged."""
    if offset <= base_offset:
        return 0
    index = OffsetIndex(RealFiles(), path.with_suffix(OFFSET_INDEX_SUFFIX), base_offset)
    with contextlib.suppress(OSError):
        entry = index.find_by_offset(offset)
        if entry is not None and _is_borne_out(path, entry):
            return entry.position
    return 0


def _is_borne_out(path: Path, entry: IndexedBatch) -> bool:
    with path.open("rb") as file:
        file.seek(entry.position)
        header = file.read(HEADER_BYTES)
    return len(header) == HEADER_BYTES and entry.is_of(read_header(header))


def _read_batches(
    file: BinaryIO, wanted: PartitionRange, position: int
) -> Iterator[Sequence[RawBatch]]:
    left = b""
    while chunk := file.read(max(_CHUNK_BYTES, _missing_bytes(left))):
        data = memoryview(left + chunk)
        found = split_batches(data, position) if _missing_bytes(data) <= 0 else None
        if found is None:
            left = bytes(data)
            continue
        batches = []
        for batch in found.batches:
            if batch.header.base_offset >= wanted.end_offset:
                break
            require_crc(batch, wanted.partition)
            next_offset = min(batch.header.next_offset, wanted.end_offset)
            batches.append(RawBatch(wanted.partition, *batch, position, next_offset))
        if batches:
            yield batches
        position = max(position, found.next_offset)
        if position >= wanted.end_offset:
            return
        left = bytes(data[_whole_bytes(data) :])


def _missing_bytes(data: bytes | memoryview) -> int:
    """How many bytes the first batch still lacks; at most 0 when it is whole."""
    if len(data) < LOG_OVERHEAD_BYTES:
        return LOG_OVERHEAD_BYTES - len(data)
    return read_size(data) - len(data)


def _whole_bytes(data: memoryview) -> int:
    """Where the last whole batch ends."""
    position = 0
    while len(data) - position >= LOG_OVERHEAD_BYTES:
        size_bytes = read_size(data, position)
        if position + size_bytes > len(data):
            break
        position += size_bytes
    return position
