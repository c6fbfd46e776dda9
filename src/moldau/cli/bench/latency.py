"""`moldau bench latency`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.bench.options import (
    Acks,
    Against,
    Compression,
    Options,
    Partitions,
    RecordSize,
    ReplicationFactor,
    Rounds,
    Seconds,
    Topic,
)
from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, parse_settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from moldau.cli.bench.figures import Figures


def latency(
    rate: Annotated[float, typer.Option(min=0.1, metavar="N", help="Records per second.")] = 1000.0,
    record_size: RecordSize = 1024,
    seconds: Seconds = 10.0,
    partitions: Partitions = 1,
    replication_factor: ReplicationFactor = None,
    topic: Topic = None,
    acks: Acks = "all",
    compression: Compression = "none",
    settings: Options = None,
    rounds: Rounds = 1,
    against: Against = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Measure how long a record takes from its producer to a consumer, at a steady rate."""
    from moldau.cli.bench.loads import Load, bench_topic, measure_latency
    from moldau.cli.bench.run import run_rounds
    from moldau.client.admin_values import BROKER_DEFAULT

    load = Load(
        record_bytes=record_size,
        seconds=seconds,
        acks=acks,
        compression=compression,
        partitions=partitions,
        replication_factor=replication_factor or BROKER_DEFAULT,
        options=parse_settings(settings or (), "--set"),
        topic=topic,
    )

    async def measure(cluster: str, on_progress: Callable[[int, int], None]) -> Figures:
        async with bench_topic(cluster, load) as name:
            return await measure_latency(cluster, name, load, on_progress, records_per_second=rate)

    run_rounds(
        measure,
        bootstrap=bootstrap,
        against=against,
        rounds=rounds,
        counted="records",
        as_json=as_json,
    )
