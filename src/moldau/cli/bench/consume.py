"""`moldau bench consume`."""

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


def consume(
    decode: Annotated[
        bool, typer.Option("--decode", help="Make records of the batches, as programs do.")
    ] = False,
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
    """Measure how fast records come out.

    Without --topic a topic is filled first, for as long as a round takes.
    """
    from moldau.cli.bench.loads import Load, bench_topic, measure_consume, measure_produce
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
            if load.topic is None:
                await measure_produce(cluster, name, load, on_progress)
            return await measure_consume(cluster, name, load, on_progress, decode=decode)

    run_rounds(
        measure,
        bootstrap=bootstrap,
        against=against,
        rounds=rounds,
        counted="records",
        as_json=as_json,
    )
