"""What a replicated record costs in a cluster with many partitions, and the cluster when idle.

One record at a time with acks=all into a topic of its own, beside thousands of other partitions
with three copies that nobody writes to. They are added in steps to one cluster, so that all figures
are of one run; the CPU time of all brokers is what counts, whatever else the machine does. What
they use idle meanwhile is taken off: on a busy machine a record takes longer.
"""

from __future__ import annotations

import time

from bench.frames import make_batch, produce
from bench.measure import CPU_US_PER_REQUEST, Measured, least
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
    steps = scale.cluster_partitions
    table = Table(
        title="One record at a time, acks=all, 3 copies, with other partitions in the cluster",
        columns=("partitions", "all brokers CPU µs/record", "against the fewest", "cores idle"),
        note="Records/s depend on what else the machine does; CPU time does not.",
    )
    first = last = 0.0
    with running_cluster({}) as cluster:
        leader = cluster.create_topic(_TOPIC)
        there = 1
        for number, partitions in enumerate(steps):
            if partitions > there:
                cluster.create_topic(f"others-{number}", partitions - there)
                there = partitions
            time.sleep(min(_SETTLE_SECONDS, scale.rounds * 2.0))
            idle = _idle_cores(cluster, scale)
            last = _cost(cluster, leader, scale, idle)
            first = first or last
            table.add(partitions, last, last / first, idle)
    figure = f"CPU of a record, {steps[-1]:,} partitions against {steps[0]:,}"
    goal = Goal(figure=figure, to_reach=GOAL_RECORD, measured=last / first)
    return Outcome(tables=[table], goals=[goal])


def _cost(cluster: RunningCluster, leader: int, scale: Scale, idle_cores: float) -> float:
    prepared = produce(_TOPIC, make_batch(_RECORD_BYTES, _RECORD_BYTES), acks=_ALL)
    count, rounds = scale.requests // 5, []
    with RawClient(cluster.brokers[leader]) as client:
        client.exchange(prepared)
        for _ in range(scale.rounds):
            cpu, before = cluster.cpu_seconds(), time.perf_counter()
            for _ in range(count):
                client.exchange(prepared)
            seconds = time.perf_counter() - before
            spent = max(0.0, cluster.cpu_seconds() - cpu - idle_cores * seconds)
            rounds.append(Measured(seconds, spent, count, 0))
    return least(rounds, CPU_US_PER_REQUEST)


def _idle_cores(cluster: RunningCluster, scale: Scale) -> float:
    seconds = min(_IDLE_SECONDS, scale.rounds * 1.0)
    cpu, before = cluster.cpu_seconds(), time.perf_counter()
    time.sleep(seconds)
    return (cluster.cpu_seconds() - cpu) / (time.perf_counter() - before)
