"""What `moldau bench` measures, in rounds: producing, consuming, latency, small requests."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from moldau.cli.options import security_options
from moldau.cli.output import Progress, note, print_document, print_table
from moldau.cli.reporting import warnings_shown
from moldau.cli.session import command_settings, made_for_millions
from moldau.client.admin.client import AsyncAdmin
from moldau.client.admin.values import BROKER_DEFAULT, NewTopic
from moldau.client.cluster import ClusterClient
from moldau.client.consumer.consumer import AsyncConsumer
from moldau.client.producer.producer import AsyncProducer
from moldau.errors import KafkaError, NoAnswerError, TopicAuthorizationError
from moldau.model import TopicPartition
from moldau.wire.apis import METADATA

PERCENTILES = (50.0, 95.0, 99.0, 99.9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One measurement: how much was done in which time, and how long single things took."""

    count: int  # records or requests
    size_bytes: int
    seconds: float
    latencies_ms: Mapping[str, float]  # by the name of the percentile; empty where not measured

    @property
    def per_second(self) -> float:
        return self.count / self.seconds if self.seconds > 0 else 0.0

    @property
    def megabytes_per_second(self) -> float:
        return self.size_bytes / self.seconds / 1e6 if self.seconds > 0 else 0.0

    def values(self) -> dict[str, float]:
        """All that can be compared, by name."""
        found = {"per_second": self.per_second}
        if self.size_bytes:
            found["megabytes_per_second"] = self.megabytes_per_second
        return {**found, **{f"{name}_ms": value for name, value in self.latencies_ms.items()}}


def percentiles_ms(samples: Sequence[tuple[float, int]]) -> dict[str, float]:
    """Of seconds, each of which counts for so many things; in milliseconds, with the maximum."""
    ordered = sorted(samples)
    total = sum(weight for _, weight in ordered)
    if not total:
        return {}
    found: dict[str, float] = {}
    for wanted in PERCENTILES:
        rank, seen = math.ceil(total * wanted / 100), 0
        for seconds, weight in ordered:
            seen += weight
            if seen >= rank:
                found[f"p{wanted:g}"] = seconds * 1000
                break
    found["max"] = ordered[-1][0] * 1000
    return found


def middle(rounds: Sequence[Figures]) -> dict[str, float]:
    """The median of each value over several rounds."""
    names = [name for name in rounds[0].values() if all(name in one.values() for one in rounds)]
    return {name: median(one.values()[name] for one in rounds) for name in names}


def show_value(name: str, value: float) -> str:
    if name == "per_second":
        return f"{value:,.0f}"
    return f"{value:,.1f}" if value >= 10 else f"{value:.3g}"


def title_of(name: str, counted: str) -> str:
    """What a value is called in a table."""
    if name == "per_second":
        return f"{counted}/s"
    return "MB/s" if name == "megabytes_per_second" else name.replace("_ms", " ms")


# What is measured: producing, consuming, the way of one record, and small requests.
#
# A shell over the public client: it works against any cluster that speaks Kafka's protocol. Each
# function measures one round and returns its figures.


SENT_AT_ONCE_BYTES = 256 << 10
MOST_UNDER_WAY = 32
"""Pieces of `SENT_AT_ONCE_BYTES` that are sent and not confirmed."""

_SILENT_SECONDS = 30.0
_CLIENT_ID = "moldau-bench"
_PREFIX = "moldau-bench-"
_NEEDS_A_TOPIC = (
    f"it measures with a topic of its own, {_PREFIX}…, and you may not make one; an administrator "
    "grants it with `moldau acls add --allow-principal User:NAME --operation all "
    f"--topic {_PREFIX} --resource-pattern-type prefixed`"
)

