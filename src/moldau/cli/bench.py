"""`moldau bench`: measures any cluster that speaks Kafka's protocol, or two side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import typer

from moldau.cli.bench_run import (
    Figures,
    Load,
    Measure,
    bench_topic,
    measure_consume,
    measure_latency,
    measure_produce,
    measure_requests,
    run_rounds,
)
from moldau.cli.options import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    parse_settings,
    with_option_groups,
)
from moldau.client.admin.values import BROKER_DEFAULT

Against = Annotated[
    str | None,
    typer.Option(
        "--against",
        metavar="HOST:PORT,...",
        help="Another cluster to measure beside it, in turns.",
        show_default=False,
    ),
]
Rounds = Annotated[int, typer.Option(min=1, metavar="N", help="Rounds; the median is shown.")]
Seconds = Annotated[float, typer.Option(min=0.1, metavar="S", help="How long a round takes.")]
RecordSize = Annotated[int, typer.Option(min=1, metavar="BYTES", help="Of each record's value.")]
Partitions = Annotated[
    int, typer.Option(min=1, metavar="N", help="Of the topic that is made for it.")
]
ReplicationFactor = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Copies of the topic that is made for it.",
        show_default="the broker's own",
    ),
]
Topic = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="A topic that is there, and stays.",
        show_default="one for the measurement",
    ),
]
Acks = Annotated[str, typer.Option(metavar="0|1|all", help="Who has to have a record.")]
Compression = Annotated[str, typer.Option(metavar="CODEC", help="none, gzip, snappy, lz4 or zstd.")]
Options = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="An option of the producer; repeat for more."),
]


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What is sent, and to which topic."""

    record_size: RecordSize = 1024
    seconds: Seconds = 10.0
    partitions: Partitions = 1
    replication_factor: ReplicationFactor = None
    topic: Topic = None
    acks: Acks = "all"
    compression: Compression = "none"
    settings: Options = None

    def to_load(self) -> Load:
        return Load(
            record_bytes=self.record_size,
            seconds=self.seconds,
            acks=self.acks,
            compression=self.compression,
            partitions=self.partitions,
            replication_factor=self.replication_factor or BROKER_DEFAULT,
            options=parse_settings(self.settings or (), "--set"),
            topic=self.topic,
        )


@dataclass(frozen=True, slots=True)
class RoundOptions:
    """How often, and against which clusters."""

    rounds: Rounds = 1
    against: Against = None
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP
    as_json: AsJson = False

    def run(self, measure: Measure, *, counted: str) -> None:
        run_rounds(
            measure,
            bootstrap=self.bootstrap,
            against=self.against,
            rounds=self.rounds,
            counted=counted,
            as_json=self.as_json,
        )


@with_option_groups
def produce(options: LoadOptions, run: RoundOptions) -> None:
    """Measure how fast records go in, and how long their confirmation takes."""
    load = options.to_load()

    async def measure(cluster: str, on_progress: Callable[[int, int], None]) -> Figures:
        async with bench_topic(cluster, load) as name:
            return await measure_produce(cluster, name, load, on_progress)

    run.run(measure, counted="records")


@with_option_groups
def consume(
    options: LoadOptions,
    run: RoundOptions,
    decode: Annotated[
        bool, typer.Option("--decode", help="Make records of the batches, as programs do.")
    ] = False,
) -> None:
    """Measure how fast records come out.

    Without --topic a topic is filled first, for as long as a round takes.
    """
    load = options.to_load()

    async def measure(cluster: str, on_progress: Callable[[int, int], None]) -> Figures:
        async with bench_topic(cluster, load) as name:
            if load.topic is None:
                await measure_produce(cluster, name, load, on_progress)
            return await measure_consume(cluster, name, load, on_progress, decode=decode)

    run.run(measure, counted="records")


@with_option_groups
def latency(
    options: LoadOptions,
    run: RoundOptions,
    rate: Annotated[float, typer.Option(min=0.1, metavar="N", help="Records per second.")] = 1000.0,
) -> None:
    """Measure how long a record takes from its producer to a consumer, at a steady rate."""
    load = options.to_load()

    async def measure(cluster: str, on_progress: Callable[[int, int], None]) -> Figures:
        async with bench_topic(cluster, load) as name:
            return await measure_latency(cluster, name, load, on_progress, records_per_second=rate)

    run.run(measure, counted="records")


@with_option_groups
def requests(
    run: RoundOptions,
    in_flight: Annotated[
        int, typer.Option(min=1, metavar="N", help="Requests under way at once.")
    ] = 1,
    seconds: Seconds = 10.0,
) -> None:
    """Measure small requests on one connection, one after the other or several at once."""

    async def measure(cluster: str, on_progress: Callable[[int, int], None]) -> Figures:
        load = Load(seconds=seconds)
        return await measure_requests(cluster, load, on_progress, in_flight=in_flight)

    run.run(measure, counted="requests")
