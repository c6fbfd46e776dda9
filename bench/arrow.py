"""Topics as Arrow tables: what decoding costs, and `read_table` beside confluent-kafka.

Decoding is measured in memory: straight to columns, with the native codec and with its twin, and
to a Python object for each record. Reading is measured over loopback from a broker in a process of
its own; confluent-kafka's `consume()` gives Message objects, and a table is then made of these.
"""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import moldau
from bench.frames import Batch, make_batch, produce
from bench.measure import (
    CPU_PER_GB,
    MB_PER_SECOND,
    REQUESTS_PER_SECOND,
    Measured,
    least,
    most,
    take_turns,
)
from bench.processes import ServerProcess, running_broker
from bench.raw_client import RawClient
from bench.report import Outcome, Table
from bench.scale import Scale
from bench.throughput import KIB, PRODUCE_IN_FLIGHT, record_name, size_name
from moldau.records.batch_header import read_header
from moldau.records.codec import RecordCodec
from moldau.records.columns import ColumnSource, source_of
from moldau.records.record_batch import payload_of

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Consumer, Message

_RECORD_SIZES = (100, 1 * KIB)
_BATCH_SIZES = (16 * KIB, 128 * KIB)
_DECODED_BYTES = 4 << 20
_PURE_SHARE = 16
"""The twin is this much slower or more, so it gets fewer bytes."""
_PARTITIONS = 4
_TOPIC = "table"
_CONSUMED_AT_ONCE = 10_000
_POLL_SECONDS = 10.0

_quiet = logging.getLogger("bench.arrow")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


def run(scale: Scale) -> Outcome:
    try:
        import confluent_kafka  # noqa: F401
        import pyarrow  # noqa: F401
    except ImportError as error:
        note = f"{error.name} is not installed: pip install confluent-kafka 'moldau[arrow]'"
        return Outcome(tables=[Table(title="Arrow: skipped", columns=("why",), rows=[(note,)])])
    return Outcome(tables=[_measure_decoding(scale), _measure_reading(scale)])


# --- decoding, in memory ----------------------------------------------------------------------


