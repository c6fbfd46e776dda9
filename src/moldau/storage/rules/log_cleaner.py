"""The log cleaner: which log is cleaned, which segments become one, what stays of a batch.

Kafka's rules (`LogCleanerManager`, `Cleaner`, KIP-534). A compacted log has a clean part, up to
the first dirty offset, in which each key is once, and a dirty part behind it. The end of the log
is left alone: the active segment, what is not committed, not decided or not flushed, and what is
younger than `min.compaction.lag.ms`. A log is due when enough of what may be cleaned is dirty, or
when some of it has been dirty for `max.compaction.lag.ms`; the dirtiest one is first. Only whole
segments are cleaned, and several that have become small are made into one.

What stays of a batch:

- A record stays when no later one in the compared range has its key. Offsets never change; a batch
  keeps its first and its last offset, whatever is left between them.
- A record without a value, a tombstone, says that the key is gone. It is marked when compaction
  first keeps it: bit 6 of the batch's attributes is set and the base timestamp becomes the delete
  horizon, after which the next round drops it. Readers that are slower than that miss it.
- A record without a key cannot be compacted and goes.
- Records of aborted transactions go, and never take the place of others. An end marker stays as
  long as a batch of its transaction does. A round that finds none any more marks it as it marks a
  tombstone, and one after its horizon drops it, unless its producer is known by it alone.
- A batch without records goes, unless its producer's sequence would be forgotten with it, or the
  end of its segment: such a batch becomes a bare header.

What is past the compared range stays. A batch of which nothing goes is kept byte for byte. Rules:
values and bytes in, plans and bytes out.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from moldau.errors import CorruptBatchError
from moldau.model import NO_TIMESTAMP
from moldau.records.batch_header import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    DELETE_HORIZON_FLAG,
    HEADER_BYTES,
    LENGTH_AT,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    Buffer,
    crc_matches,
    write_crc,
)
from moldau.records.codec import LatestOffsets
from moldau.records.compression import Codec, compress
from moldau.records.record import shift_timestamps
from moldau.records.record_batch import DEFAULT_LIMIT_BYTES, payload_of
from moldau.storage.rules.producer_state import ProducerEntry
from moldau.storage.rules.roll import MAX_RELATIVE_OFFSET

Name = TypeVar("Name")

_FULLEST = 0.9
"""The part of a table for keys that may be in use: a fuller one is searched for long."""


class DirtySegment(NamedTuple):
    """What the plan looks at."""

    base_offset: int
    size_bytes: int
    first_timestamp_ms: int
    """Of the first batch; negative when it has none, or nobody asked."""
    largest_timestamp_ms: int
    offset_index_bytes: int
    time_index_bytes: int


class DirtyLog(NamedTuple):
    """The offsets of a log that bound its cleaning."""

    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    recovery_point: int
    cleaned_offset: int
    """Where the last round ended; 0 when there was none."""


class CleaningTerms(NamedTuple):
    """What a topic's options say."""

    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    segment_bytes: int
    segment_index_bytes: int


