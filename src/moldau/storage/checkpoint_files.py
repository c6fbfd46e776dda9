"""The small files of a log directory and of the logs in it: checkpoints, markers and notes.

Kafka's package `checkpoint`. In a log directory:

- `recovery-point-offset-checkpoint`, `replication-offset-checkpoint` (high watermarks),
  `log-start-offset-checkpoint`, `cleaner-offset-checkpoint`, and `dropped-tombstones-checkpoint`,
  which is not Kafka's: `topic partition offset` on each line
- `aborted-transactions-checkpoint`, not Kafka's: what the transaction indexes should hold
- `.kafka_cleanshutdown` and, not Kafka's, `segments-at-stop`: how a clean stop left the logs

In the folder of a log:

- `leader-epoch-checkpoint`: where each leader epoch begins; `partition.metadata`: the topic id
- not Kafka's: `log-start-offset`, `compaction-offsets`, and `set-aside.json`, a note of what the
  checkpoints do not know of the log

None of the checkpoints is needed to start. An absent file is an empty one, and a damaged one is
reported and ignored: recovery then scans more. Codecs and tiny shells, which block: run them in a
worker.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeAlias
from uuid import UUID

from moldau.errors import DamagedFileError
from moldau.model import Offset, TopicId, TopicPartition, format_uuid, parse_uuid
from moldau.storage.files import Files
from moldau.storage.log_directory import LogDirectory
from moldau.storage.rules.epoch_cache import EpochCache, EpochStart
from moldau.storage.rules.file_names import (
    ABORTED_TRANSACTIONS_FILE,
    CLEAN_SHUTDOWN_FILE,
    CLEANER_OFFSETS_FILE,
    COMPACTION_OFFSETS_FILE,
    DROPPED_OFFSETS_FILE,
    HIGH_WATERMARKS_FILE,
    LOG_START_OFFSET_FILE,
    LOG_START_OFFSETS_FILE,
    RECOVERY_POINTS_FILE,
    SEGMENTS_AT_STOP_FILE,
)
from moldau.storage.transaction_index import AbortedDigest

_log = logging.getLogger("moldau.storage.recovery")

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
    return dict(_decode_offset(line) for line in decode_lines(data))


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


def _decode_offset(line: str) -> tuple[TopicPartition, Offset]:
    try:
        topic, partition, offset = line.split()
        place = TopicPartition(topic, int(partition)), Offset(int(offset))
    except ValueError as error:
        raise DamagedFileError(f"an offset checkpoint has the line {line!r}") from error
    if place[0].partition < 0 or not 0 <= place[1] <= _MAX_OFFSET:
        raise DamagedFileError(f"an offset checkpoint has the line {line!r}")
    return place


# The text format that Kafka's checkpoint files share (its `CheckpointFile`).
#
#     0            the version
#     2            how many lines follow
#     clicks 0 17
#     clicks 1 23
#
# A rule: lines in, bytes out, and back.


VERSION = "0"


def encode_lines(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in (VERSION, str(len(lines)), *lines)).encode()


def decode_lines(data: bytes) -> list[str]:
    """An empty file is an empty checkpoint, as Kafka reads it; anything torn is damage."""
    if not data:
        return []
    try:
        version, count, *lines = data.decode().splitlines()
        expected = int(count)
    except ValueError as error:
        raise DamagedFileError(f"a checkpoint file does not begin as one: {data[:40]!r}") from error
    if version != VERSION:
        raise DamagedFileError(f"a checkpoint file has version {version!r}, not {VERSION!r}")
    if len(lines) != expected:
        raise DamagedFileError(f"a checkpoint file has {len(lines)} of its {expected} lines")
    return lines


# `aborted-transactions-checkpoint`: what the indexes of aborted transactions in a folder hold.
#
# Not Kafka's. Nothing in a `.txnindex` file says whether it is whole, and one that is missing looks
# as if no transaction had been aborted: readers of committed records would be given aborted ones.
# So each log directory has `topic partition base-offset entries crc` for each segment with aborted
# transactions. An index that is another one when its log is opened is made anew from the batches;
# that is all that comes of a file that is absent, old or damaged. A codec and a tiny shell.


AbortedBySegment: TypeAlias = Mapping[int, AbortedDigest]
"""Of a log: by the base offset of each segment that has aborted transactions."""


def encode_aborted(aborted: Mapping[TopicPartition, AbortedBySegment]) -> bytes:
    return encode_lines(
        [
            f"{partition.topic} {partition.partition} {base_offset} {digest.entries} {digest.crc}"
            for partition, segments in sorted(aborted.items())
            for base_offset, digest in sorted(segments.items())
        ]
    )


def decode_aborted(data: bytes) -> dict[TopicPartition, dict[int, AbortedDigest]]:
    found: dict[TopicPartition, dict[int, AbortedDigest]] = {}
    for line in decode_lines(data):
        try:
            topic, *numbers = line.split()
            partition, base_offset, count, crc = map(int, numbers)
        except ValueError as error:
            raise DamagedFileError(f"a checkpoint of transactions has the line {line!r}") from error
        of_log = found.setdefault(TopicPartition(topic, partition), {})
        of_log[base_offset] = AbortedDigest(count, crc)
    return found


def read_aborted(files: Files, folder: Path) -> Mapping[TopicPartition, AbortedBySegment]:
    """A damaged file is passed over: it says nothing."""
    path = folder / ABORTED_TRANSACTIONS_FILE
    try:
        return decode_aborted(files.read(path)) if files.exists(path) else {}
    except DamagedFileError as error:
        _log.warning("%s is passed over: %s", path, error)
        return {}


# `leader-epoch-checkpoint`: where each leader epoch begins in a partition's log.
#
# `epoch start-offset` on each line, ascending. An absent file is an empty one; for a damaged one
# `DamagedFileError` is raised, and the log rebuilds its epochs from its batches. What the entries
# mean is decided in `rules.epoch_cache`. A codec and a tiny shell.


_MAX_EPOCH = (1 << 31) - 1


class LeaderEpochs:
    """The epochs of one log, and what its file says of them."""

    __slots__ = ("cache", "stored")

    def __init__(self, cache: EpochCache, stored: EpochCache) -> None:
        self.cache = cache
        self.stored = stored

    def to_store(self, end_offset: int) -> EpochCache | None:
        """What the file of a log that ends there should say; None when it does.

        An epoch in which nothing was written yet begins anew with its leader.
        """
        epochs = self.cache.truncate_from_end(end_offset)
        return None if epochs == self.stored else epochs


def encode_epochs(entries: Sequence[EpochStart]) -> bytes:
    return encode_lines([f"{entry.epoch} {entry.start_offset}" for entry in entries])


def decode_epochs(data: bytes) -> EpochCache:
    """Entries that contradict later ones give way to them, as when they are assigned."""
    cache = EpochCache()
    for line in decode_lines(data):
        entry = _decode_epoch(line)
        cache = cache.assign(entry.epoch, entry.start_offset)
    return cache


def write_epochs(files: Files, path: Path, cache: EpochCache) -> None:
    """Blocks until it is on disk: call it in a worker."""
    files.replace(path, encode_epochs(cache.entries))


def read_epochs(files: Files, path: Path) -> EpochCache:
    return decode_epochs(files.read(path)) if files.exists(path) else EpochCache()


def _decode_epoch(line: str) -> EpochStart:
    try:
        epoch, start_offset = map(int, line.split())
    except ValueError as error:
        raise DamagedFileError(f"a leader epoch file has the line {line!r}") from error
    if not (0 <= epoch <= _MAX_EPOCH and 0 <= start_offset <= _MAX_OFFSET):
        raise DamagedFileError(f"a leader epoch file has the line {line!r}")
    return EpochStart(epoch, start_offset)


# `log-start-offset` in the folder of a log: where it begins, if that is inside its first segment.
#
# Not Kafka's, which passes over it. Where DeleteRecords has moved the start of a log is only in
# `log-start-offset-checkpoint` until whole segments can go; without that file, what was deleted is
# there again, and so it is with Kafka. Here the log's own folder says it too, with a checksum, and
# is believed when the checkpoint of its directory is missing or damaged; else that one knows more:
# it may be newer, or a Kafka's. A codec and a tiny shell. It blocks: use it in a worker.


_VERSION = 1


def write_log_start(files: Files, folder: Path, offset: int | None) -> None:
    """Note where a log begins; None where its segments tell."""
    path = folder / LOG_START_OFFSET_FILE
    if offset is None:
        files.remove(path)
    else:
        _write_numbers(files, path, logStartOffset=offset)


def read_log_start(files: Files, folder: Path) -> int:
    """0 where nothing is noted, or what is noted makes no sense."""
    path = folder / LOG_START_OFFSET_FILE
    if not files.exists(path):
        return 0
    (offset,) = _read_numbers(files, path, "logStartOffset") or (0,)
    return offset


def _write_numbers(files: Files, path: Path, **numbers: int) -> None:
    """Replace a file by one with some numbers and their checksum."""
    crc = _crc_of(numbers.values())
    files.replace(path, _encode({"version": _VERSION, **numbers, "crc": crc}))


def _read_numbers(files: Files, path: Path, *names: str) -> Sequence[int] | None:
    """What `_write_numbers` has written; None where the file, which is there, makes no sense."""
    try:
        fields = json.loads(files.read(path))
        found = [int(fields[name]) for name in names]
        if min(found) < 0 or fields["crc"] != _crc_of(found):
            raise ValueError(f"it has {fields}")
    except (ValueError, TypeError, KeyError) as error:
        _log.warning("%s is passed over: %s", path, error)
        return None
    return found


def _crc_of(numbers: Iterable[int]) -> int:
    return zlib.crc32(" ".join(map(str, numbers)).encode())


# `compaction-offsets` in the folder of a log: how far its records depend on others behind them.
#
# A round of compaction takes records away group by group, and the checkpoints of the directory hear
# of it when it is over. A round that is cut short by a crash has taken some away all the same: a
# log that is truncated later must know for the sake of which ones (REP-8), and one that leads which
# tombstones it has dropped (REP-9). So a round says it here, durably, before the first record goes.
#
# It may say too much: of a round that was given up, or of what was truncated since. Then a log is
# copied that need not be. Not Kafka's, which passes over it. A codec and a tiny shell. It blocks:
# use it in a worker.


class CompactionOffsets(NamedTuple):
    """See `Log.compared_offset` and `Log.dropped_offset`."""

    compared_offset: int = 0
    dropped_offset: int = 0


def write_compaction_offsets(files: Files, folder: Path, offsets: CompactionOffsets) -> None:
    _write_numbers(
        files,
        folder / COMPACTION_OFFSETS_FILE,
        comparedOffset=offsets.compared_offset,
        droppedOffset=offsets.dropped_offset,
    )


def read_compaction_offsets(files: Files, folder: Path) -> CompactionOffsets:
    """Zeros where the file, which is there, makes no sense."""
    path = folder / COMPACTION_OFFSETS_FILE
    return CompactionOffsets(*_read_numbers(files, path, "comparedOffset", "droppedOffset") or ())


# What a clean stop leaves in a log directory, for the next start.
#
# `.kafka_cleanshutdown`, Kafka's marker, promises that there is nothing to recover. It says nothing
# of what the logs were like, so a file that was cut short or removed while the broker was stopped
# would go unnoticed. `segments-at-stop` says it, log by log: where it began, how many segments were
# sealed and their bytes, where the active one began and its bytes. A start compares that with the
# names and sizes that it looks at anyway, and reads nothing for it.
#
#     {"version":1,"brokerEpoch":42,"logs":[["clicks",0,0,3,3145728,8211,4096]]}
#
# It belongs to the marker with the same broker epoch: if another version or a Kafka was in the
# folder meanwhile, its marker has another one, and nothing is compared.
#
# A codec and a tiny shell. It blocks: run it in workers.


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


#     version: 0
#     topic_id: 5q7mWlOxRyS9hrrX9e3zrA
#
# A topic that was deleted and made again has another id, so what is left of the old one is known
# for what it is. A codec and a tiny shell.


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


# Checkpoints are for logs in service. A log that was set aside, that has just been moved to another
# directory, or that was made of another one's files comes with a note; it goes when the checkpoints
# say the same. A start that finds one believes it.
#
# A codec, and `drop_note`. The others block: run them in a worker.


NOTE_FILE = "set-aside.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogNote:
    """What is known of a log that was flushed to its end."""

    log_start_offset: int
    log_end_offset: int
    cleaned_offset: int
    high_watermark: int


def write_note(files: Files, folder: Path, note: LogNote) -> None:
    content = json.dumps({"version": 1, **asdict(note)}, separators=(",", ":"))
    files.replace(folder / NOTE_FILE, content.encode())


def find_note(files: Files, folder: Path) -> LogNote | None:
    """The note in a folder; None also when it makes no sense."""
    try:
        return read_note(files, folder)
    except (ValueError, TypeError):
        return None


def read_note(files: Files, folder: Path) -> LogNote | None:
    """As `find_note`. Raises `ValueError` or `TypeError` when it makes no sense."""
    if not files.exists(folder / NOTE_FILE):
        return None
    fields = json.loads(files.read(folder / NOTE_FILE))
    fields.pop("version", None)
    return LogNote(**{name: int(value) for name, value in fields.items()})


def remove_note(files: Files, folder: Path) -> None:
    """It must not come back with a power loss, when another folder may have one (MOV-3)."""
    files.remove(folder / NOTE_FILE)
    files.sync_folder(folder)


async def drop_note(directory: LogDirectory, folder: Path) -> None:
    """The checkpoints say what it does."""
    await directory.run(lambda: remove_note(directory.files, folder))