def _measure_decoding(scale: Scale) -> Table:
    table = Table(
        title=f"Decoding {size_name(_DECODED_BYTES)} of records in memory",
        columns=("records", "batch", "how", "M rows/s", "MB/s", "against objects"),
        note="columns: the buffers of Arrow arrays, all of them. objects: a Record for each.",
    )
    native = _find_codec("native")
    pure = _find_codec("pure")
    for record_bytes in _RECORD_SIZES:
        for batch_bytes in _BATCH_SIZES:
            batch = make_batch(batch_bytes, record_bytes)
            many = _sources(batch, _DECODED_BYTES)
            few = _sources(batch, _DECODED_BYTES // _PURE_SHARE)
            subjects = {}
            if native is not None:
                subjects["columns"] = _rounds_of_columns(native, many, batch)
                subjects["objects"] = _rounds_of_objects(native, many, batch)
            if pure is not None:
                subjects["columns, pure"] = _rounds_of_columns(pure, few, batch)
                subjects["objects, pure"] = _rounds_of_objects(pure, few, batch)
            found = take_turns(4 * scale.rounds, subjects)
            objects = most(found["objects" if native else "objects, pure"], MB_PER_SECOND)
            for how, rounds in found.items():
                rows = most(rounds, REQUESTS_PER_SECOND) / 1e6
                speed = most(rounds, MB_PER_SECOND)
                names = record_name(record_bytes), size_name(batch_bytes)
                table.add(*names, how, rows, speed, speed / objects)
    return table


def _find_codec(name: str) -> RecordCodec | None:
    try:
        codec: RecordCodec = importlib.import_module(f"moldau.records._codec_{name}")
    except ImportError:
        return None
    return codec


def _sources(batch: Batch, total_bytes: int) -> list[ColumnSource]:
    header = read_header(batch.data)
    payload = payload_of(batch.data, header)
    return [source_of(header, payload)] * max(1, total_bytes // len(batch.data))


def _rounds_of_columns(
    codec: RecordCodec, sources: list[ColumnSource], batch: Batch
) -> Callable[[], Measured]:
    return _timed(lambda: codec.decode_columns(sources), len(sources) * batch.record_count, batch)


def _rounds_of_objects(
    codec: RecordCodec, sources: list[ColumnSource], batch: Batch
) -> Callable[[], Measured]:
    def decode() -> object:
        return [codec.decode_records(*source[:5]) for source in sources]

    return _timed(decode, len(sources) * batch.record_count, batch)


def _timed(work: Callable[[], object], rows: int, batch: Batch) -> Callable[[], Measured]:
    def run_round() -> Measured:
        cpu_before, before = time.process_time(), time.perf_counter()
        kept = work()
        after, cpu_after = time.perf_counter(), time.process_time()
        del kept  # freeing is not what is measured
        return Measured(after - before, cpu_after - cpu_before, rows, rows * batch.record_bytes)

    return run_round


# --- reading, over loopback -------------------------------------------------------------------


def _measure_reading(scale: Scale) -> Table:
    table = Table(
        title=f"Reading a topic of {_PARTITIONS} partitions, no compression",
        columns=(
            "records",
            "batch",
            "reader",
            "M rows/s",
            "MB/s",
            "client CPU s/GB",
            "against consume()",
        ),
        note="Client CPU: all threads of the reading process, librdkafka's own included.",
    )
    for record_bytes in _RECORD_SIZES:
        for batch_bytes in _BATCH_SIZES:
            batch = make_batch(batch_bytes, record_bytes)
            with running_broker() as broker:
                rows = _fill(broker, batch, scale.client_bytes)
                found = take_turns(scale.rounds, _readers(broker, batch, rows))
            plain = most(found["consume()"], MB_PER_SECOND)
            for reader, rounds in found.items():
                speed = most(rounds, MB_PER_SECOND)
                table.add(
                    record_name(record_bytes),
                    size_name(batch_bytes),
                    reader,
                    most(rounds, REQUESTS_PER_SECOND) / 1e6,
                    speed,
                    least(rounds, CPU_PER_GB),
                    speed / plain,
                )
    return table


def _fill(broker: ServerProcess, batch: Batch, total_bytes: int) -> int:
    """How many rows the topic has then."""
    count = max(1, total_bytes // _PARTITIONS // len(batch.data))
    with RawClient(broker) as client:
        client.create_topic(_TOPIC, partitions=_PARTITIONS)
        for partition in range(_PARTITIONS):
            prepared = produce(_TOPIC, batch, partition=partition)
            client.repeat(prepared, count, PRODUCE_IN_FLIGHT)
    return _PARTITIONS * count * batch.record_count


def _readers(broker: ServerProcess, batch: Batch, rows: int) -> dict[str, Callable[[], Measured]]:
    consumer = _consumer(broker)
    return {
        "read_table": _timed(partial(_read_table, broker, rows), rows, batch),
        "consume()": _timed(partial(_consume_all, consumer, rows), rows, batch),
        "consume(), then a table": _timed(partial(_consume_table, consumer, rows), rows, batch),
    }


def _read_table(broker: ServerProcess, rows: int) -> pa.Table:
    table = moldau.read_table(_TOPIC, bootstrap=broker.bootstrap)
    if table.num_rows != rows:
        raise RuntimeError(f"{table.num_rows} rows of {rows}")
    return table


def _consumer(broker: ServerProcess) -> Consumer:
    from confluent_kafka import Consumer

    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "bench",
        "enable.auto.commit": False,
        # A round ends with a long poll at the end of the log, and the next one waits for it.
        "fetch.wait.max.ms": 5,
    }
    return Consumer(settings, logger=_quiet)


def _consume(consumer: Consumer, rows: int) -> Iterator[list[Message]]:
    """All records from the beginning, some at a time: nobody keeps millions of Messages."""
    from confluent_kafka import TopicPartition

    consumer.assign([TopicPartition(_TOPIC, number, 0) for number in range(_PARTITIONS)])
    while rows:
        messages = consumer.consume(min(rows, _CONSUMED_AT_ONCE), timeout=_POLL_SECONDS)
        if not messages:
            raise RuntimeError(f"{rows} records did not arrive")
        # What is no record is a complaint about the group, of which these partitions have no need.
        records = [message for message in messages if message.error() is None]
        rows -= len(records)
        yield records
    consumer.unassign()


def _consume_all(consumer: Consumer, rows: int) -> int:
    return sum(len(messages) for messages in _consume(consumer, rows))


def _consume_table(consumer: Consumer, rows: int) -> pa.Table:
    import pyarrow as pa

    return pa.concat_tables([_to_table(messages) for messages in _consume(consumer, rows)])


def _to_table(messages: list[Message]) -> pa.Table:
    import pyarrow as pa

    return pa.table(
        {
            "key": pa.array([one.key() for one in messages], pa.binary()),
            "value": pa.array([one.value() for one in messages], pa.binary()),
            "partition": pa.array([one.partition() for one in messages], pa.int32()),
            "offset": pa.array([one.offset() for one in messages], pa.int64()),
            "timestamp": pa.array([one.timestamp()[1] for one in messages], pa.timestamp("ms")),
        }
    )
