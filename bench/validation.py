"""What it costs to look inside batches: `record.validation` full against header.

Both kinds of topic on one broker, in turns, with the native codec and with its twin in Python.
"""

from __future__ import annotations

from bench.frames import make_batch, produce
from bench.measure import CPU_PER_GB, least, take_turns
from bench.processes import running_broker
from bench.raw_client import RawClient
from bench.report import Outcome, Table
from bench.scale import Scale
from bench.throughput import record_name, rounds_of_produce, size_name
from moldau.records.codec import IMPLEMENTATION

_NATIVE_CODEC = "moldau.records._codec_native"
_PURE_SHARE = 8
"""The twin is this much slower or more, so it gets fewer bytes."""


def run(scale: Scale) -> Outcome:
    table = Table(
        title="Looking inside batches: record.validation=full against header, broker CPU s/GB",
        columns=("codec", "batch", "records", "header", "full", "ratio", "ns/record"),
        note="ns/record: what full costs more, for each record.",
    )
    if IMPLEMENTATION == "native":
        _run_codec(table, scale, "native", (), scale.round_bytes // 8)
    _run_codec(table, scale, "pure", (_NATIVE_CODEC,), scale.round_bytes // 8 // _PURE_SHARE)
    return Outcome(tables=[table])


def _run_codec(
    table: Table, scale: Scale, codec: str, blocked: tuple[str, ...], round_bytes: int
) -> None:
    for record_bytes in scale.record_sizes:
        for batch_bytes in scale.batch_sizes:
            batch = make_batch(batch_bytes, record_bytes)
            with running_broker(blocked_modules=blocked) as broker, RawClient(broker) as client:
                subjects = {}
                for kind in ("header", "full"):
                    topic = client.create_topic(kind, configs={"record.validation": kind})
                    prepared = produce(topic, batch)
                    subjects[kind] = rounds_of_produce(broker, client, prepared, round_bytes)
                found = take_turns(scale.short_rounds, subjects)
            header = least(found["header"], CPU_PER_GB)
            full = least(found["full"], CPU_PER_GB)
            records_per_gb = 1e9 / len(batch.data) * batch.record_count
            table.add(
                codec,
                size_name(batch_bytes),
                record_name(record_bytes),
                header,
                full,
                full / header,
                (full - header) / records_per_gb * 1e9,
            )
