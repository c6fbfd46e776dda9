"""A Spark data source that gives the same Arrow batch over and over: the ceiling of the API.

What it reaches, Spark's Python data sources can reach at all: a worker that does nothing but write
batches to the JVM, and a JVM that takes them. Written to, it drops what it is given: a JVM that
gives batches, and a worker that does nothing but take them. Imported by Spark's workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

from moldau.spark.columns import arrow_schema, source_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class PrebuiltSource(DataSource):
    """Options: tasks, batches (of each task), rows (of each batch), bytes (of each value)."""

    @classmethod
    def name(cls) -> str:
        return "prebuilt"

    def schema(self) -> StructType:
        return source_schema(include_headers=False)

    def reader(self, schema: StructType) -> DataSourceReader:
        numbers = (int(self.options[name]) for name in ("tasks", "batches", "rows", "bytes"))
        return PrebuiltReader(schema, *numbers)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return DroppingWriter()


class PrebuiltReader(DataSourceReader):
    """Builds one batch in each task and gives it many times."""

    def __init__(
        self, schema: StructType, tasks: int, batches: int, rows: int, value_bytes: int
    ) -> None:
        self._schema = schema
        self._tasks = tasks
        self._batches = batches
        self._rows = rows
        self._value_bytes = value_bytes

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = self._build(partition.value)
        for _ in range(self._batches):
            yield batch

    def _build(self, partition: int) -> pa.RecordBatch:
        import pyarrow as pa

        rows = self._rows
        columns = [
            pa.array([None] * rows, pa.binary()),
            pa.array([b"x" * self._value_bytes] * rows, pa.binary()),
            pa.array(["topic"] * rows, pa.string()),
            pa.array([partition] * rows, pa.int32()),
            pa.array(range(rows), pa.int64()),
            pa.array([0] * rows, pa.timestamp("us", tz="UTC")),
            pa.array([0] * rows, pa.int32()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(self._schema))


class DroppingWriter(DataSourceArrowWriter):
    """Takes every batch and keeps none."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()