class Cleanable(NamedTuple):
    """What a round of the cleaner could do for a log."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    """A segment begins here."""
    clean_bytes: int
    cleanable_bytes: int
    is_overdue: bool
    """Some of it has been dirty for longer than `max.compaction.lag.ms`."""

    @property
    def dirty_ratio(self) -> float:
        total_bytes = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total_bytes if total_bytes else 0.0


def survey(
    segments: Sequence[DirtySegment], log: DirtyLog, terms: CleaningTerms, now_ms: int
) -> Cleanable:
    """Measure a log. The last segment is the active one."""
    first_dirty = find_first_dirty_offset(log)
    dirty = _segments_from(segments, first_dirty)
    end = _find_first_uncleanable(segments, dirty, log, terms, now_ms)
    cleanable = [segment for segment in dirty if segment.base_offset < end]
    clean_bytes = sum(segment.size_bytes for segment in segments[:-1]) - sum(
        segment.size_bytes for segment in dirty
    )
    return Cleanable(
        first_dirty,
        max(first_dirty, end),
        clean_bytes,
        sum(segment.size_bytes for segment in cleanable),
        _is_overdue(cleanable, terms, now_ms),
    )


def find_first_dirty_offset(log: DirtyLog) -> int:
    """Where the dirty part begins: all is dirty when the log has been cut below its clean end."""
    if log.log_start_offset <= log.cleaned_offset <= log.log_end_offset:
        return log.cleaned_offset
    return log.log_start_offset


def is_due(cleanable: Cleanable, min_cleanable_dirty_ratio: float) -> bool:
    if not cleanable.cleanable_bytes:
        return False
    return cleanable.is_overdue or cleanable.dirty_ratio > min_cleanable_dirty_ratio


def explain_cleaning(cleanable: Cleanable, terms: CleaningTerms) -> str:
    """Why a log that is due is due."""
    if cleanable.dirty_ratio > terms.min_cleanable_dirty_ratio:
        return (
            f"min.cleanable.dirty.ratio {terms.min_cleanable_dirty_ratio}: "
            f"{cleanable.dirty_ratio:.2f} of it was dirty"
        )
    return f"max.compaction.lag.ms {terms.max_compaction_lag_ms}: a dirty record was older"


def find_dirtiest(due: Mapping[Name, Cleanable]) -> Name | None:
    return max(due, key=lambda name: due[name].dirty_ratio, default=None)


def max_keys(dedupe_buffer_bytes: int, load_factor: float, key_bytes: int) -> int:
    """How many keys one round may compare that take so many bytes each."""
    return max(1, int(dedupe_buffer_bytes * min(load_factor, _FULLEST)) // key_bytes)


def group_segments(
    segments: Sequence[DirtySegment], end_offset: int, terms: CleaningTerms
) -> tuple[range, ...]:
    """Numbers of the segments that become one, for all that begin before an offset.

    What a group has together fits into one segment: bytes, both indexes, and offsets relative to
    its first. A segment that is not cleaned follows the last group, so ends are known.
    """
    count = sum(segment.base_offset < end_offset for segment in segments[:-1])
    groups: list[range] = []
    start = 0
    while start < count:
        end = start + 1
        while end < count and _fits(segments[start : end + 1], segments[end + 1], terms):
            end += 1
        groups.append(range(start, end))
        start = end
    return tuple(groups)


def _fits(group: Sequence[DirtySegment], following: DirtySegment, terms: CleaningTerms) -> bool:
    return (
        sum(segment.size_bytes for segment in group) <= terms.segment_bytes
        and sum(segment.offset_index_bytes for segment in group) <= terms.segment_index_bytes
        and sum(segment.time_index_bytes for segment in group) <= terms.segment_index_bytes
        and following.base_offset - 1 - group[0].base_offset <= MAX_RELATIVE_OFFSET
    )


def _segments_from(segments: Sequence[DirtySegment], offset: int) -> Sequence[DirtySegment]:
    """From the segment that holds an offset on, without the active one."""
    before = sum(following.base_offset <= offset for following in segments[1:])
    return segments[before:-1]


def _find_first_uncleanable(
    segments: Sequence[DirtySegment],
    dirty: Sequence[DirtySegment],
    log: DirtyLog,
    terms: CleaningTerms,
    now_ms: int,
) -> int:
    # What replaces a record is committed, and on the disk (LOG-11).
    limit = min(segments[-1].base_offset, log.last_stable_offset, log.recovery_point)
    if terms.min_compaction_lag_ms > 0:
        oldest_kept_ms = now_ms - terms.min_compaction_lag_ms
        young = (each.base_offset for each in dirty if each.largest_timestamp_ms > oldest_kept_ms)
        limit = min(limit, next(young, limit))
    starts = (segment.base_offset for segment in segments if segment.base_offset <= limit)
    return max(starts, default=segments[0].base_offset)


def _is_overdue(cleanable: Sequence[DirtySegment], terms: CleaningTerms, now_ms: int) -> bool:
    known = (each.first_timestamp_ms for each in cleanable if each.first_timestamp_ms > 0)
    oldest_ms = min(known, default=now_ms)
    return oldest_ms < now_ms - max(0, terms.max_compaction_lag_ms)


_MAX_TIMESTAMP_MS = (1 << 63) - 1

_LENGTH = struct.Struct(">i")
_AFTER_CRC = struct.Struct(">hiqqqhii")
_NO_PRODUCER_STATE: Mapping[int, Collection[int]] = {}


class KeyMap:
    """The last offset of each key in the range that a round compares; bounded.

    Invariant: all records of committed batches from the first dirty offset up to `end_offset` are
    in it.
    """

    __slots__ = ("_max_keys", "end_offset", "latest")

    def __init__(
        self, max_keys: int, first_dirty_offset: int, most_records: int, secret: bytes
    ) -> None:
        """`most_records` is how many the range may have. The secret keeps who writes keys from
        choosing some that are taken for the same; it has 16 bytes, and nobody else has it."""
        self._max_keys = max_keys
        self.latest = LatestOffsets(min(max_keys, most_records), secret)
        self.end_offset = first_dirty_offset

    def __len__(self) -> int:
        return len(self.latest)

    def has_room_for(self, record_count: int) -> bool:
        """Whether a batch of so many records fits; the first one always does."""
        count = len(self.latest)
        return not count or count + record_count <= self._max_keys


class AbortedRanges:
    """Tells the batches of aborted transactions from others."""

    __slots__ = ("_ranges",)

    def __init__(self, transactions: Iterable[tuple[int, int, int]]) -> None:
        """Producer id, first offset and last offset (the abort marker's) of each."""
        self._ranges: dict[int, list[tuple[int, int]]] = {}
        for producer_id, first_offset, last_offset in transactions:
            self._ranges.setdefault(producer_id, []).append((first_offset, last_offset))

    def holds(self, header: BatchHeader) -> bool:
        return self.find(header) is not None

    def find(self, header: BatchHeader) -> int | None:
        """Where the aborted transaction of a batch begins; None when it was not aborted."""
        if not self._ranges or not header.is_transactional:
            return None
        ranges = self._ranges.get(header.producer_id, ())
        found = (first for first, last in ranges if first <= header.base_offset <= last)
        return next(found, None)


class TransactionData:
    """Which transactions have batches left, as a round meets them from the log's start on.

    `note` every batch in order. `fencing` has the epochs of producers that are known by an end
    marker alone: it goes on fencing those of former epochs.
    """

    __slots__ = ("_aborted", "_with_data", "aborted_with_data", "fencing")

    def __init__(self, aborted: AbortedRanges) -> None:
        self._aborted = aborted
        self._with_data: set[int] = set()  # producers, of open transactions as the round goes on
        self.aborted_with_data: set[tuple[int, int]] = set()  # producer id, first offset
        self.fencing: Mapping[int, int] = {}  # epoch by producer id

    def note(self, header: BatchHeader) -> bool:
        """Whether this is the end marker of a transaction that has nothing left."""
        producer_id = header.producer_id
        if header.is_control:
            had_data = producer_id in self._with_data
            self._with_data.discard(producer_id)
            return not had_data
        if header.is_transactional:
            self._with_data.add(producer_id)
            first_offset = self._aborted.find(header)
            if first_offset is not None:
                self.aborted_with_data.add((producer_id, first_offset))
        return False

    def fences(self, header: BatchHeader) -> bool:
        return self.fencing.get(header.producer_id) == header.producer_epoch


def find_fencing_markers(producers: Iterable[ProducerEntry]) -> dict[int, int]:
    """The epochs of the producers that are known by an end marker alone."""
    return {one.producer_id: one.producer_epoch for one in producers if not one.batches}


def find_producer_ends(
    producers: Iterable[ProducerEntry], last_dirty_offsets: Mapping[int, int], end_offset: int
) -> dict[int, Collection[int]]:
    """The last offsets of the batches by which each producer is known.

    That is its last batch, and the last one before `end_offset`, where the compared range ends: a
    power loss or a truncation may take everything behind that, and then it is the last (SEQ-3).
    `last_dirty_offsets` has it for those which have one in the dirty part.
    """
    ends: dict[int, Collection[int]] = {}
    for entry in producers:
        remembered = [each.last_offset for each in entry.batches if each.last_offset < end_offset]
        last_before = last_dirty_offsets.get(entry.producer_id, max(remembered, default=-1))
        # With none of both it lies in the clean part, if anywhere; the next round knows better.
        ends[entry.producer_id] = (
            (entry.last_offset, last_before) if last_before >= 0 else range(entry.last_offset + 1)
        )
    return ends


class CompactionTerms(NamedTuple):
    """What holds for a whole round."""

    now_ms: int
    delete_retention_ms: int
    limit_bytes: int = DEFAULT_LIMIT_BYTES
    """How much a batch may unfold to."""


def map_batch(
    keys: KeyMap,
    batch: Buffer,
    header: BatchHeader,
    aborted: AbortedRanges,
    first_dirty_offset: int,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
) -> bool:
    """Take note of a dirty batch; False when there is no room for it, and the range ends before."""
    if not (header.is_control or aborted.holds(header)):
        if not keys.has_room_for(header.record_count):
            return False
        payload = _require_payload(batch, header, limit_bytes)
        keys.latest.add(payload, header.record_count, header.base_offset, first_dirty_offset)
    keys.end_offset = max(keys.end_offset, header.next_offset)
    return True


def compact_batch(
    batch: Buffer,
    header: BatchHeader,
    keys: KeyMap,
    aborted: AbortedRanges,
    terms: CompactionTerms,
    *,
    last_offsets: Mapping[int, Collection[int]] = _NO_PRODUCER_STATE,
    ends_segment: bool = False,
    transactions: TransactionData | None = None,
) -> Buffer | None:
    """What is left of a batch: itself, a shorter one, a bare header, or None for nothing.

    `last_offsets` has the ends of the batches by which each known producer is known. Without
    `transactions` end markers stay.
    """
    ends_nothing = transactions is not None and transactions.note(header)
    if header.base_offset >= keys.end_offset:
        return batch
    if header.is_control:
        if transactions is None or not ends_nothing or ends_segment or transactions.fences(header):
            return batch
        return _compact_marker(batch, header, terms)
    must_stay = ends_segment or header.last_offset in last_offsets.get(header.producer_id, ())
    if not header.record_count or aborted.holds(header):
        return _bare(batch, header) if must_stay else None
    payload = _require_payload(batch, header, terms.limit_bytes)
    is_marked = bool(header.attributes & DELETE_HORIZON_FLAG)
    horizon_ms = None if is_marked else _horizon_of(terms)
    count, max_timestamp, sets_horizon, content = keys.latest.select(
        payload,
        header.record_count,
        header.base_offset,
        header.base_timestamp,
        keys.end_offset,
        is_past_horizon(header, terms),
        horizon_ms,
    )
    if not count:
        return _bare(batch, header) if must_stay else None
    if content is None:
        return batch
    return _rebuild(
        batch,
        header,
        content,
        record_count=count,
        max_timestamp=max_timestamp,
        horizon_ms=horizon_ms if sets_horizon else None,
    )


def is_past_horizon(header: BatchHeader, terms: CompactionTerms) -> bool:
    """Whether tombstones and markers of a batch have been kept for as long as they had to."""
    is_marked = bool(header.attributes & DELETE_HORIZON_FLAG)
    return is_marked and terms.now_ms >= header.base_timestamp


def _horizon_of(terms: CompactionTerms) -> int:
    """Until when tombstones and markers stay that are kept for the first time."""
    return min(terms.now_ms + terms.delete_retention_ms, _MAX_TIMESTAMP_MS)


def _compact_marker(batch: Buffer, header: BatchHeader, terms: CompactionTerms) -> Buffer | None:
    """An end marker of which nobody needs to hear once every reader has had the time to."""
    if header.attributes & DELETE_HORIZON_FLAG:
        return batch if terms.now_ms < header.base_timestamp else None
    payload = _require_payload(batch, header, terms.limit_bytes)
    horizon_ms = _horizon_of(terms)
    return _rebuild(
        batch,
        header,
        shift_timestamps(payload, header.record_count, header.base_timestamp - horizon_ms),
        record_count=header.record_count,
        max_timestamp=header.max_timestamp,
        horizon_ms=horizon_ms,
    )


def _bare(batch: Buffer, header: BatchHeader) -> Buffer:
    """The header of a batch without records, as Kafka writes it."""
    if not header.record_count and header.size_bytes == HEADER_BYTES:
        return batch
    return _assemble(
        batch,
        header,
        b"",
        attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON_FLAG),
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=header.max_timestamp,
        record_count=0,
    )


