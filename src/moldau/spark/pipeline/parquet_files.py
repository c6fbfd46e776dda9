"""Looks into Parquet files, and merges them, by pyarrow in the driver. A shell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

_ROW_GROUP_BYTES = 64 * 1024 * 1024
_READ_ROWS = 64 * 1024


def count_rows(path: Path) -> int:
    """How many rows a file has, by its footer."""
    return int(pq.read_metadata(path).num_rows)


def read_columns(path: Path) -> pa.Schema:
    """The columns of a file, without what Spark notes about them: it would outlive its truth."""
    return pq.read_schema(path).remove_metadata()


def write_columns(schema: pa.Schema, path: Path) -> None:
    """Note the columns of many files in one that has no rows."""
    temporary = path.with_name(f"{path.name}.new")
    pq.write_metadata(schema, temporary)
    temporary.replace(path)


def merge_files(paths: Sequence[Path], target: Path) -> int:
    """Write the rows of several files into one, in their order; how many rows there are.

    The columns are those of all of them; where a file lacks one, its rows have null.
    """
    schema = pa.unify_schemas([read_columns(path) for path in paths])
    target.parent.mkdir(parents=True, exist_ok=True)
    row_count = 0
    with pq.ParquetWriter(target, schema, compression=_find_compression(paths[0])) as writer:
        for table in _gather(_read(paths, schema), schema):
            writer.write_table(table)
            row_count += table.num_rows
    return row_count


def _read(paths: Iterable[Path], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for path in paths:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_READ_ROWS):
                yield _conform(batch, schema)


def _conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [
        batch.column(field.name)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _gather(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Tables large enough to be row groups."""
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        held.append(batch)
        held_bytes += batch.nbytes
        if held_bytes >= _ROW_GROUP_BYTES:
            yield pa.Table.from_batches(held, schema)
            held, held_bytes = [], 0
    if held:
        yield pa.Table.from_batches(held, schema)


def _find_compression(path: Path) -> str:
    """The codec of the first column chunk, as pyarrow names it when it writes."""
    metadata = pq.read_metadata(path)
    if not metadata.num_row_groups or not metadata.num_columns:
        return "snappy"
    codec = str(metadata.row_group(0).column(0).compression).lower()
    return "none" if codec == "uncompressed" else codec
