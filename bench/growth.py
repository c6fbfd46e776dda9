"""Whether the broker gets slower as it fills: with gigabytes in a log, with thousands of logs.

Large and small are measured in turns. A log: one topic with gigabytes and a small one, on the same
broker. Partitions: one broker with thousands and one with a single one, side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from bench.frames import Batch, Prepared, fetch, make_batch, metadata, produce
from bench.measure import CPU_US_PER_REQUEST, Measured, least, measure, take_turns
from bench.processes import ServerProcess, running_broker
from bench.raw_client import RawClient
from bench.report import Goal, Outcome, Table
from bench.scale import KIB, Scale
from bench.throughput import (
    PIPELINED,
    fill,
    requests_in_order,
    rounds_of_fetch,
    rounds_of_produce,
    rounds_of_requests,
)

GOAL_LOG = 1.05
GOAL_PARTITIONS = 1.2
GOAL_METADATA = 2.0
"""Its answer is as large as there are partitions: 40 bytes for each are copied and sent."""
_BATCH_BYTES = 128 * KIB
_RECORD_BYTES = 1 * KIB
_SMALL_LOG_BYTES = 32 << 20
_METADATA = "Metadata of all topics"
_HOT_BYTES = 32 << 20
"""What is read in order: the end of the log, which is in the page cache in both cases."""

Subjects = Mapping[str, Callable[[], Measured]]


def run(scale: Scale) -> Outcome:
    outcome = Outcome(tables=[])
    _run_log(scale, outcome)
    _run_partitions(scale, outcome)
    return outcome


def _run_log(scale: Scale, outcome: Outcome) -> None:
    table = Table(
        title=f"A log of {scale.log_bytes / (1 << 30):.1f} GiB against one of "
        f"{_SMALL_LOG_BYTES >> 20} MiB, broker CPU µs/request",
        columns=("request", "small log", "large log", "ratio"),
        note="At random: each fetch has to search; with more data than memory, on the disk.",
    )
    outcome.tables.append(table)
    batch = make_batch(_BATCH_BYTES, _RECORD_BYTES)
    with running_broker() as broker, RawClient(broker) as client:
        small = _Log(broker, client, client.create_topic("small"), batch, _SMALL_LOG_BYTES)
        large = _Log(broker, client, client.create_topic("large"), batch, scale.log_bytes)
        round_bytes = scale.round_bytes // 8
        small_subjects, large_subjects = small.subjects(round_bytes), large.subjects(round_bytes)
        for name in small_subjects:
            ratio = _compare(table, scale, name, small_subjects[name], large_subjects[name])
            if "random" not in name:
                gib = f"{scale.log_bytes / (1 << 30):.0f} GiB"
                outcome.goals.append(
                    Goal(
                        figure=f"cost of {name} with {gib} in the log",
                        to_reach=GOAL_LOG,
                        measured=ratio,
                    )
                )


class _Log:
    """A topic of one partition, filled with one batch over and over."""

    def __init__(
        self, broker: ServerProcess, client: RawClient, topic: str, batch: Batch, size_bytes: int
    ) -> None:
        self._broker, self._client, self._topic, self._batch = broker, client, topic, batch
        self._batches = fill(client, topic, batch, size_bytes)

    def subjects(self, round_bytes: int) -> Subjects:
        """The reads come first, since produce lets the log grow."""
        first = max(0, self._batches - _HOT_BYTES // len(self._batch.data))
        in_order = requests_in_order(
            self._topic, self._batch, self._batches, _BATCH_BYTES, first_batch=first
        )
        small = produce(self._topic, make_batch(1, 100))
        return {
            "fetch of 128 KiB in order": rounds_of_fetch(self._broker, self._client, in_order),
            "fetch of 128 KiB at random": rounds_of_fetch(
                self._broker, self._client, self._at_random(len(in_order))
            ),
            "produce of 128 KiB": rounds_of_produce(
                self._broker, self._client, produce(self._topic, self._batch), round_bytes
            ),
            "produce of 100 B": rounds_of_requests(
                self._broker, self._client, small, max(100, len(in_order) * 8), PIPELINED
            ),
        }

    def _at_random(self, count: int) -> list[Prepared]:
        random = Random(1)
        return [
            fetch(
                self._topic,
                random.randrange(self._batches) * self._batch.record_count,
                max_bytes=_BATCH_BYTES,
                payload_bytes=len(self._batch.data),
            )
            for _ in range(count)
        ]


def _run_partitions(scale: Scale, outcome: Outcome) -> None:
    table = Table(
        title=f"A broker with {scale.partitions:,} partitions against one with a single partition, "
        "broker CPU µs/request",
        columns=("request", "1 partition", f"{scale.partitions:,} partitions", "ratio"),
        note="To all: request after request goes to another partition.",
    )
    outcome.tables.append(table)
    with (
        running_broker() as one,
        running_broker() as many,
        RawClient(one) as one_client,
        RawClient(many) as many_client,
    ):
        one_client.create_topic("small")
        many_client.create_topic("small", partitions=scale.partitions)
        one_subjects = _small_requests(one, one_client, scale, 1)
        many_subjects = _small_requests(many, many_client, scale, scale.partitions)
        for name in one_subjects:
            ratio = _compare(table, scale, name, one_subjects[name], many_subjects[name])
            outcome.goals.append(
                Goal(
                    figure=f"cost of {name}, {scale.partitions:,} partitions on the broker",
                    to_reach=GOAL_METADATA if name == _METADATA else GOAL_PARTITIONS,
                    measured=ratio,
                )
            )


def _small_requests(
    broker: ServerProcess, client: RawClient, scale: Scale, partitions: int
) -> Subjects:
    batch = make_batch(1, 100)
    count = scale.requests * 3
    fetches = [fetch("small", 0, max_bytes=KIB, partition=number) for number in range(partitions)]
    produces = [produce("small", batch, partition=number) for number in range(partitions)]

    def to_all(prepared: list[Prepared]) -> Callable[[], Measured]:
        def run_round() -> Measured:
            return measure(broker, lambda: client.cycle(prepared, count, PIPELINED), requests=count)

        return run_round

    # Fetches come first: their answers are alike only while the logs are empty.
    return {
        _METADATA: rounds_of_requests(broker, client, metadata(), count // 6, 1),
        "fetch from one": rounds_of_requests(broker, client, fetches[0], count, PIPELINED),
        "fetch from all": to_all(fetches),
        "produce to one": rounds_of_requests(broker, client, produces[0], count, PIPELINED),
        "produce to all": to_all(produces),
    }


def _compare(
    table: Table,
    scale: Scale,
    name: str,
    small: Callable[[], Measured],
    large: Callable[[], Measured],
) -> float:
    found = take_turns(scale.short_rounds, {"small": small, "large": large})
    small_cost = least(found["small"], CPU_US_PER_REQUEST)
    large_cost = least(found["large"], CPU_US_PER_REQUEST)
    table.add(name, small_cost, large_cost, large_cost / small_cost)
    return large_cost / small_cost
