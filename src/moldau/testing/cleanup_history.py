"""What may rightly be gone from the topics of a simulated cluster, and what must be there. A rule.

From a compacted partition a record goes when a later one has its key; a tombstone stays as long as
`delete.retention.ms` says, which is longer than a run. From a trimmed one goes what lies before
the log's start, which moves by DeleteRecords and by retention only. Everything else that was
acknowledged is there, and equal on all replicas:

- the last acknowledged value of a key is there, or a later one (REP-3);
- a record that is not there was replaced by a later one of its key, in the same log (LOG-6);
- replicas of a compacted partition have the same last value of each key, and the same record
  wherever both have one (REP-2); those of a trimmed one are equal from where both begin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from moldau.errors import MoldauError
from moldau.model import TopicPartition
from moldau.records.batch_header import read_header
from moldau.records.record_batch import ControlType, find_control_type, records_of
from moldau.testing.cluster_history import ClusterHistory, StoredBatch


class KeyedRecord(NamedTuple):
    """A record of a compacted log."""

    offset: int
    leader_epoch: int
    key: bytes
    value: bytes | None


@dataclass(slots=True)
class _Trimming:
    retention_bytes: int | None  # None: retention goes by time, and clocks jump
    deleted_before: int = 0  # the highest offset that DeleteRecords was asked for


@dataclass(slots=True)
class CleanupHistory:
    """What was told of such topics. One for each run."""

    history: ClusterHistory
    keyed: dict[TopicPartition, dict[int, tuple[bytes, bytes | None]]] = field(default_factory=dict)
    """Acknowledged key and value by offset."""
    trimmed: dict[TopicPartition, _Trimming] = field(default_factory=dict)

    # Told by clients

    def begin_keyed(self, partition: TopicPartition) -> None:
        self.keyed[partition] = {}

    def begin_trimmed(self, partition: TopicPartition, retention_bytes: int | None) -> None:
        self.trimmed[partition] = _Trimming(retention_bytes)

    def acknowledge(
        self,
        partition: TopicPartition,
        base_offset: int,
        rows: Sequence[tuple[bytes, bytes | None]],
    ) -> None:
        """A produce request with acks=all was answered without an error."""
        self.keyed[partition].update(enumerate(rows, base_offset))

    def _acknowledged(self, partition: TopicPartition) -> dict[int, tuple[bytes, bytes | None]]:
        """Without what was forgiven after a power loss of all machines."""
        keyed = self.keyed[partition]
        for offset in [each for each in keyed if not self._is_promised(partition, each)]:
            del keyed[offset]
        return keyed

    def _is_promised(self, partition: TopicPartition, offset: int) -> bool:
        return self.history.is_acknowledged(partition, offset)

    def see(self, partition: TopicPartition, offset: int, key: bytes, value: bytes | None) -> None:
        """A consumer read a record of a compacted partition."""
        known = self._acknowledged(partition).get(offset)
        if known not in (None, (key, value)):
            self.history.report(
                "REP-3", f"{partition}@{offset} was acknowledged as {known!r} and reads {value!r}"
            )

    def ask_deletion(self, partition: TopicPartition, before: int) -> None:
        """DeleteRecords is asked for; it may be done whatever is answered."""
        trimming = self.trimmed[partition]
        trimming.deleted_before = max(trimming.deleted_before, before)

    # At the end

    def check_keyed(
        self, partition: TopicPartition, replica: str, batches: Sequence[StoredBatch]
    ) -> None:
        """The log of a replica has all that was acknowledged and not replaced since."""
        records = read_records(batches)
        found = {record.offset: record for record in records}
        last = {record.key: record.offset for record in records}
        for offset, (key, value) in self._acknowledged(partition).items():
            record = found.get(offset)
            if record is not None and (record.key, record.value) != (key, value):
                self.history.report(
                    "REP-3",
                    f"{partition}@{offset} was acknowledged as {key!r}: {value!r}; {replica} has "
                    f"{record.key!r}: {record.value!r}",
                )
            if record is None and last.get(key, -1) < offset:
                self.history.report(
                    "REP-3",
                    f"{partition}@{offset}, {key!r}: {value!r}, was acknowledged; {replica} has "
                    f"neither it nor a later one of its key, the last is at {last.get(key)}",
                )

    def check_start(
        self, partition: TopicPartition, replica: str, log_start_offset: int, size_bytes: int
    ) -> None:
        """A trimmed log begins where somebody asked for it, or keeps what it has to keep.

        After a power loss of all machines, what it kept may be gone with its end.
        """
        trimming = self.trimmed[partition]
        if self.history.kept_end(partition) is not None:
            return
        if log_start_offset <= trimming.deleted_before or trimming.retention_bytes is None:
            return
        if size_bytes < trimming.retention_bytes:
            self.history.report(
                "LOG-12",
                f"{partition} starts at {log_start_offset} on {replica} and has {size_bytes} bytes "
                f"left; retention keeps {trimming.retention_bytes}, and nobody asked to delete "
                f"more than what lies before {trimming.deleted_before}",
            )

    def check_equal_tables(
        self, partition: TopicPartition, logs: Mapping[str, Sequence[StoredBatch]], end: int
    ) -> None:
        """Replicas of a compacted partition mean the same below an offset."""
        known: dict[int, tuple[str, KeyedRecord]] = {}
        first: tuple[str, dict[bytes, KeyedRecord]] | None = None
        for replica, batches in logs.items():
            below = [record for record in read_records(batches) if record.offset < end]
            for record in below:
                other, former = known.setdefault(record.offset, (replica, record))
                if former != record:
                    self.history.report(
                        "REP-2", f"{replica} and {other} differ in {partition}@{record.offset}"
                    )
            table = {record.key: record for record in below}
            if first is None:
                first = replica, table
            elif table != first[1]:
                differing = sorted(
                    key for key in table.keys() | first[1] if table.get(key) != first[1].get(key)
                )
                self.history.report(
                    "REP-2",
                    f"{replica} and {first[0]} have other last values in {partition} below {end}: "
                    f"{[(key, table.get(key), first[1].get(key)) for key in differing[:3]]}",
                )


def read_records(batches: Sequence[StoredBatch]) -> list[KeyedRecord]:
    """The records with keys, in order; control records, what is no record, and records of aborted
    transactions are left out: compaction drops the last at once, on each replica in its time."""
    found: dict[int, KeyedRecord] = {}
    undecided: dict[int, list[int]] = {}  # offsets by producer id
    for batch in batches:
        header = read_header(batch.content)
        try:
            for record in records_of(batch.content, header):
                if header.is_control:
                    offsets = undecided.pop(header.producer_id, ())
                    if find_control_type(record.key) is ControlType.ABORT:
                        for offset in offsets:
                            found.pop(offset, None)
                elif record.key is not None:
                    value = None if record.value is None else bytes(record.value)
                    found[record.offset] = KeyedRecord(
                        record.offset, batch.leader_epoch, bytes(record.key), value
                    )
                    if header.is_transactional:
                        undecided.setdefault(header.producer_id, []).append(record.offset)
        except MoldauError:
            continue
    return list(found.values())


def one_by_one(batches: Sequence[StoredBatch]) -> list[StoredBatch]:
    """Each record of a compacted log as if it were a batch: compaction makes other batches of the
    same records, so that only records can be compared."""
    return [
        StoredBatch(each.offset, each.offset + 1, each.leader_epoch, repr(each[2:]).encode())
        for each in read_records(batches)
    ]


def from_common_start(
    logs: Mapping[str, Sequence[StoredBatch]],
) -> dict[str, Sequence[StoredBatch]]:
    """The logs of trimmed replicas, from where all of them begin: each trims its own."""
    start = max((log[0].base_offset for log in logs.values() if log), default=0)
    return {
        replica: [batch for batch in log if batch.base_offset >= start]
        for replica, log in logs.items()
    }
