"""`moldau plan`: how many partitions a topic needs for a throughput, and what they cost."""

from __future__ import annotations

import asyncio
from typing import Annotated, NamedTuple

import typer

from moldau.cli.bench_run import Load, bench_topic, measure_consume, measure_produce
from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, option
from moldau.cli.output import Progress, note, print_document, print_table
from moldau.cli.reporting import warnings_shown
from moldau.cli.session import command_settings, made_for_millions
from moldau.client.admin.client import AsyncAdmin
from moldau.client.admin.values import BROKER_DEFAULT, TopicMetadata
from moldau.ops.formatting import byte_rate_text, parse_byte_rate, plural
from moldau.ops.metrics_ports import find_ports
from moldau.ops.rules.partition_plan import Demand, plan_partitions


class _Measured(NamedTuple):
    produce_rate: float
    consume_rate: float
    brokers: int
    replication_factor: int
    existing_partitions: int
    is_foreign: bool


def plan(
    target: Annotated[str, option("RATE", "The throughput that is wanted, like 200MB/s.")],
    record_size: Annotated[int, option("BYTES", "Of a record.", min=1)] = 1024,
    codec: Annotated[str, option("CODEC", "none, gzip, snappy, lz4 or zstd.")] = "none",
    acks: Annotated[str, option("0|1|all", "Who has to have a record.")] = "all",
    replication_factor: Annotated[
        int | None, option("N", "Copies.", default="the broker's own", min=1)
    ] = None,
    brokers: Annotated[
        int | None, option("N", "To plan for.", default="as many as there are", min=1)
    ] = None,
    produce_rate: Annotated[
        str | None,
        option("RATE", "What one partition takes, where that is known.", default="measured"),
    ] = None,
    consume_rate: Annotated[
        str | None,
        option(
            "RATE",
            "What one consumer of yours gets through, with all that it does.",
            default="what the cluster gives a reader, measured",
        ),
    ] = None,
    seconds: Annotated[float, option("S", "How long each measurement takes.", min=0.1)] = 5.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Tell how many partitions a topic needs for a throughput, and what they cost.

    Measures what one partition takes in (p) and gives out (c), on a topic of its own that is
    removed again, and answers with max(target/p, target/c).
    """
    wanted = parse_byte_rate(target)
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
        None if produce_rate is None else parse_byte_rate(produce_rate),
        None if consume_rate is None else parse_byte_rate(consume_rate),
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
        f"{plural(made.partitions, 'partition')} for {byte_rate_text(wanted)}\n"
        f"  one partition takes {byte_rate_text(demand.produce_rate)}: {made.for_producing}\n"
        f"  one partition gives {byte_rate_text(demand.consume_rate)}: {made.for_consuming}\n"
    )
    rows = [(one.name.replace("_", " "), one.shown, one.reason) for one in made.costs]
    print_table(("cost", ">", "why"), rows)
    for warning in made.warnings:
        note(f"warning: {warning}")


def _measure(
    bootstrap: str, load: Load, produce_rate: float | None, consume_rate: float | None
) -> _Measured:

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
