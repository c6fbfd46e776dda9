"""What compaction costs: its speed and memory, and what others notice of it meanwhile.

A log is filled with records of random keys while `min.cleanable.dirty.ratio` keeps the cleaner off
it; then the option is changed, and the cleaner goes through all of it. One client reads the same
log at random and writes to another one, at a fixed rate, before, during and after: latencies are
counted from the moment a request was planned, so that nobody hides a stall. The keys of a round
have to fit into `log.cleaner.dedupe.buffer.size`; with more of them the cleaner takes several
rounds, each of which copies what the earlier ones left.
"""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from bench.frames import Batch, Prepared, fetch, make_batch, produce
from bench.measure import GB, MB, percentile
from bench.processes import ServerProcess, broker_command, serving, temporary_folder
from bench.raw_client import RawClient
from bench.report import Goal, Outcome, Table
from bench.scale import KIB, TINY, Scale
from moldau.records.record_batch import build_batch
from moldau.storage.rules.file_names import CLEANER_OFFSETS_FILE
from moldau.testing.free_ports import take_port

_TOPIC: Final = "compacted"
_BESIDE: Final = "beside"
_VALUE: Final = bytes(i % 251 for i in range(100))
_BATCH_RECORDS: Final = 1000
_SEGMENTS: Final = 16
_LARGEST_SEGMENT: Final = 256 << 20
_READ_BYTES: Final = 64 * KIB
_RATE: Final = 200.0
"""Requests per second, reads and writes in turns."""
_QUIET_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.05
_CLEANING_SECONDS: Final = 3600.0
DEDUPE_BYTES: Final = 128 << 20
"""The default of `log.cleaner.dedupe.buffer.size`, as in Kafka."""


class Phase(NamedTuple):
    """What one client saw for a while, and what the broker used."""

    reads_ms: list[float]
    writes_ms: list[float]
    seconds: float
    cpu_seconds: float
    peak_bytes: int


class Filled(NamedTuple):
    records: int
    size_bytes: int


class Cleaned(NamedTuple):
    """The cleaner's own figures (`docs/monitoring.md`)."""

    rounds: int
    seconds: float
    bytes_after: int


def run(scale: Scale) -> Outcome:
    quiet_seconds = 1.0 if scale is TINY else _QUIET_SECONDS
    metrics_port = take_port()
    settings = (
        "log.cleaner.backoff.ms=100",
        f"log.cleaner.dedupe.buffer.size={DEDUPE_BYTES}",
        f"metrics.listener=127.0.0.1:{metrics_port}",
    )
    with (
        temporary_folder() as folder,
        serving(broker_command(folder, settings)) as broker,
        RawClient(broker) as client,
    ):
        filled = _fill(client, scale.cleaner_bytes, scale.cleaner_keys)
        client.create_topic(_BESIDE)
        beside = _Beside(broker, filled.records)
        _run_for(beside, 1.0)  # to be warm
        before = _run_for(beside, quiet_seconds)
        _let_clean(broker)
        deadline = time.perf_counter() + _CLEANING_SECONDS
        during = beside.run(lambda: _is_clean(folder) or time.perf_counter() >= deadline)
        if not _is_clean(folder):
            raise RuntimeError("the cleaner did not come to the end of the log")
        after = _run_for(beside, quiet_seconds)
        cleaned = _read_metrics(metrics_port, folder)
    return _report(scale, filled, cleaned, before, during, after)


