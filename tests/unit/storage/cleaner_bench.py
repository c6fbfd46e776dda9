"""What the tests of the cleaner share: a log of keys, a round, what a reader sees."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from log_bench import PARTITION, START_MS, LogBench

from moldau.config.broker_options import BrokerOptions
from moldau.records.batch_header import read_header, walk_headers
from moldau.records.record import Record
from moldau.records.record_batch import build_batch, records_of
from moldau.storage.log import AppendResult, Log
from moldau.storage.log_cleaner import LogCleaner

COMPACTED = {
    "cleanup_policy": frozenset({"compact"}),
    "min_cleanable_dirty_ratio": 0.0,
    "segment_bytes": 300,
}


def put(bench: LogBench, log: Log, pairs: Mapping[bytes, bytes | None], **fields) -> AppendResult:
    """Append one batch of these keys and values."""
    leader_epoch = fields.pop("leader_epoch", 0)
    timestamp_ms = fields.pop("timestamp_ms", START_MS)
    rows = [(timestamp_ms, key, value, ()) for key, value in pairs.items()]
    batch = build_batch(rows, **fields)
    return log.append(
        batch, read_header(batch), leader_epoch=leader_epoch, now_ms=bench.clock.now_ms()
    )


def put_rounds(bench: LogBench, log: Log, rounds: int, keys: int = 3) -> None:
    """Every round gives each of the keys a new value, in a batch of its own."""
    for number in range(rounds):
        for key in range(keys):
            put(bench, log, {b"key-%d" % key: b"%d" % number})


async def clean(
    bench: LogBench, log: Log, settings: Mapping[str, str] = {}, high_watermark: int | None = None
) -> bool:
    """One round, if the log is due for one."""
    await log.flush()
    broker = BrokerOptions.resolve(settings)
    end_offset = log.log_end_offset if high_watermark is None else high_watermark
    return await LogCleaner(bench.clock, lambda: broker).clean_dirtiest(
        {PARTITION: log}, {PARTITION: end_offset}
    )


def clean_now(bench: LogBench, log: Log, **options: object) -> bool:
    return asyncio.run(clean(bench, log, **options))  # type: ignore[arg-type]


def read_records(log: Log, max_bytes: int = 1 << 20) -> list[Record]:
    """All records, as a reader gets them who follows the log in order."""
    offset, found = log.log_start_offset, []
    while offset < log.log_end_offset:
        read = log.read(offset, max_bytes, end_offset=log.log_end_offset, min_one=True)
        assert read.slice is not None, f"nothing at {offset} of {log}"
        assert read.end_offset > offset
        data = read.slice.read()
        for position, header in walk_headers(data):
            found += records_of(data[position : position + header.size_bytes], header)
        offset = read.end_offset
    offsets = [record.offset for record in found]
    assert offsets == sorted(set(offsets))
    return found


def table_of(log: Log) -> dict[bytes | None, tuple[int, bytes | None]]:
    """What a reader ends up with who keeps the last value of each key."""
    return {record.key: (record.offset, record.value) for record in read_records(log)}
