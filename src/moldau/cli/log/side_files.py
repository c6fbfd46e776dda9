"""Reads the files beside a segment: indexes, producer snapshots, checkpoints.

Each becomes rows of names and values, which are printed as a table or as an object per line.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from moldau.errors import ConfigurationError, DamagedFileError
from moldau.storage.files import RealFiles
from moldau.storage.producer_snapshots import decode_snapshot
from moldau.storage.rules import file_names
from moldau.storage.rules.checkpoint_format import decode_lines
from moldau.storage.transaction_index import TransactionIndex

Row = Mapping[str, object]
ReadRows = Callable[[Path, int], Iterator[Row]]

_OFFSET_ENTRY = struct.Struct(">II")
_TIME_ENTRY = struct.Struct(">qi")
_ENTRIES_AT_ONCE = 4096
_STAGES = (
    file_names.DELETED_SUFFIX,
    file_names.CLEANED_SUFFIX,
    file_names.SWAP_SUFFIX,
    file_names.UNSHARED_SUFFIX,
)


def find_reader(path: Path) -> ReadRows | None:
    """How to read this file, by its name; None for a segment's own log."""
    name = _plain_name(path)
    if name.endswith(file_names.LOG_SUFFIX):
        return None
    for ending, reader in _READERS.items():
        if name.endswith(ending):
            return reader
    kinds = ", ".join((file_names.LOG_SUFFIX, *_READERS))
    raise ConfigurationError(f"{path} is no file that can be dumped; these can: {kinds}")


def base_offset_of(path: Path) -> int:
    """The offset in the file's name; 0 when it was given another name."""
    found = file_names.find_segment_file(path.name)
    return 0 if found is None else found.base_offset


def _plain_name(path: Path) -> str:
    name = path.name
    for stage in _STAGES:
        name = name.removesuffix(stage)
    return name


def _read_offset_index(path: Path, base_offset: int) -> Iterator[Row]:
    for relative_offset, position in _read_entries(path, _OFFSET_ENTRY):
        yield {"offset": base_offset + relative_offset, "position": position}


def _read_time_index(path: Path, base_offset: int) -> Iterator[Row]:
    for timestamp_ms, relative_offset in _read_entries(path, _TIME_ENTRY):
        yield {"timestamp_ms": timestamp_ms, "offset": base_offset + relative_offset}


def _read_entries(path: Path, layout: struct.Struct) -> Iterator[tuple[int, int]]:
    """Entries up to the zeros that Kafka preallocates behind them."""
    width = layout.size
    blank = bytes(width)
    with path.open("rb") as file:
        while block := file.read(width * _ENTRIES_AT_ONCE):
            for start in range(0, len(block), width):
                entry = block[start : start + width]
                if len(entry) < width:
                    raise DamagedFileError(f"{path} ends with {len(entry)} of {width} bytes")
                if entry == blank:
                    return
                first, second = layout.unpack(entry)
                yield first, second


def _read_transaction_index(path: Path, base_offset: int) -> Iterator[Row]:
    for aborted in TransactionIndex(RealFiles(), path).entries():
        yield aborted._asdict()


def _read_snapshot(path: Path, base_offset: int) -> Iterator[Row]:
    for entry in decode_snapshot(path.read_bytes()):
        last = entry.batches[-1] if entry.batches else None
        yield {
            "producer_id": entry.producer_id,
            "producer_epoch": entry.producer_epoch,
            "coordinator_epoch": entry.coordinator_epoch,
            "last_timestamp_ms": entry.last_timestamp_ms,
            "last_sequence": None if last is None else last.last_sequence,
            "last_offset": None if last is None else last.last_offset,
            "transaction_first_offset": entry.transaction_first_offset,
        }


def _read_offset_checkpoint(path: Path, base_offset: int) -> Iterator[Row]:
    for line in decode_lines(path.read_bytes()):
        topic, partition, offset = _split(line, 3)
        yield {"topic": topic, "partition": int(partition), "offset": int(offset)}


def _read_leader_epochs(path: Path, base_offset: int) -> Iterator[Row]:
    for line in decode_lines(path.read_bytes()):
        epoch, start_offset = _split(line, 2)
        yield {"leader_epoch": int(epoch), "start_offset": int(start_offset)}


def _split(line: str, count: int) -> list[str]:
    fields = line.split()
    numbers = fields[-2:]
    if len(fields) != count or not all(text.lstrip("-").isdecimal() for text in numbers):
        raise DamagedFileError(f"the line {line!r} is damaged")
    return fields


_READERS: Mapping[str, ReadRows] = {
    file_names.OFFSET_INDEX_SUFFIX: _read_offset_index,
    file_names.TIME_INDEX_SUFFIX: _read_time_index,
    file_names.TRANSACTION_INDEX_SUFFIX: _read_transaction_index,
    file_names.PRODUCER_SNAPSHOT_SUFFIX: _read_snapshot,
    file_names.LEADER_EPOCHS_FILE: _read_leader_epochs,
    file_names.RECOVERY_POINTS_FILE: _read_offset_checkpoint,
    file_names.HIGH_WATERMARKS_FILE: _read_offset_checkpoint,
    file_names.LOG_START_OFFSETS_FILE: _read_offset_checkpoint,
    file_names.CLEANER_OFFSETS_FILE: _read_offset_checkpoint,
}
