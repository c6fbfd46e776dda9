"""Small requests: how many a second, and how many in a second of broker CPU (on one core).

Held against a plain server that echoes the same number of bytes with blocking sockets.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from bench.frames import Prepared, api_versions, fetch, make_batch, produce
from bench.measure import (
    CPU_US_PER_REQUEST,
    REQUESTS_PER_SECOND,
    Measured,
    least,
    measure,
    most,
    take_turns,
)
from bench.processes import ServerProcess, running_broker, serving_module
from bench.raw_client import RawClient
from bench.report import Goal, Outcome, Table
from bench.scale import Scale

PIPELINED = 32
_PRODUCE = "produce, 1 record of 100 B"
_RECORD_BYTES = 100
_PIPELINED_FACTOR = 5
_FETCH_MAX_BYTES = 1 << 20

GOALS = {1: 12_000.0, PIPELINED: 40_000.0}


def run(scale: Scale) -> Outcome:
    table = Table(
        title="Small requests, one connection",
        columns=(
            "request",
            "in flight",
            "requests/s",
            "requests/broker CPU s",
            "broker CPU µs/request",
            "CPU against echo",
        ),
        note="echo: a server in Python that finds each frame and sends it back, in one loop.",
    )
    outcome = Outcome(tables=[table])
    with (
        running_broker() as broker,
        serving_module("bench.plain_server", "echo") as plain,
        RawClient(broker) as client,
        RawClient(plain) as plain_client,
    ):
        topic = client.create_topic("produced")
        empty = client.create_topic("empty")
        prepared = {
            _PRODUCE: produce(topic, make_batch(1, _RECORD_BYTES)),
            "fetch at the end, no wait": fetch(empty, 0, max_bytes=_FETCH_MAX_BYTES),
            "api versions": api_versions(),
        }
        echoed = _echo_request(len(prepared[_PRODUCE].frame))
        for in_flight in (1, PIPELINED):
            count = scale.requests * (1 if in_flight == 1 else _PIPELINED_FACTOR)
            subjects = {
                name: rounds_of_requests(broker, client, one, count, in_flight)
                for name, one in prepared.items()
            }
            subjects["echo"] = rounds_of_requests(plain, plain_client, echoed, count, in_flight)
            found = take_turns(scale.short_rounds, subjects)
            floor = least(found["echo"], CPU_US_PER_REQUEST)
            for name, rounds in found.items():
                cost = least(rounds, CPU_US_PER_REQUEST)
                rate = most(rounds, REQUESTS_PER_SECOND)
                table.add(name, in_flight, rate, 1e6 / cost, cost, cost / floor)
            outcome.goals.append(
                Goal(
                    figure="small produce requests per core and second, "
                    + ("one at a time" if in_flight == 1 else f"{in_flight} in flight"),
                    to_reach=GOALS[in_flight],
                    measured=1e6 / least(found[_PRODUCE], CPU_US_PER_REQUEST),
                    at_most=False,
                )
            )
    return outcome


def rounds_of_requests(
    server: ServerProcess, client: RawClient, prepared: Prepared, count: int, in_flight: int
) -> Callable[[], Measured]:
    """A subject for `take_turns`."""

    def run_round() -> Measured:
        return measure(server, lambda: client.repeat(prepared, count, in_flight), requests=count)

    return run_round


def _echo_request(frame_bytes: int) -> Prepared:
    body_bytes = frame_bytes - 4
    return Prepared(struct.pack(">i", body_bytes) + bytes(body_bytes), 4, 0)
