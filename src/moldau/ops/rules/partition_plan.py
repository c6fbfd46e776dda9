"""How many partitions a topic needs for a throughput, and what they cost. Rules.

With p and c for what one partition takes in and gives out, a target t needs max(t/p, t/c)
partitions, as usual. Costs are per broker, of the new topic alone. The coefficients were measured
(docs/benchmarks.md, docs/scale.md) and are shown with each figure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from moldau.ops.formatting import decimal_size_text, plural

FILES_PER_REPLICA: Final = 3
"""Of the segment that is written: log, offset index, time index."""

REPLICA_BYTES: Final = 17_000
PARTITION_BYTES: Final = 1_400
"""In the metadata of every broker, hosted there or not."""

SESSION_SECONDS: Final = 9.0
"""`zookeeper.session.timeout.ms`: until then nobody knows that a broker is gone."""
ELECTION_SECONDS_PER_PARTITION: Final = 0.0003
"""Planning, writing and reading the new state of one partition, and becoming its leader."""

_BATCH_BYTES: Final = 16_384
_FETCH_BYTES_PER_PARTITION: Final = 1 << 20
_FETCH_BYTES: Final = 50 << 20
_RULE_PER_BROKER: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What is wanted, and what one partition does."""

    target: float  # all rates in bytes per second, of records before compression
    produce_rate: float
    consume_rate: float
    replication_factor: int
    brokers: int
    existing_partitions: int = 0  # in the cluster
    is_foreign: bool = False  # the brokers are not Moldau's


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One thing that partitions cost."""

    name: str
    value: float
    shown: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """The answer."""

    partitions: int
    for_producing: int
    for_consuming: int
    costs: tuple[Cost, ...]
    warnings: tuple[str, ...]


def plan_partitions(demand: Demand) -> PartitionPlan:
    for_producing = max(1, math.ceil(demand.target / demand.produce_rate - 1e-9))
    for_consuming = max(1, math.ceil(demand.target / demand.consume_rate - 1e-9))
    partitions = max(for_producing, for_consuming)
    return PartitionPlan(
        partitions=partitions,
        for_producing=for_producing,
        for_consuming=for_consuming,
        costs=_costs(partitions, demand),
        warnings=_warnings(partitions, demand),
    )


def _costs(partitions: int, demand: Demand) -> tuple[Cost, ...]:
    replicas = math.ceil(partitions * demand.replication_factor / demand.brokers)
    handles = replicas * FILES_PER_REPLICA
    memory = replicas * REPLICA_BYTES + partitions * PARTITION_BYTES
    producer = partitions * _BATCH_BYTES
    consumer = min(partitions * _FETCH_BYTES_PER_PARTITION, _FETCH_BYTES * demand.brokers)
    led = math.ceil(partitions / demand.brokers)
    failover = SESSION_SECONDS + led * ELECTION_SECONDS_PER_PARTITION
    traffic = demand.target * (demand.replication_factor - 1)
    return (
        Cost(
            name="replicas_per_broker",
            value=replicas,
            shown=f"{replicas:,}",
            reason=f"{partitions} x {demand.replication_factor} on "
            f"{plural(demand.brokers, 'broker')}",
        ),
        Cost(
            name="file_handles_per_broker",
            value=handles,
            shown=f"{handles:,}",
            reason=f"{FILES_PER_REPLICA} for the segment that is written; older ones when read",
        ),
        Cost(
            name="broker_memory_bytes",
            value=memory,
            shown=decimal_size_text(memory),
            reason="17 kB for each replica, 1.4 kB for each partition of the cluster",
        ),
        Cost(
            name="producer_memory_bytes",
            value=producer,
            shown=decimal_size_text(producer),
            reason="a batch of 16 KiB (batch.size) for each partition, in each producer",
        ),
        Cost(
            name="consumer_memory_bytes",
            value=consumer,
            shown=decimal_size_text(consumer),
            reason="1 MiB for each partition, 50 MiB for each broker, if one consumer reads it all",
        ),
        Cost(
            name="failover_seconds",
            value=failover,
            shown=f"{failover:.1f} s",
            reason=f"the session ({SESSION_SECONDS:g} s by default), then "
            f"{plural(led, 'election')}",
        ),
        Cost(
            name="replication_bytes_per_second",
            value=traffic,
            shown=f"{decimal_size_text(traffic)}/s",
            reason="between brokers, at the target",
        ),
    )


def _warnings(partitions: int, demand: Demand) -> tuple[str, ...]:
    found = []
    limit = _RULE_PER_BROKER * demand.brokers * demand.replication_factor
    all_partitions = partitions + demand.existing_partitions
    per_broker = math.ceil(all_partitions * demand.replication_factor / demand.brokers)
    if per_broker > limit:
        found.append(
            f"{per_broker:,} replicas on a broker are more than 100 x {demand.brokers} brokers x "
            f"{demand.replication_factor} copies = {limit:,}, the usual bound for low latency"
        )
    if demand.is_foreign:
        found.append(
            "these brokers are not Moldau's: memory, file handles and failover are what brokers of "
            "Moldau would need"
        )
    if demand.replication_factor > demand.brokers:
        found.append(
            f"{demand.replication_factor} copies need as many brokers; there are {demand.brokers}"
        )
    return tuple(found)
