"""`moldau plan`: how many partitions a topic needs for a throughput, and what they cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple

import typer

from moldau.cli.bench_run import (
    Load,
    bench_topic,
    measure_consume,
    measure_produce,
    parse_rate,
    rate_text,
)
from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from moldau.cli.output import Column, Progress, note, print_document, print_table
from moldau.cli.reporting import warnings_shown
from moldau.cli.session import command_settings, made_for_millions
from moldau.client.admin.client import AsyncAdmin
from moldau.client.admin.values import BROKER_DEFAULT, TopicMetadata
from moldau.ops.formatting import plural
from moldau.ops.metrics_ports import find_ports


class _Measured(NamedTuple):
    produce_rate: float
    consume_rate: float
    brokers: int
    replication_factor: int
    existing_partitions: int
    is_foreign: bool


def plan(
    target: Annotated[
        str,
        typer.Option(
            metavar="RATE", help="The throughput that is wanted, like 200MB/s.", show_default=False
        ),
    ],
    record_size: Annotated[int, typer.Option(min=1, metavar="BYTES", help="Of a record.")] = 1024,
    codec: Annotated[
        str, typer.Option(metavar="CODEC", help="none, gzip, snappy, lz4 or zstd.")
    ] = "none",
    acks: Annotated[str, typer.Option(metavar="0|1|all", help="Who has to have a record.")] = "all",
    replication_factor: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Copies.", show_default="the broker's own"),
    ] = None,
    brokers: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="To plan for.", show_default="as many as there are"),
    ] = None,
    produce_rate: Annotated[
        str | None,
        typer.Option(
            metavar="RATE",
            help="What one partition takes, where that is known.",
            show_default="measured",
        ),
    ] = None,
    consume_rate: Annotated[
        str | None,
        typer.Option(
            metavar="RATE",
            help="What one consumer of yours gets through, with all that it does.",
            show_default="what the cluster gives a reader, measured",
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.1, metavar="S", help="How long each measurement takes.")
    ] = 5.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Tell how many partitions a topic needs for a throughput, and what they cost.

    Measures what one partition takes in (p) and gives out (c), on a topic of its own that is
    removed again, and answers with max(target/p, target/c).
    """
    wanted = parse_rate(target)
    load = Load(
        record_bytes=record_size,
        seconds=seconds,
        acks=acks,
        compression=codec,
        replication_factor=replication_factor or BROKER_DEFAULT,
    )
    measured = _measure(
        bootstrap,
        load,
        None if produce_rate is None else parse_rate(produce_rate),
        None if consume_rate is None else parse_rate(consume_rate),
    )
    demand = Demand(
        target=wanted,
        produce_rate=measured.produce_rate,
        consume_rate=measured.consume_rate,
        replication_factor=measured.replication_factor,
        brokers=brokers or measured.brokers,
        existing_partitions=measured.existing_partitions,
        is_foreign=measured.is_foreign,
    )
    made = plan_partitions(demand)
    if as_json:
        print_document(
            {
                "partitions": made.partitions,
                "target": demand.target,
                "produce_rate": demand.produce_rate,
                "consume_rate": demand.consume_rate,
                "replication_factor": demand.replication_factor,
                "brokers": demand.brokers,
                "for_producing": made.for_producing,
                "for_consuming": made.for_consuming,
                "costs": {one.name: one.value for one in made.costs},
                "warnings": list(made.warnings),
            }
        )
        return
    typer.echo(
        f"{plural(made.partitions, 'partition')} for {rate_text(wanted)}\n"
        f"  one partition takes {rate_text(demand.produce_rate)}: {made.for_producing}\n"
        f"  one partition gives {rate_text(demand.consume_rate)}: {made.for_consuming}\n"
    )
    rows = [(one.name.replace("_", " "), one.shown, one.reason) for one in made.costs]
    print_table((Column("cost"), Column("", is_number=True), Column("why")), rows)
    for warning in made.warnings:
        note(f"warning: {warning}")


def _measure(
    bootstrap: str, load: Load, produce_rate: float | None, consume_rate: float | None
) -> _Measured:
    import asyncio

    async def measure() -> _Measured:
        progress = Progress(has_end=True)
        async with AsyncAdmin(bootstrap, command_settings()) as admin:
            cluster = await admin.describe_cluster()
            existing = await admin.describe_topics(await admin.list_topics())
            partitions = sum(
                len(one.partitions) for one in existing.values() if isinstance(one, TopicMetadata)
            )
            async with bench_topic(bootstrap, load) as name:
                topic = (await admin.describe_topics([name]))[name]
                copies = (
                    len(topic.partitions[0].replicas) if isinstance(topic, TopicMetadata) else 1
                )
                into, out_of = produce_rate, consume_rate
                if into is None or out_of is None:
                    produced = await measure_produce(bootstrap, name, load, progress.show)
                    into = into or produced.per_second * load.record_bytes
                if out_of is None:
                    read = await measure_consume(bootstrap, name, load, progress.show)
                    out_of = read.per_second * load.record_bytes
            progress.clear()
            is_foreign = (await find_ports(admin)).is_foreign
        return _Measured(into, out_of, len(cluster.brokers), copies, partitions, is_foreign)

    with warnings_shown(), made_for_millions():
        return asyncio.run(measure())


# How many partitions a topic needs for a throughput, and what they cost. Pure.
#
# The rule is the usual one: with p and c for what one partition takes in and gives out, a target t
# needs max(t/p, t/c) partitions. Costs are per broker, of the new topic alone; the coefficients
# were measured (docs/benchmarks.md, docs/scale.md) and are said with each figure.


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
            shown=_size(memory),
            reason="17 kB for each replica, 1.4 kB for each partition of the cluster",
        ),
        Cost(
            name="producer_memory_bytes",
            value=producer,
            shown=_size(producer),
            reason="a batch of 16 KiB (batch.size) for each partition, in each producer",
        ),
        Cost(
            name="consumer_memory_bytes",
            value=consumer,
            shown=_size(consumer),
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
            shown=f"{_size(traffic)}/s",
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


def _size(size_bytes: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < 1000:
            return f"{size_bytes:.3g} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:,.3g} TB"