OnProgress = Callable[[int, int], None]
"""Told how many records and bytes have gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is sent, and how."""

    record_bytes: int = 1024
    seconds: float = 10.0
    acks: str = "all"
    compression: str = "none"
    partitions: int = 1
    replication_factor: int = BROKER_DEFAULT
    options: Mapping[str, str] = field(default_factory=dict)  # of producers and consumers
    topic: str | None = None  # None: one of its own, that is removed afterwards


@contextlib.asynccontextmanager
async def bench_topic(bootstrap: str, load: Load) -> AsyncIterator[str]:
    """The topic that was named, or one for the measurement alone, which goes with it."""
    if load.topic is not None:
        yield load.topic
        return
    name = f"{_PREFIX}{uuid.uuid4().hex[:12]}"
    async with AsyncAdmin(bootstrap, command_settings()) as admin:
        wanted = NewTopic(
            name=name, partitions=load.partitions, replication_factor=load.replication_factor
        )
        made = (await admin.create_topics([wanted]))[name]
        if isinstance(made, TopicAuthorizationError):
            raise TopicAuthorizationError(_NEEDS_A_TOPIC)
        if isinstance(made, KafkaError):
            raise made
        try:
            yield name
        finally:
            await asyncio.shield(admin.delete_topics([name]))


