"""Replicated produce: megabytes per second, and CPU per gigabyte of the leader and of all brokers.

A topic with three copies, with acks=all and acks=1, beside one with a single copy on the same
cluster. A round ends when all replicas have everything, whatever was acknowledged before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from bench.frames import Batch, make_batch, produce
from bench.measure import CPU_PER_GB, MB_PER_SECOND, Measured, least, most, take_turns
from bench.raw_client import RawClient
from bench.replication_cluster import REPLICAS, RunningCluster, find_obstacle, running_cluster
from bench.report import Outcome, Table
from bench.scale import KIB, Scale
from bench.throughput import PRODUCE_IN_FLIGHT, size_name

_RECORD_BYTES = KIB
_ROUND_SHARE = 8
"""Every byte is written three times, and there is one disk."""
_ALL = -1


class _Subject(NamedTuple):
    name: str
    replicas: int
    acks: int


_SUBJECTS = (
    _Subject("1 copy, acks=1", 1, 1),
    _Subject("3 copies, acks=1", REPLICAS, 1),
    _Subject("3 copies, acks=all", REPLICAS, _ALL),
)


def run(scale: Scale) -> Outcome:
    obstacle = find_obstacle()
    if obstacle is not None:
        return obstacle
    table = Table(
        title=f"Replicated produce, one connection, {PRODUCE_IN_FLIGHT} requests in flight, "
        "3 brokers on one machine",
        columns=(
            "batch",
            "what",
            "MB/s",
            "leader CPU s/GB",
            "all brokers CPU s/GB",
            "CPU against 1 copy",
        ),
        note="MB/s: what the client sent, until every replica had it.",
    )
    with running_cluster({}) as cluster:
        for batch_bytes in scale.batch_sizes:
            _run_case(scale, cluster, make_batch(batch_bytes, _RECORD_BYTES), table)
    return Outcome(tables=[table])


class _Round(NamedTuple):
    """The same round, seen from the leader and from all brokers."""

    leader: Measured
    brokers: Measured


def _run_case(scale: Scale, cluster: RunningCluster, batch: Batch, table: Table) -> None:
    batch_bytes = len(batch.data)
    rounds: dict[str, list[_Round]] = {}
    subjects = {}
    for subject in _SUBJECTS:
        topic = f"copied-{batch_bytes}-{subject.replicas}-{subject.acks}"
        leader = cluster.create_topic(topic, replicas=subject.replicas)
        rounds[subject.name] = []
        subjects[subject.name] = _rounds(
            cluster, leader, topic, batch, subject.acks, scale, rounds[subject.name]
        )
    take_turns(scale.rounds, subjects)
    single = least([one.brokers for one in rounds[_SUBJECTS[0].name]], CPU_PER_GB)
    for name, found in rounds.items():
        brokers: Sequence[Measured] = [one.brokers for one in found]
        cost = least(brokers, CPU_PER_GB)
        table.add(
            size_name(batch_bytes + KIB),
            name,
            most(brokers, MB_PER_SECOND),
            least([one.leader for one in found], CPU_PER_GB),
            cost,
            cost / single,
        )


def _rounds(
    cluster: RunningCluster,
    leader: int,
    topic: str,
    batch: Batch,
    acks: int,
    scale: Scale,
    kept: list[_Round],
) -> Callable[[], Measured]:
    prepared, last = produce(topic, batch, acks=acks), produce(topic, batch, acks=_ALL)
    count = max(2 * PRODUCE_IN_FLIGHT, scale.round_bytes // _ROUND_SHARE // len(batch.data))
    server = cluster.brokers[leader]

    def run_round() -> Measured:
        with RawClient(server) as client:
            own, cpu, before = server.cpu_seconds(), cluster.cpu_seconds(), time.perf_counter()
            client.repeat(prepared, count, PRODUCE_IN_FLIGHT)
            client.exchange(last)
            seconds = time.perf_counter() - before
            total_bytes = (count + 1) * len(batch.data)
            found = _Round(
                Measured(seconds, server.cpu_seconds() - own, count + 1, total_bytes),
                Measured(seconds, cluster.cpu_seconds() - cpu, count + 1, total_bytes),
            )
        kept.append(found)
        return found.brokers

    return run_round
