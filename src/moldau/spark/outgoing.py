"""From the Arrow batches of a task to what the producer's `send_arrow` takes. A rule.

Rows that name different topics are parted, each part in the order of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from moldau.spark.rules.write_columns import WriteColumns, refuse_null_topic


class Outgoing(NamedTuple):
    """Rows that go to the same topic, and of their columns those that are written."""

    topic: str
    rows: pa.RecordBatch


def to_outgoing(batch: pa.RecordBatch, columns: WriteColumns) -> Iterator[Outgoing]:
    """The rows of a batch, parted by topic."""
    if not batch.num_rows:
        return
    written = batch.select(columns.written)
    if columns.topic is not None:
        yield Outgoing(columns.topic, written)
        return
    topics = batch.column("topic")
    refuse_null_topic(topics.null_count)
    found = pc.unique(topics).to_pylist()
    for topic in found:
        rows = written if len(found) == 1 else written.filter(pc.equal(topics, topic))
        yield Outgoing(topic, rows)
