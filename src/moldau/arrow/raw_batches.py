"""From batches as brokers send them to Arrow: unpacked, decoded and wrapped, no record in Python.

What the consumer's `poll_arrow`, `read_table` and the Spark source stand on. A rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from moldau.arrow.columns import Run, TimestampUnit, choose_schema, to_record_batch
from moldau.model import TopicPartition
from moldau.records.batch_header import TIMESTAMP_TYPE_FLAG, BatchHeader, Buffer
from moldau.records.codec import decode_columns
from moldau.records.columns import ColumnSource, source_of
from moldau.records.record_batch import payload_of

TARGET_BYTES = 16 * 1024 * 1024
"""Of unpacked records in one RecordBatch: batches are added until there are so many."""


class BatchBytes(Protocol):
    """A whole batch as it was stored, its CRC checked, and which of its records are meant."""

    @property
    def partition(self) -> TopicPartition: ...
    @property
    def data(self) -> Buffer: ...
    @property
    def header(self) -> BatchHeader: ...
    @property
    def from_offset(self) -> int:
        """Records before it are left out."""

    @property
    def next_offset(self) -> int:
        """Records at and after it are left out."""


def batches_to_table(
    batches: Iterable[BatchBytes],
    *,
    columns: Sequence[str] | None = None,
    timestamp_unit: TimestampUnit = "ms",
) -> pa.Table:
    """All records of the batches, in their order."""
    schema = choose_schema(columns, timestamp_unit)
    return to_table(to_record_batches(batches, schema), schema)


def to_table(pieces: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """One table of many pieces, without a copy; of none, an empty one."""
    return pa.Table.from_batches(pieces, schema)


def to_record_batches(
    batches: Iterable[BatchBytes], schema: pa.Schema, target_bytes: int = TARGET_BYTES
) -> Iterator[pa.RecordBatch]:
    """The records of the batches, unpacked piece by piece; the columns are the schema's."""
    held: list[BatchBytes] = []
    sources: list[ColumnSource] = []
    held_bytes = 0
    for batch in batches:
        payload = payload_of(batch.data, batch.header)
        held.append(batch)
        sources.append(source_of(batch.header, payload, batch.from_offset, batch.next_offset))
        held_bytes += len(payload)
        if held_bytes >= target_bytes:
            yield from _decode(held, sources, schema)
            held, sources, held_bytes = [], [], 0
    yield from _decode(held, sources, schema)


def _decode(
    batches: Sequence[BatchBytes], sources: Sequence[ColumnSource], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """One RecordBatch, or none where there is no record."""
    if not sources:
        return
    wanted = schema.names
    columns = decode_columns(
        sources,
        keys="key" in wanted,
        values="value" in wanted,
        headers="headers" in wanted,
        microseconds="timestamp" in wanted and schema.field("timestamp").type.unit == "us",
    )
    if not columns.row_count:
        return
    yield to_record_batch(columns, _find_runs(batches, columns.source_rows), schema)


def _find_runs(batches: Sequence[BatchBytes], rows_of_each: Sequence[int]) -> list[Run]:
    """Neighbours that differ in nothing but their offsets make one run."""
    runs: list[Run] = []
    last: tuple[TopicPartition, int] | None = None
    count = 0
    for batch, rows in zip(batches, rows_of_each, strict=True):
        shared = batch.partition, batch.header.attributes & TIMESTAMP_TYPE_FLAG
        if shared != last:
            if last is not None:
                runs.append(_run(last, count))
            last, count = shared, 0
        count += rows
    if last is not None:
        runs.append(_run(last, count))
    return runs


def _run(shared: tuple[TopicPartition, int], rows: int) -> Run:
    partition, timestamp_flag = shared
    return Run(partition.topic, partition.partition, int(bool(timestamp_flag)), rows)
