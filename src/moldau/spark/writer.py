"""DataFrames into topics, batch and streaming: at least once, Arrow all the way to the producer.
Streams also exactly once (`exactly_once`).

A task is over when the broker has confirmed every row of it, so that a batch that Spark commits is
in the log. The producer is idempotent: what it sends again is not written twice. A task that Spark
runs again writes its rows again. A shell; `columns` says what may be written.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)

from moldau.errors import ConfigurationError
from moldau.spark.columns import WriteColumns, find_write_columns, refuse_null_topic
from moldau.spark.options import WriteOptions, read_write_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from moldau.client.blocking import Producer
    from moldau.client.producer.produce_result import ManyFuture


try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # Spark 4.0: any writer that is an Arrow writer as well is given Arrow batches

    class DataSourceStreamArrowWriter(  # type: ignore[no-redef, misc]
        DataSourceStreamWriter, DataSourceArrowWriter
    ):
        """What Spark 4.1 calls by this name."""


_log = logging.getLogger("moldau.spark")


@dataclass(frozen=True, slots=True)
class WrittenRows(WriterCommitMessage):
    """What a task tells the driver."""

    row_count: int


def make_batch_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceArrowWriter:
    """The writer of `frame.write.format("moldau")`; raises ConfigurationError."""
    if overwrite:
        raise ConfigurationError(
            'a topic cannot be overwritten, only added to: use .mode("append"); to empty it first, '
            "delete its records or the topic"
        )
    read, columns = _read_options(options, schema)
    if read.exactly_once:
        raise ConfigurationError(
            "exactlyOnce=true is for streams (writeStream): only they have batches that Spark "
            "numbers, and repeats under the same number; leave it out, and every row is written at "
            "least once"
        )
    return _BatchTopicWriter(read, columns)


def make_stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """The writer of `frame.writeStream.format("moldau")`; raises ConfigurationError.

    `overwrite` is how Spark announces the output mode "complete": the whole result is appended
    with every batch, as Spark's own Kafka sink does.
    """
    read, columns = _read_options(options, schema)
    return (_ExactlyOnceWriter if read.exactly_once else _StreamTopicWriter)(read, columns)


def _read_options(
    options: Mapping[str, str], schema: StructType
) -> tuple[WriteOptions, WriteColumns]:
    read = read_write_options(options)
    for name in read.unknown:
        _log.warning("kafka.%s is not an option of Moldau's producer and has no effect", name)
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    return read, find_write_columns(types, read.topic)


class _TopicWriter:
    """Pickled to the tasks, with nothing in it but values."""

    def __init__(self, options: WriteOptions, columns: WriteColumns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_rows(iterator, self._options, self._columns)


class _BatchTopicWriter(_TopicWriter, DataSourceArrowWriter):
    """Spark calls `write` in each task."""


class _StreamTopicWriter(_TopicWriter, DataSourceStreamArrowWriter):
    """The same for each batch of a stream."""


class _ExactlyOnceWriter(_StreamTopicWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from moldau.spark.exactly_once import prepare_rows

        columns = self._columns
        return prepare_rows(
            iterator, self._options, lambda producer, rows: _send_all(producer, rows, columns)
        )

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        from moldau.spark.exactly_once import commit_batch

        commit_batch(messages, batchId, self._options)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        from moldau.spark.exactly_once import abort_batch

        abort_batch(messages, batchId, self._options)


def write_rows(
    batches: Iterator[pa.RecordBatch], options: WriteOptions, columns: WriteColumns
) -> WrittenRows:
    """Write the rows of one task, and wait until the broker has confirmed them all."""
    from moldau.spark.worker import discard_producer, freeze_once, open_producer

    try:
        row_count = _send_all(open_producer(options), batches, columns)
    except BaseException:
        # Rows of this task may still be under way: a new producer knows nothing of them.
        discard_producer(options)
        raise
    freeze_once()
    return WrittenRows(row_count)


def _send_all(producer: Producer, batches: Iterator[pa.RecordBatch], columns: WriteColumns) -> int:
    row_count = 0
    unconfirmed: deque[ManyFuture] = deque()
    for batch in batches:
        for topic, rows in split_by_topic(batch, columns):
            unconfirmed.append(producer.send_arrow(topic, rows))
        while unconfirmed and unconfirmed[0].done():  # what failed ends the task now, not later
            unconfirmed.popleft().result()
        row_count += batch.num_rows
    for future in unconfirmed:
        future.result()
    return row_count


class TopicRows(NamedTuple):
    """Rows that go to the same topic, and of their columns those that are written."""

    topic: str
    rows: pa.RecordBatch


def split_by_topic(batch: pa.RecordBatch, columns: WriteColumns) -> Iterator[TopicRows]:
    """The rows of a batch by topic, each part in the order of the rows."""
    import pyarrow.compute as pc  # not where a write is planned

    if not batch.num_rows:
        return
    written = batch.select(columns.written)
    if columns.topic is not None:
        yield TopicRows(columns.topic, written)
        return
    topics = batch.column("topic")
    refuse_null_topic(topics.null_count)
    found = pc.unique(topics).to_pylist()
    for topic in found:
        rows = written if len(found) == 1 else written.filter(pc.equal(topics, topic))
        yield TopicRows(topic, rows)
