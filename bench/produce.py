"""Produce: megabytes per second, and broker CPU per gigabyte, at three batch sizes.

Held against a plain server that receives the same bytes and writes them behind each other: what is
left is the price of a broker (checks, offsets, indexes, answers).
"""

from __future__ import annotations

from bench.frames import make_batch, produce
from bench.measure import CPU_PER_GB, MB_PER_SECOND, least, most, take_turns
from bench.processes import running_broker, serving_module, temporary_folder
from bench.raw_client import RawClient
from bench.report import Goal, Outcome, Table
from bench.scale import KIB, Scale
from bench.throughput import (
    PRODUCE_IN_FLIGHT,
    plain_push,
    record_name,
    rounds_of_produce,
    size_name,
)

GOALS = {16 * KIB: 3.0, 128 * KIB: 1.5, 1024 * KIB: 0.9}


def run(scale: Scale) -> Outcome:
    outcome = Outcome(tables=[_table()])
    for record_bytes in scale.record_sizes:
        for batch_bytes in scale.batch_sizes:
            _run_case(scale, batch_bytes, record_bytes, outcome)
    return outcome


def _table() -> Table:
    return Table(
        title=f"Produce, one connection, acks=1, {PRODUCE_IN_FLIGHT} requests in flight",
        columns=(
            "batch",
            "records",
            "MB/s",
            "broker CPU s/GB",
            "plain MB/s",
            "plain CPU s/GB",
            "CPU against plain",
        ),
        note="plain: a server in Python that only receives the bytes and writes them to a file.",
    )


def _run_case(scale: Scale, batch_bytes: int, record_bytes: int, outcome: Outcome) -> None:
    batch = make_batch(batch_bytes, record_bytes)
    # Small batches cost more, so fewer bytes take as long; and no round waits for the disk.
    round_bytes = scale.round_bytes if batch_bytes > 16 * KIB else scale.round_bytes // 3
    with (
        temporary_folder() as folder,
        running_broker() as broker,
        serving_module("bench.plain_server", "store", str(folder / "stored")) as plain,
        RawClient(broker) as client,
        RawClient(plain) as plain_client,
    ):
        topic = client.create_topic("produced")
        found = take_turns(
            scale.rounds,
            {
                "broker": rounds_of_produce(broker, client, produce(topic, batch), round_bytes),
                "plain": rounds_of_produce(plain, plain_client, plain_push(batch), round_bytes),
            },
        )
    cost = least(found["broker"], CPU_PER_GB)
    plain_cost = least(found["plain"], CPU_PER_GB)
    outcome.tables[0].add(
        size_name(batch_bytes),
        record_name(record_bytes),
        most(found["broker"], MB_PER_SECOND),
        cost,
        most(found["plain"], MB_PER_SECOND),
        plain_cost,
        cost / plain_cost,
    )
    outcome.goals.append(
        Goal(
            figure=(
                f"produce, broker CPU s/GB, {size_name(batch_bytes)} batches "
                f"of {record_name(record_bytes)}"
            ),
            to_reach=GOALS[batch_bytes],
            measured=cost,
        )
    )
