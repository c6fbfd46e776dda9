"""What studies of throughput share: filling a topic, reading it, and the floors."""

from __future__ import annotations

import struct
from collections.abc import Callable

from bench.frames import Batch, Prepared, fetch, produce
from bench.measure import Measured, measure
from bench.processes import ServerProcess
from bench.raw_client import RawClient
from bench.scale import KIB, MIB
from bench.servers import RANGE_REQUEST

PRODUCE_IN_FLIGHT = 5
"""As producers have by default (`max.in.flight.requests.per.connection`)."""

PIPELINED = 32

FETCH_IN_FLIGHT = 2
"""One being answered while the client reads the other."""


def size_name(size_bytes: int) -> str:
    return f"{size_bytes >> 20} MiB" if size_bytes >= MIB else f"{size_bytes >> 10} KiB"


def record_name(size_bytes: int) -> str:
    return f"{size_bytes} B" if size_bytes < KIB else f"{size_bytes >> 10} KiB"


def rounds_of_produce(
    server: ServerProcess, client: RawClient, prepared: Prepared, round_bytes: int
) -> Callable[[], Measured]:
    """A subject for `take_turns`: one round sends about so many bytes."""
    count = max(2 * PRODUCE_IN_FLIGHT, round_bytes // prepared.payload_bytes)

    def run() -> Measured:
        return measure(
            server,
            lambda: client.repeat(prepared, count, PRODUCE_IN_FLIGHT),
            requests=count,
            payload_bytes=count * prepared.payload_bytes,
        )

    return run


def rounds_of_fetch(
    server: ServerProcess, client: RawClient, requests: list[Prepared]
) -> Callable[[], Measured]:
    """A subject for `take_turns`: one round sends all of the requests."""
    payload_bytes = sum(one.payload_bytes for one in requests)

    def run() -> Measured:
        return measure(
            server,
            lambda: client.pull(requests, FETCH_IN_FLIGHT),
            requests=len(requests),
            payload_bytes=payload_bytes,
        )

    return run


def rounds_of_requests(
    server: ServerProcess, client: RawClient, prepared: Prepared, count: int, in_flight: int
) -> Callable[[], Measured]:
    """A subject for `take_turns`: one round sends the same small request so many times."""

    def run() -> Measured:
        return measure(server, lambda: client.repeat(prepared, count, in_flight), requests=count)

    return run


def fill(client: RawClient, topic: str, batch: Batch, total_bytes: int) -> int:
    """Append the batch until the topic has so many bytes; returns how many batches it has."""
    count = max(1, total_bytes // len(batch.data))
    client.repeat(produce(topic, batch), count, PRODUCE_IN_FLIGHT)
    return count


def requests_in_order(
    topic: str, batch: Batch, batches: int, response_bytes: int, *, first_batch: int = 0
) -> list[Prepared]:
    """Fetches that read whole answers of so many bytes from a topic filled with one batch."""
    at_once = max(1, response_bytes // len(batch.data))
    return [
        fetch(
            topic,
            place * batch.record_count,
            max_bytes=response_bytes,
            payload_bytes=at_once * len(batch.data),
        )
        for place in range(first_batch, batches - at_once + 1, at_once)
    ]


def plain_push(batch: Batch) -> Prepared:
    """The same bytes for a plain server, which only looks at the length."""
    return Prepared(struct.pack(">i", len(batch.data)) + batch.data, 4, len(batch.data))


def plain_ranges(file_bytes: int, response_bytes: int) -> list[Prepared]:
    """Requests to the plain server that walk through its file."""
    frame_bytes = RANGE_REQUEST.size - 4
    return [
        Prepared(RANGE_REQUEST.pack(frame_bytes, position, response_bytes), 4, response_bytes)
        for position in range(0, file_bytes - response_bytes + 1, response_bytes)
    ]
