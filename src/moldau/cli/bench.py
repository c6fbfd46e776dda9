"""`moldau bench`: measures any cluster that speaks Kafka's protocol, or two side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

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
    flag,
    option,
    parse_settings,
    with_option_groups,
)
from moldau.client.admin.values import BROKER_DEFAULT

Against = Annotated[
    str | None,
    option("HOST:PORT,...", "Another cluster to measure beside it, in turns.", "--against"),
]
Rounds = Annotated[int, option("N", "Rounds; the median is shown.", min=1)]
Seconds = Annotated[float, option("S", "How long a round takes.", min=0.1)]
RecordSize = Annotated[int, option("BYTES", "Of each record's value.", min=1)]
Partitions = Annotated[int, option("N", "Of the topic that is made for it.", min=1)]
ReplicationFactor = Annotated[
    int | None,
    option("N", "Copies of the topic that is made for it.", default="the broker's own", min=1),
]
Topic = Annotated[
    str | None,
    option("NAME", "A topic that is there, and stays.", default="one for the measurement"),
]
Acks = Annotated[str, option("0|1|all", "Who has to have a record.")]
Compression = Annotated[str, option("CODEC", "none, gzip, snappy, lz4 or zstd.")]
Options = Annotated[
    list[str] | None, option("KEY=VALUE", "An option of the producer; repeat for more.", "--set")
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
        bool, flag("--decode", "Make records of the batches, as programs do.")
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
    rate: Annotated[float, option("N", "Records per second.", min=0.1)] = 1000.0,
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
    in_flight: Annotated[int, option("N", "Requests under way at once.", min=1)] = 1,
    seconds: Seconds = 10.0,
) -> None:
    """Measure small requests on one connection, one after the other or several at once."""

    async def measure(cluster: str, on_progress: Callable[[int, int], None]) -> Figures:
        load = Load(seconds=seconds)
        return await measure_requests(cluster, load, on_progress, in_flight=in_flight)

    run.run(measure, counted="requests")