def make_values(record_bytes: int, count: int) -> list[bytes]:
    """Half of each is noise and half of it text that repeats: what codecs meet in practice."""
    noise = random.Random(7)  # noqa: S311 the same for every cluster that is measured
    text = b"moldau carries water "
    values = []
    for _ in range(count):
        head = noise.randbytes(record_bytes // 2)
        values.append((head + text * (record_bytes // len(text) + 1))[:record_bytes])
    return values


@contextlib.asynccontextmanager
async def _under_way() -> AsyncIterator[set[asyncio.Task[None]]]:
    """Tasks of a measurement: who leaves it early, by Ctrl-C too, leaves none behind."""
    tasks: set[asyncio.Task[None]] = set()
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _take_done(tasks: set[asyncio.Task[None]]) -> None:
    """Forget those that have ended; raises what one of them failed with."""
    for task in [one for one in tasks if one.done()]:
        tasks.discard(task)
        task.result()


async def measure_produce(
    bootstrap: str, topic: str, load: Load, on_progress: OnProgress
) -> Figures:
    """As much as goes in the time; how long a piece takes from `send` to its confirmation."""
    values = make_values(load.record_bytes, max(1, SENT_AT_ONCE_BYTES // load.record_bytes))
    samples: list[tuple[float, int]] = []
    count = len(values)
    confirmed = 0

    async def send() -> None:
        nonlocal confirmed
        began = time.perf_counter()
        await (await producer.send_many(topic, values))
        samples.append((time.perf_counter() - began, count))
        confirmed += count
        on_progress(confirmed, confirmed * load.record_bytes)

    async with _producer(bootstrap, load) as producer, _under_way() as under_way:
        await (await producer.send_many(topic, values[:1]))  # connections and metadata
        began = time.perf_counter()
        while time.perf_counter() - began < load.seconds:
            if len(under_way) >= MOST_UNDER_WAY:
                await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                _take_done(under_way)
            under_way.add(asyncio.create_task(send()))
            await asyncio.sleep(0)
        await asyncio.gather(*under_way)
        seconds = time.perf_counter() - began
    return Figures(
        count=confirmed,
        size_bytes=confirmed * load.record_bytes,
        seconds=seconds,
        latencies_ms=percentiles_ms(samples),
    )


async def measure_consume(
    bootstrap: str, topic: str, load: Load, on_progress: OnProgress, *, decode: bool = False
) -> Figures:
    """Everything in the topic, once, at most as long as the time; as batches, or decoded."""
    async with _consumer(bootstrap, load) as consumer:
        described = await consumer.partitions_for(topic)
        partitions = [TopicPartition(topic, row.index) for row in described.partitions]
        ends = await consumer.end_offsets(partitions)
        begins = await consumer.beginning_offsets(partitions)
        left = {one for one in partitions if begins[one] < ends[one]}
        consumer.assign(sorted(left))
        consumer.seek_to_beginning()
        count = size_bytes = 0
        began = last = time.perf_counter()
        while left:
            now = time.perf_counter()
            if decode:
                records = await consumer.poll(0.5, max_records=5000)
                count += len(records)
                size_bytes += sum(len(one.value or b"") + len(one.key or b"") for one in records)
                if records:
                    last = time.perf_counter()
                reached = {
                    TopicPartition(one.topic, one.partition): one.offset + 1 for one in records
                }
            else:
                batches = await consumer.poll_batches(0.5)
                count += sum(one.header.record_count for one in batches)
                size_bytes += sum(len(one.data) for one in batches)
                if batches:
                    last = time.perf_counter()
                reached = {one.partition: one.next_offset for one in batches}
            left -= {one for one, offset in reached.items() if offset >= ends[one]}
            on_progress(count, size_bytes)
            if now - began >= load.seconds and count:
                break
            if now - last >= _SILENT_SECONDS:
                raise NoAnswerError(f"nothing came from {topic} for {_SILENT_SECONDS:g} s")
        seconds = max(last - began, 1e-6)
    return Figures(count=count, size_bytes=size_bytes, seconds=seconds, latencies_ms={})


async def measure_latency(
    bootstrap: str, topic: str, load: Load, on_progress: OnProgress, *, records_per_second: float
) -> Figures:
    """From `send` until a consumer has the record, at a steady rate."""
    (value,) = make_values(load.record_bytes, 1)
    sent: dict[tuple[int, int], float] = {}
    samples: list[tuple[float, int]] = []
    async with (
        _producer(bootstrap, load, linger_ms=0) as producer,
        _consumer(bootstrap, load) as consumer,
        _under_way() as waiting,
    ):
        described = await consumer.partitions_for(topic)
        consumer.assign([TopicPartition(topic, row.index) for row in described.partitions])
        consumer.seek_to_end()
        await consumer.poll(0.0)
        for row in described.partitions:
            await consumer.position(TopicPartition(topic, row.index))
        arrivals: dict[tuple[int, int], float] = {}

        async def send() -> None:
            began = time.perf_counter()
            written = await (await producer.send(topic, value))
            sent[written.partition, written.offset] = began

        async def receive() -> None:
            while True:
                for record in await consumer.poll(0.5):
                    arrivals[record.partition, record.offset] = time.perf_counter()
                on_progress(len(arrivals), len(arrivals) * load.record_bytes)

        receiver = asyncio.create_task(receive())
        began = time.perf_counter()
        try:
            number = 0
            while (now := time.perf_counter()) - began < load.seconds:
                due = began + number / records_per_second
                if due > now:
                    await asyncio.sleep(due - now)
                waiting.add(asyncio.create_task(send()))
                _take_done(waiting)
                number += 1
            await asyncio.gather(*tuple(waiting))
            deadline = time.perf_counter() + _SILENT_SECONDS
            while not sent.keys() <= arrivals.keys() and time.perf_counter() < deadline:
                if receiver.done():
                    receiver.result()
                await asyncio.sleep(0.01)
        finally:
            receiver.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await receiver
        seconds = time.perf_counter() - began
    samples = [(arrivals[key] - at, 1) for key, at in sent.items() if key in arrivals]
    return Figures(
        count=len(samples),
        size_bytes=len(samples) * load.record_bytes,
        seconds=seconds,
        latencies_ms=percentiles_ms(samples),
    )


async def measure_requests(
    bootstrap: str, load: Load, on_progress: OnProgress, *, in_flight: int
) -> Figures:
    """Metadata of no topic, on one connection, so many at once."""
    values: dict[str, object] = {"topics": [], "allow_auto_topic_creation": False}
    client = ClusterClient(bootstrap, command_settings())
    samples: list[tuple[float, int]] = []
    try:
        connection = await client.pool.to_any()
        version = connection.choose_version(METADATA, at_least=4, at_most=7)
        began = time.perf_counter()

        async def ask() -> None:
            while (asked := time.perf_counter()) - began < load.seconds:
                await connection.call(METADATA, values, version=version)
                samples.append((time.perf_counter() - asked, 1))
                if len(samples) % 256 == 0:
                    on_progress(len(samples), 0)

        await asyncio.gather(*(ask() for _ in range(in_flight)))
        seconds = time.perf_counter() - began
    finally:
        await client.close()
    return Figures(
        count=len(samples), size_bytes=0, seconds=seconds, latencies_ms=percentiles_ms(samples)
    )


def _producer(bootstrap: str, load: Load, **options: object) -> AsyncProducer:
    given: dict[str, object] = {
        "client_id": _CLIENT_ID,
        "acks": load.acks,
        "compression_type": load.compression,
        **security_options(),
        **options,
        **_underscored(load.options),
    }
    return AsyncProducer(bootstrap, **given)  # type: ignore[arg-type]  # any option's value


def _consumer(bootstrap: str, load: Load) -> AsyncConsumer:
    given: dict[str, object] = {"client_id": _CLIENT_ID, **security_options()}
    return AsyncConsumer(bootstrap, **given)  # type: ignore[arg-type]  # any option's value


def _underscored(options: Mapping[str, str]) -> dict[str, str]:
    return {name.replace(".", "_"): value for name, value in options.items()}


Measure = Callable[[str, Callable[[int, int], None]], Awaitable[Figures]]
"""One round against the brokers that are named; the other is told how far it is."""


def run_rounds(
    measure: Measure,
    *,
    bootstrap: str,
    against: str | None,
    rounds: int,
    counted: str,
    as_json: bool,
) -> None:
    """Measure, in turns where there are two clusters: what else goes on hits both alike."""
    clusters = [bootstrap] if against is None else [bootstrap, against]
    found: dict[str, list[Figures]] = {one: [] for one in clusters}
    with warnings_shown(), made_for_millions():
        for number in range(rounds):
            for cluster in clusters:
                progress = Progress(has_end=True)
                figures = asyncio.run(_measure(measure, cluster, progress))
                found[cluster].append(figures)
                if rounds > 1 or against is not None:
                    rate = f"{figures.per_second:,.0f} {counted}/s"
                    note(f"round {number + 1} of {rounds}, {cluster}: {rate}")
    _show(found, counted, as_json)


async def _measure(measure: Measure, cluster: str, progress: Progress) -> Figures:
    try:
        return await measure(cluster, lambda count, size_bytes: progress.show(count, size_bytes))
    finally:
        progress.clear()


def _show(found: Mapping[str, Sequence[Figures]], counted: str, as_json: bool) -> None:
    middles = {cluster: middle(rounds) for cluster, rounds in found.items()}
    clusters = list(found)
    names = list(middles[clusters[0]])
    ratios: dict[str, float] = {}
    if len(clusters) > 1:
        first, other = (middles[cluster] for cluster in clusters)
        ratios = {name: first[name] / other[name] for name in names if other.get(name)}
    if as_json:
        print_document(
            {
                "clusters": [
                    {
                        "bootstrap": cluster,
                        **middles[cluster],
                        "rounds": [
                            {"count": one.count, "seconds": one.seconds, **one.values()}
                            for one in found[cluster]
                        ],
                    }
                    for cluster in clusters
                ],
                **({"ratio": ratios} if ratios else {}),
            }
        )
        return
    columns = ["", *(f">{title_of(name, counted)}" for name in names)]
    rows = [
        (cluster, *(show_value(name, middles[cluster][name]) for name in names))
        for cluster in clusters
    ]
    if ratios:
        rows.append(("ratio", *(f"{ratios[name]:.2f}" if name in ratios else "" for name in names)))
    print_table(columns, rows)
