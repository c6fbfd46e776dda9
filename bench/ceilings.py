"""What this machine can do at best, from plain Python: memory, page cache, loopback, sendfile.

No broker here. The other benchmarks measure the ceiling that concerns them again, in turns with the
broker; this one shows them all side by side.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from bench.frames import Prepared, make_batch
from bench.measure import CPU_PER_GB, GB, MB, MB_PER_SECOND, Measured, least, most
from bench.processes import serving_module, temporary_folder
from bench.raw_client import RawClient
from bench.report import Outcome, Table
from bench.scale import KIB, Scale
from bench.throughput import plain_push, plain_ranges, rounds_of_fetch, rounds_of_produce, size_name


def run(scale: Scale) -> Outcome:
    table = Table(
        title="Ceilings: blocks of bytes, plain Python",
        columns=("what", "block", "MB/s", "CPU s/GB"),
        note="CPU of the serving side alone; for memory and file, of the process that does it.",
    )
    for size in scale.batch_sizes:
        _add_local(table, "copy in memory", size, scale, _copy)
        _add_local(table, "write to page cache", size, scale, _write)
        _add_served(table, size, scale)
    return Outcome(tables=[table])


def _add_local(
    table: Table, name: str, size: int, scale: Scale, work: Callable[[int, int], None]
) -> None:
    count = max(1, scale.round_bytes // size)
    seconds, cpu_seconds = [], []
    for _ in range(scale.rounds):
        before, cpu_before = time.perf_counter(), time.process_time()
        work(size, count)
        seconds.append(time.perf_counter() - before)
        cpu_seconds.append(time.process_time() - cpu_before)
    total = size * count
    table.add(name, size_name(size), total / min(seconds) / MB, min(cpu_seconds) / total * GB)


def _copy(size: int, count: int) -> None:
    source = memoryview(os.urandom(size))
    target = memoryview(bytearray(size))
    for _ in range(count):
        target[:] = source


def _write(size: int, count: int) -> None:
    block = os.urandom(size)
    with temporary_folder() as folder:
        descriptor = os.open(folder / "written", os.O_RDWR | os.O_CREAT)
        try:
            for number in range(count):
                os.pwrite(descriptor, block, number * size)
        finally:
            os.close(descriptor)


def _add_served(table: Table, size: int, scale: Scale) -> None:
    pushed = plain_push(make_batch(size, KIB))
    with temporary_folder() as folder:
        stored = folder / "stored"
        stored.write_bytes(os.urandom(size) * (scale.round_bytes // size))
        ranges = plain_ranges(stored.stat().st_size, size)
        for name, arguments, prepared in (
            ("receive", ("sink",), [pushed]),
            ("receive and write", ("store", str(folder / "written")), [pushed]),
            ("sendfile", ("sendfile", str(stored)), ranges),
        ):
            rounds = _measure_server(arguments, prepared, scale)
            table.add(name, size_name(size), most(rounds, MB_PER_SECOND), least(rounds, CPU_PER_GB))


def _measure_server(
    arguments: tuple[str, ...], prepared: list[Prepared], scale: Scale
) -> list[Measured]:
    with serving_module("bench.servers", *arguments) as plain, RawClient(plain) as client:
        if len(prepared) == 1:
            run_round = rounds_of_produce(plain, client, prepared[0], scale.round_bytes)
        else:
            run_round = rounds_of_fetch(plain, client, prepared)
        return [run_round() for _ in range(scale.rounds)]