def _rebuild(
    batch: Buffer,
    header: BatchHeader,
    content: bytes,
    *,
    record_count: int,
    max_timestamp: int,
    horizon_ms: int | None,
) -> bytearray:
    """The batch with the records that stay, at their offsets, and a new horizon if there is one."""
    codec = Codec.require(header.codec)
    return _assemble(
        batch,
        header,
        content if codec is Codec.NONE else compress(codec, content),
        attributes=header.attributes | (0 if horizon_ms is None else DELETE_HORIZON_FLAG),
        base_timestamp=header.base_timestamp if horizon_ms is None else horizon_ms,
        max_timestamp=header.max_timestamp if header.is_log_append_time else max_timestamp,
        record_count=record_count,
    )


def _assemble(
    batch: Buffer,
    header: BatchHeader,
    content: bytes,
    *,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    record_count: int,
) -> bytearray:
    """A batch with the offsets, the leader epoch and the producer of another."""
    made = bytearray(HEADER_BYTES + len(content))
    made[:HEADER_BYTES] = memoryview(batch)[:HEADER_BYTES]
    made[HEADER_BYTES:] = content
    _LENGTH.pack_into(made, LENGTH_AT, len(made) - LOG_OVERHEAD_BYTES)
    _AFTER_CRC.pack_into(
        made,
        ATTRIBUTES_AT,
        attributes,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        record_count,
    )
    write_crc(made)
    return made


def _require_payload(batch: Buffer, header: BatchHeader, limit_bytes: int) -> Buffer:
    """The records of a batch that is what its producer sent: damage must not get a new CRC."""
    if not crc_matches(batch, header):
        raise CorruptBatchError(f"the batch at offset {header.base_offset} fails its CRC")
    return payload_of(batch, header, limit_bytes)