def _fill(client: RawClient, size_bytes: int, keys: int) -> Filled:
    """Every key about as often as any other, in no order."""
    segment_bytes = min(_LARGEST_SEGMENT, max(1 << 20, size_bytes // _SEGMENTS))
    configs = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "1.0",  # more than all of it is never dirty
        "segment.bytes": str(segment_bytes),
    }
    client.create_topic(_TOPIC, configs=configs)
    random, now_ms = Random(1), time.time_ns() // 1_000_000
    sent = records = 0
    while sent < size_bytes:
        rows = [
            (now_ms, b"key-%010d" % random.randrange(keys), _VALUE, ())
            for _ in range(_BATCH_RECORDS)
        ]
        batch = Batch(bytes(build_batch(rows)), len(rows), len(_VALUE))
        client.exchange(produce(_TOPIC, batch))
        sent += len(batch.data)
        records += len(rows)
    return Filled(records, sent)


class _Beside:
    """A client that reads and writes in turns, whatever the cleaner does."""

    def __init__(self, broker: ServerProcess, records: int) -> None:
        self._broker = broker
        self._records = records
        self._random = Random(2)
        self._write = produce(_BESIDE, make_batch(4 * KIB, 100))

    def run(self, is_over: Callable[[], bool]) -> Phase:
        """Until it is over, which is looked at beside the requests and not between them."""
        ended, peak = threading.Event(), [self._broker.resident_bytes()]

        def watch() -> None:
            try:
                while not is_over():
                    peak.append(self._broker.resident_bytes())
                    time.sleep(_LOOK_SECONDS)
            finally:
                ended.set()

        watching = threading.Thread(target=watch)
        with RawClient(self._broker) as client:
            client.exchange(self._write)  # connected and warm
            cpu_before, began = self._broker.cpu_seconds(), time.perf_counter()
            watching.start()
            try:
                reads, writes = self._exchange(client, began, ended)
            finally:
                watching.join()
        seconds = time.perf_counter() - began
        cpu_seconds = self._broker.cpu_seconds() - cpu_before
        return Phase(sorted(reads), sorted(writes), seconds, cpu_seconds, max(peak))

    def _exchange(
        self, client: RawClient, began: float, ended: threading.Event
    ) -> tuple[list[float], list[float]]:
        latencies: tuple[list[float], list[float]] = ([], [])
        number = 0
        while not ended.is_set() or number < 2:
            due = began + number / _RATE
            time.sleep(max(0.0, due - time.perf_counter()))
            is_write = number % 2
            client.exchange(self._write if is_write else self._read())
            latencies[is_write].append((time.perf_counter() - due) * 1000)
            number += 1
        return latencies

    def _read(self) -> Prepared:
        return fetch(_TOPIC, self._random.randrange(self._records), max_bytes=_READ_BYTES)


def _run_for(beside: _Beside, seconds: float) -> Phase:
    deadline = time.perf_counter() + seconds
    return beside.run(lambda: time.perf_counter() >= deadline)


def _let_clean(broker: ServerProcess) -> None:
    import moldau

    resource = moldau.ConfigResource(moldau.ResourceType.TOPIC, _TOPIC)
    change = moldau.ConfigChange(name="min.cleanable.dirty.ratio", value="0")
    with moldau.Admin(broker.bootstrap) as admin:
        for error in admin.alter_configs({resource: [change]}).values():
            if error is not None:
                raise error


def _is_clean(folder: Path) -> bool:
    """Whether the cleaner has come to the segment that is written to."""
    log = _log_folder(folder)
    active = max(int(file.stem) for file in log.glob("*.log"))
    checkpoint = log.parent / CLEANER_OFFSETS_FILE
    lines = checkpoint.read_text(encoding="ascii").splitlines() if checkpoint.exists() else []
    return any(line.split() == [_TOPIC, "0", str(active)] for line in lines)


def _log_folder(folder: Path) -> Path:
    (found,) = folder.rglob(f"{_TOPIC}-0")
    return found


def _read_metrics(port: int, folder: Path) -> Cleaned:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    figures = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    size = sum(file.stat().st_size for file in _log_folder(folder).glob("*.log"))
    return Cleaned(
        int(float(figures["moldau_log_cleaner_runs_total"])),
        float(figures["moldau_log_cleaner_seconds_total"]),
        size,
    )


def _report(
    scale: Scale, filled: Filled, cleaned: Cleaned, before: Phase, during: Phase, after: Phase
) -> Outcome:
    quiet_seconds = before.seconds + after.seconds
    load_cpu = (before.cpu_seconds + after.cpu_seconds) / quiet_seconds * during.seconds
    cpu_seconds = max(0.0, during.cpu_seconds - load_cpu)
    memory = max(0, during.peak_bytes - before.peak_bytes)
    costs = Table(
        title=f"Compaction of {filled.size_bytes / MB:,.0f} MB, {filled.records:,} records, "
        f"{scale.cleaner_keys:,} keys",
        columns=("figure", "measured"),
        note="Bytes are those of the log before. CPU: the broker's, without what the client beside "
        "it costs in a quiet phase. Memory: the highest, over the highest before cleaning.",
    )
    costs.add("MB/s", filled.size_bytes / MB / cleaned.seconds)
    costs.add("CPU s/GB", cpu_seconds / filled.size_bytes * GB)
    costs.add("rounds", cleaned.rounds)
    costs.add("MB left", cleaned.bytes_after / MB)
    costs.add("peak memory over idle, MB", memory / MB)
    costs.add("log.cleaner.dedupe.buffer.size, MB", DEDUPE_BYTES / MB)
    return Outcome(
        tables=[costs, _latency_table(before, during, after)],
        goals=[
            Goal(
                figure="memory of the cleaner / log.cleaner.dedupe.buffer.size",
                to_reach=1.0,
                measured=memory / DEDUPE_BYTES,
            )
        ],
    )


def _latency_table(before: Phase, during: Phase, after: Phase) -> Table:
    table = Table(
        title=f"A client beside it, {_RATE:.0f} requests/s",
        columns=("request", "percentile", "quiet ms", "cleaning ms", "ratio", "samples"),
        note="Quiet: before and after together. Few samples say little about a p99.",
    )
    for name, quiet, cleaning in (
        ("read 64 KiB of the log, at random", before.reads_ms + after.reads_ms, during.reads_ms),
        ("write 4 KiB to another log", before.writes_ms + after.writes_ms, during.writes_ms),
    ):
        for share in (0.5, 0.99):
            alone = percentile(sorted(quiet), share)
            beside = percentile(cleaning, share)
            table.add(name, f"p{share * 100:.0f}", alone, beside, beside / alone, len(cleaning))
    return table
