"""Arrow tables on their way into batches: `send_arrow`. A shell around `intake`.

Columns go into batches as they are, unless a serializer, an interceptor or a partitioner of the
program's looks at each record. Imported when it is called: the core does without pyarrow.
"""

from __future__ import annotations

from moldau.client.batch_promises import Placed
from moldau.client.intake import Intake, Waiting


async def put_arrow(
    intake: Intake,
    waiting: Waiting,
    topic: str,
    table: object,
    partition: int | None,
    timestamp_ms: int | None,
) -> list[Placed]:
    """Put the rows of a table into batches, piece by piece, waiting as often as it takes."""
    from moldau.arrow.outgoing import find_bounds, require_value, to_batches, to_encoder, to_rows

    placed: list[Placed] = []
    for piece in to_batches(table):
        require_value(piece)
        bounds = find_bounds(piece) if partition is None else None
        if bounds is not None:
            await intake.require_target(topic, bounds.highest, waiting)
            await intake.require_target(topic, bounds.lowest, waiting)
        if intake.takes_columns:
            columns = to_encoder(piece, intake.timestamp_for(timestamp_ms))
            placed += await intake.put_columns(waiting, topic, columns, partition)
            continue
        keep_keys, keep_values = intake.serializes
        for named, rows in to_rows(
            piece,
            keep_keys=keep_keys,
            keep_values=keep_values,
            ignores_partitions=partition is not None,
        ):
            where = named if partition is None else partition
            placed += await intake.put_many(waiting, topic, rows, None, where, timestamp_ms, ())
    return placed
