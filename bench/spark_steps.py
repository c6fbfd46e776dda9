"""What a task of Moldau's source does, step by step in this process, without Spark.

Fetching alone, fetching and decoding as a task does it, decoding alone, and an Arrow stream through
a socket to somebody who drops it. CPU is that of this process, all threads.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from bench.measure import (
    CPU_US_PER_REQUEST,
    MB_PER_SECOND,
    REQUESTS_PER_SECOND,
    Measured,
    least,
    most,
    take_turns,
)
from bench.processes import ServerProcess
from bench.report import Table
from bench.scale import MIB
from bench.throughput import record_name

if TYPE_CHECKING:
    import pyarrow as pa

    from moldau.client.consumer.rules.fetch_buffer import RawBatch
    from moldau.spark.options import SourceOptions
    from moldau.spark.rules.offset_ranges import PartitionRange

_LARGE_FETCH_BYTES = 8 * MIB
_SOCKET_BUFFER_BYTES = 1 << 16  # as Spark's workers have
_DRAIN_BYTES = 1 << 20


def make_table() -> Table:
    return Table(
        title="The steps of a task, in one process without Spark",
        columns=("records", "step", "M rows/s", "MB/s", "CPU s/M rows"),
        note="CPU of this process, both ends of the socket included; the broker's is not.",
    )


def add_steps(
    table: Table, broker: ServerProcess, topic: str, record_bytes: int, rounds: int
) -> None:
    """Measure all steps with the rows of a topic."""
    from moldau.spark.worker import close_clients

    try:
        subjects = _subjects(broker, topic, record_bytes)
        for step, found in take_turns(rounds, subjects).items():
            rows = most(found, REQUESTS_PER_SECOND) / 1e6
            speed, cpu = most(found, MB_PER_SECOND), least(found, CPU_US_PER_REQUEST)
            table.add(record_name(record_bytes), step, rows, speed, cpu)
    finally:
        close_clients()


def _subjects(
    broker: ServerProcess, topic: str, record_bytes: int
) -> dict[str, Callable[[], Measured]]:
    from moldau.spark.columns import arrow_schema, source_schema

    schema = arrow_schema(source_schema(include_headers=False))
    options = _options(broker, topic)
    large = _options(broker, topic, **{"kafka.max.partition.fetch.bytes": str(_LARGE_FETCH_BYTES)})
    ranges = _find_ranges(options)
    fetched = [answer for one in ranges for answer in _fetch(options, one)]
    steps: dict[str, Callable[[], object]] = {
        "fetch": lambda: [len(answer) for one in ranges for answer in _fetch(options, one)],
        "fetch and decode": partial(_read, options, ranges, schema),
        "the same, 8 MiB at a time": partial(_read, large, ranges, schema),
        "decode": partial(_decode, fetched, schema),
        "Arrow through a socket": partial(_send, list(_decoded(fetched, schema)), schema),
    }
    rows = sum(one.size for one in ranges)
    return {name: partial(_time, step, rows, record_bytes) for name, step in steps.items()}


def _time(step: Callable[[], object], rows: int, record_bytes: int) -> Measured:
    cpu_before, before = time.process_time(), time.perf_counter()
    step()
    after, cpu_after = time.perf_counter(), time.process_time()
    return Measured(after - before, cpu_after - cpu_before, rows, rows * record_bytes)


def _options(broker: ServerProcess, topic: str, **more: str) -> SourceOptions:
    from moldau.spark.options import SourceOptions

    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, **more}
    return SourceOptions.read(given)


def _find_ranges(options: SourceOptions) -> Sequence[PartitionRange]:
    from moldau.spark.offset_reader import OffsetReader
    from moldau.spark.rules.offset_ranges import ranges_between

    view = OffsetReader(options)
    partitions = view.require_partitions().partitions
    return ranges_between(view.find_earliest(partitions), view.find_latest(partitions))


def _fetch(options: SourceOptions, wanted: PartitionRange) -> Iterator[Sequence[RawBatch]]:
    from moldau.client.range_fetch import RangeReader
    from moldau.client.rules.offsets import OffsetRange
    from moldau.spark.fetching import range_settings
    from moldau.spark.worker import open_client

    client = open_client(options)
    ranges = {wanted.partition: OffsetRange(wanted.start_offset, wanted.end_offset)}

    async def make_reader() -> RangeReader:
        return RangeReader(
            client.cluster, ranges, range_settings(options.client, skip_deleted=False)
        )

    reader = client.run(make_reader())
    try:
        while batches := client.run(reader.take_batches()):
            yield batches
    finally:
        client.run(reader.close())


def _read(options: SourceOptions, ranges: Sequence[PartitionRange], schema: pa.Schema) -> None:
    from moldau.spark.fetching import read_task

    for one in ranges:
        for _ in read_task(options, (one,), schema):
            pass


def _decoded(fetched: Sequence[Sequence[RawBatch]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    from moldau.arrow.columns import choose_schema
    from moldau.arrow.raw_batches import to_record_batches
    from moldau.spark.fetching import fit_schema, gather_batches

    ours = choose_schema(schema.names, "us")
    for batches in gather_batches(fetched):
        for batch in to_record_batches(batches, ours):
            yield fit_schema(batch, schema)


def _decode(fetched: Sequence[Sequence[RawBatch]], schema: pa.Schema) -> None:
    for _ in _decoded(fetched, schema):
        pass


def _send(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> None:
    import pyarrow as pa

    near, far = socket.socketpair()
    drain = threading.Thread(target=_drain, args=(far,), name="drain")
    drain.start()
    with closing(near), near.makefile("wb", _SOCKET_BUFFER_BYTES) as file:
        with pa.ipc.new_stream(file, schema) as stream:
            for batch in batches:
                stream.write_batch(batch)
        file.flush()
        near.shutdown(socket.SHUT_WR)
    drain.join()


def _drain(end: socket.socket) -> None:
    buffer = bytearray(_DRAIN_BYTES)
    with end:
        while end.recv_into(buffer):
            pass
