"""Fetch: megabytes per second, and broker CPU per gigabyte, at two response sizes.

Held against a plain server that sends the same ranges of a file with `sendfile`.
"""

from __future__ import annotations

from bench.frames import make_batch
from bench.measure import CPU_PER_GB, MB_PER_SECOND, least, most, take_turns
from bench.processes import running_broker, serving_module, temporary_folder
from bench.raw_client import RawClient
from bench.report import Goal, Outcome, Table
from bench.scale import KIB, Scale
from bench.throughput import (
    FETCH_IN_FLIGHT,
    fill,
    plain_ranges,
    requests_in_order,
    rounds_of_fetch,
    size_name,
)

RESPONSE_SIZES = (128 * KIB, 1024 * KIB)
GOALS = {128 * KIB: 0.7, 1024 * KIB: 0.3}
_BATCH_BYTES = 16 * KIB
_RECORD_BYTES = 1 * KIB


def run(scale: Scale) -> Outcome:
    table = Table(
        title=f"Fetch, one connection, {FETCH_IN_FLIGHT} requests in flight, "
        f"{size_name(_BATCH_BYTES)} batches in the page cache",
        columns=(
            "response",
            "MB/s",
            "broker CPU s/GB",
            "sendfile MB/s",
            "sendfile CPU s/GB",
            "CPU against sendfile",
        ),
        note="sendfile: a server in Python that sends the same ranges of a file, and nothing else.",
    )
    outcome = Outcome(tables=[table])
    batch = make_batch(_BATCH_BYTES, _RECORD_BYTES)
    with temporary_folder() as folder, running_broker() as broker, RawClient(broker) as client:
        topic = client.create_topic("fetched")
        batches = fill(client, topic, batch, scale.round_bytes)
        stored = folder / "stored"
        stored.write_bytes(batch.data * batches)
        for response_bytes in RESPONSE_SIZES:
            requests = requests_in_order(topic, batch, batches, response_bytes)
            ranges = plain_ranges(stored.stat().st_size, requests[0].payload_bytes)
            with (
                serving_module("bench.plain_server", "sendfile", str(stored)) as plain,
                RawClient(plain) as plain_client,
            ):
                found = take_turns(
                    scale.rounds,
                    {
                        "broker": rounds_of_fetch(broker, client, requests),
                        "plain": rounds_of_fetch(plain, plain_client, ranges),
                    },
                )
            cost = least(found["broker"], CPU_PER_GB)
            plain_cost = least(found["plain"], CPU_PER_GB)
            table.add(
                size_name(response_bytes),
                most(found["broker"], MB_PER_SECOND),
                cost,
                most(found["plain"], MB_PER_SECOND),
                plain_cost,
                cost / plain_cost,
            )
            outcome.goals.append(
                Goal(
                    figure=f"fetch, broker CPU s/GB, {size_name(response_bytes)} responses",
                    to_reach=GOALS[response_bytes],
                    measured=cost,
                )
            )
    return outcome
