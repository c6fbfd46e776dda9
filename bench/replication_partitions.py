"""What a replicated record costs in a cluster with many partitions, and the cluster when idle.

One record at a time with acks=all into a topic of its own, beside thousands of other partitions
with three copies that nobody writes to. Two clusters are measured in turns, a small one and one
that grows step by step: what disturbs the machine disturbs both. The CPU time of all brokers counts
and not the clock on the wall; what they use idle meanwhile is taken off.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.frames import make_batch, produce
from bench.measure import CPU_US_PER_REQUEST, Measured, least, take_turns
from bench.raw_client import RawClient
from bench.replication_cluster import RunningCluster, find_obstacle, running_cluster
from bench.report import Goal, Outcome, Table
from bench.scale import Scale

GOAL_RECORD = 1.2
_TOPIC = "measured"
_RECORD_BYTES = 100
_ALL = -1
_IDLE_SECONDS = 5.0
_SETTLE_SECONDS = 10.0
"""After partitions were made: checkpoints are written, sessions come to rest."""


def run(scale: Scale) -> Outcome:
    obstacle = find_obstacle()
    if obstacle is not None:
        return obstacle
    fewest, *steps = scale.cluster_partitions
    table = Table(
        title="One record at a time, acks=all, 3 copies, with other partitions in the cluster",
        columns=(
            "partitions",
            "all brokers CPU µs/record",
            f"with {fewest} partitions",
            "ratio",
            "cores idle",
        ),
    )
    ratio = 1.0
    with running_cluster({}) as small, running_cluster({}) as grown:
        leaders = {cluster: cluster.create_topic(_TOPIC) for cluster in (small, grown)}
        small.create_topic("others", fewest - 1)
        there = 1
        for partitions in steps:
            grown.create_topic(f"others-{partitions}", partitions - there)
            there = partitions
            time.sleep(min(_SETTLE_SECONDS, scale.rounds * 2.0))
            idle = {cluster: _idle_cores(cluster, scale) for cluster in leaders}
            subjects = {
                cluster: _rounds(cluster, leader, scale, idle[cluster])
                for cluster, leader in leaders.items()
            }
            found = take_turns(scale.rounds, subjects)
            most, few = (least(found[one], CPU_US_PER_REQUEST) for one in (grown, small))
            ratio = most / few
            table.add(partitions, most, few, ratio, idle[grown])
    figure = f"CPU of a record, {there:,} partitions against {fewest:,}"
    goal = Goal(figure=figure, to_reach=GOAL_RECORD, measured=ratio)
    return Outcome(tables=[table], goals=[goal])


def _rounds(
    cluster: RunningCluster, leader: int, scale: Scale, idle_cores: float
) -> Callable[[], Measured]:
    prepared = produce(_TOPIC, make_batch(_RECORD_BYTES, _RECORD_BYTES), acks=_ALL)
    count = max(20, scale.requests // 5)

    def run_round() -> Measured:
        with RawClient(cluster.brokers[leader]) as client:
            client.exchange(prepared)
            cpu, before = cluster.cpu_seconds(), time.perf_counter()
            for _ in range(count):
                client.exchange(prepared)
            seconds = time.perf_counter() - before
            spent = cluster.cpu_seconds() - cpu - idle_cores * seconds
            return Measured(seconds, max(spent, 1e-6), count, 0)

    return run_round


def _idle_cores(cluster: RunningCluster, scale: Scale) -> float:
    seconds = min(_IDLE_SECONDS, scale.rounds * 1.0)
    cpu, before = cluster.cpu_seconds(), time.perf_counter()
    time.sleep(seconds)
    return (cluster.cpu_seconds() - cpu) / (time.perf_counter() - before)
