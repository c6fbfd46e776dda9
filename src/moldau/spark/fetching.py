"""Reads ranges of partitions into Arrow batches, one after the other: what a task of Spark does.

Fetching runs ahead on the client's loop while this thread decodes. Batches are gathered until they
have so many rows that Spark's work for each of them does not count; no record is seen in Python.
A shell.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import pyarrow as pa

from moldau.arrow.columns import choose_schema
from moldau.arrow.raw_batches import to_record_batches
from moldau.client.consumer.rules.fetch_buffer import RawBatch, require_crc, split_batches
from moldau.client.range_fetch import RangeReader, RangeSettings
from moldau.client.rules.offsets import OffsetRange
from moldau.config.client_options import ConsumerOptions
from moldau.errors import (
    DamagedFileError,
    DataLossError,
    OffsetOutOfRangeError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from moldau.records.batch_header import HEADER_BYTES, LOG_OVERHEAD_BYTES, read_header, read_size
from moldau.spark.rules.offset_ranges import DATA_LOSS_ADVICE, PartitionRange
from moldau.spark.worker import freeze_once
from moldau.spark.worker import open_client as client_for
from moldau.storage.checkpoint_files import decode_partition_metadata
from moldau.storage.files import RealFiles
from moldau.storage.indexes import IndexedBatch, OffsetIndex
from moldau.storage.rules.file_names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA_FILE,
    find_segment_file,
)

if TYPE_CHECKING:
    from moldau.spark.options import SourceOptions


_log = logging.getLogger("moldau.spark")

ROWS_AT_LEAST: Final = 2_000
"""In every Arrow batch but the last of a task, unless the records are very large."""
_BYTES_ENOUGH: Final = 32 * 1024 * 1024


def read_task(
    options: SourceOptions, task: Sequence[PartitionRange], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The records of the ranges, in order; raises DataLossError."""
    ours = choose_schema(schema.names, "us")
    with closing(_read_ranges(options, task)) as answers:
        for batches in gather_batches(answers):
            for batch in to_record_batches(batches, ours):
                yield fit_schema(batch, schema)
    freeze_once()


def fit_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same buffers under the names and flags that Spark wants."""
    if batch.schema.equals(schema):
        return batch
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def gather_batches(answers: Iterable[Sequence[RawBatch]]) -> Iterator[list[RawBatch]]:
    """Batches of one answer or several, until they hold enough rows."""
    held: list[RawBatch] = []
    rows = size_bytes = 0
    for batches in answers:
        held.extend(batches)
        rows += sum(one.header.record_count for one in batches)
        size_bytes += sum(len(one.data) for one in batches)
        if rows >= ROWS_AT_LEAST or size_bytes >= _BYTES_ENOUGH:
            yield held
            held, rows, size_bytes = [], 0, 0
    if held:
        yield held


def _read_ranges(
    options: SourceOptions, task: Sequence[PartitionRange]
) -> Generator[Sequence[RawBatch], None, None]:
    for wanted in task:
        yield from _read_range(options, wanted)


def _read_range(
    options: SourceOptions, wanted: PartitionRange
) -> Generator[Sequence[RawBatch], None, None]:
    """From files where that is asked for and possible, and the rest through the broker."""
    position = wanted.start_offset
    if options.data_folder is not None:
        with closing(read_closed_segments(options, wanted)) as found:
            for batches in found:
                position = batches[-1].next_offset
                yield batches
    rest = wanted._replace(start_offset=position)
    if not rest.is_empty:
        yield from _fetch_range(options, rest)


def _fetch_range(
    options: SourceOptions, wanted: PartitionRange
) -> Generator[Sequence[RawBatch], None, None]:
    client = client_for(options)
    settings = range_settings(options.client, wanted, skip_deleted=not options.fail_on_data_loss)
    ranges = {wanted.partition: OffsetRange(wanted.start_offset, wanted.end_offset)}

    async def make_reader() -> RangeReader:
        return RangeReader(client.cluster, ranges, settings)

    reader = client.run(make_reader())
    try:
        while batches := client.run(reader.take_batches()):
            yield batches
    except (OffsetOutOfRangeError, UnknownTopicError, UnknownTopicIdError) as error:
        if options.fail_on_data_loss:
            raise DataLossError(
                f"{wanted} cannot be read to its end: {error}. {DATA_LOSS_ADVICE}"
            ) from error
        _log.warning("%s ended early, records are missing: %s", wanted, error)
    finally:
        client.run(reader.close())


def range_settings(
    options: ConsumerOptions, wanted: PartitionRange, *, skip_deleted: bool
) -> RangeSettings:
    """For reading a range; what one answer brings is our own default unless it was set."""
    defaults = RangeSettings()
    fetch_bytes = defaults.fetch_bytes
    if "max_partition_fetch_bytes" in options.given:
        fetch_bytes = max(options.max_partition_fetch_bytes, 1)
    return RangeSettings(
        fetch_bytes=fetch_bytes,
        max_wait_ms=options.fetch_max_wait_ms,
        read_committed=options.isolation_level == "read_committed",
        skip_deleted=skip_deleted,
        topic_id=wanted.topic_id,
    )


# Closed segments, from the broker's own files: for jobs that run beside its data folder. Only files
# that the broker no longer appends to are read, and only offsets that the driver planned, which lie
# below the high watermark. A file may be compacted or deleted meanwhile: an open one stays as it
# was, and one that is gone ends the reading here; the broker is asked for the rest. Readers of
# committed records always ask the broker, which knows the aborted transactions.


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
