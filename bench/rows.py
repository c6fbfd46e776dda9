"""The rows of the table: a load, the systems it is held against, and how much it matters.

A new row is one entry here. Names are `group/what`, and `python -m bench group` runs the group.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from bench import loads
from bench.loads import (
    FAILOVER,
    IDLE,
    KIB,
    LATENCY,
    MIB,
    RATE,
    RESTART,
    START,
    THROUGHPUT,
    Figure,
    Load,
)
from bench.throughput import size_name
from bench.transaction_loads import RATE_OF_TRANSACTIONS, commit

ONE = ("moldau", "kafka", "kafka-256m")
THREE = ("moldau-3", "kafka-3", "kafka-3-256m")
TLS = ("moldau-tls", "kafka-tls")
SEVERAL = ("moldau", "moldau-brokers-2", "moldau-brokers-4", "kafka")
OTHERS = ("redis", "nats")
ALL = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What is measured. Rows of little weight are the first to go when time is short."""

    name: str
    title: str
    load: Load
    figures: tuple[Figure, ...]
    systems: tuple[str, ...] = ONE
    weight: int = 2
    """3: what people ask first; 1: nice to know."""
    setup_seconds: float = 1.0
    """For each system, before the first sample; to keep within a bound of time."""
    sample_seconds: float | None = None
    """Where it is not the run that says how long a sample takes."""
    repetitions: int | None = None
    """At most so many, where a sample takes long."""

    @property
    def group(self) -> str:
        return self.name.partition("/")[0]


def _produce(
    name: str,
    title: str,
    *,
    weight: int = 2,
    systems: tuple[str, ...] = ONE,
    setup_seconds: float = 1.0,
    **what: object,
) -> Row:
    figures = THROUGHPUT if what.get("counts_bytes", True) else RATE
    return Row(
        name=name,
        title=title,
        load=partial(loads.append, **what),  # type: ignore[arg-type]
        figures=figures,
        systems=systems,
        weight=weight,
        setup_seconds=setup_seconds,
    )


def _small(name: str, title: str, **what: object) -> Row:
    return _produce(name, title, counts_bytes=False, **what)  # type: ignore[arg-type]


def _connections(count: int) -> str:
    return f"{count:,} connections" if count > 1 else "one connection"


ROWS: tuple[Row, ...] = (
    # Produce: sizes of batches and records
    *(
        _produce(
            f"produce/{size // KIB}k-of-{record}",
            f"produce, batches of {size_name(size)} of {record} B records, acks=1",
            systems=(*ONE, "plain") if record == KIB else ONE,
            batch_bytes=size,
            record_bytes=record,
            weight=3 if size == 128 * KIB else 2,
        )
        for record in (100, KIB)
        for size in (16 * KIB, 128 * KIB, MIB)
    ),
    _produce(
        "produce/stream-of-1024",
        "1 KiB records one by one, 64 in flight (Kafka's protocol: batches of one)",
        systems=(*ONE, *OTHERS),
        record_bytes=KIB,
        in_flight=64,
        weight=2,
    ),
    # Fetch
    *(
        Row(
            name=f"fetch/{size // KIB}k",
            title=f"fetch from the page cache, answers of {size_name(size)}, 1 KiB records",
            load=partial(loads.read, answer_bytes=size),
            figures=THROUGHPUT,
            systems=(*ONE, *OTHERS) if size == 128 * KIB else ONE,
            weight=3,
            setup_seconds=3.0,
        )
        for size in (128 * KIB, MIB)
    ),
    *(
        Row(
            name=f"fetch/{count}-connections",
            title=f"fetch from the page cache, 128 KiB answers, {count} connections",
            load=partial(loads.read, connections=count),
            figures=THROUGHPUT,
            setup_seconds=3.0,
            weight=1,
        )
        for count in (10, 50)
    ),
    # Small requests and connections
    _small(
        "requests/one-at-a-time",
        "produce 100 B, one at a time",
        systems=(*ONE, *OTHERS, "plain"),
        in_flight=1,
        weight=3,
    ),
    _small(
        "requests/32-in-flight",
        "produce 100 B, 32 in flight",
        systems=(*ONE, *OTHERS, "plain"),
        in_flight=32,
        weight=3,
    ),
    *(
        _small(
            f"requests/{count}-connections",
            f"produce 100 B, {count} connections",
            systems=(*ONE, *OTHERS),
            in_flight=1,
            connections=count,
            weight=3 if count == 50 else 2,
        )
        for count in (10, 50, 500, 2_000)
    ),
    *(
        Row(
            name=f"requests/fetch-{count}-connections",
            title=f"fetch at the end of the log, {_connections(count)}",
            load=partial(loads.fetch_at_end, connections=count),
            figures=RATE,
            weight=3 if count == 50 else 2,
        )
        for count in (1, 50, 500)
    ),
    # TLS 1.3; the same loads without it are above
    _produce(
        "tls/produce-128k",
        "TLS: produce, batches of 128 KiB of 1 KiB records, acks=1",
        systems=TLS,
        batch_bytes=128 * KIB,
        record_bytes=KIB,
    ),
    Row(
        name="tls/fetch-128k",
        title="TLS: fetch from the page cache, answers of 128 KiB, 1 KiB records",
        load=partial(loads.read, answer_bytes=128 * KIB),
        figures=THROUGHPUT,
        systems=TLS,
        setup_seconds=3.0,
    ),
    _small(
        "tls/requests-50-connections",
        "TLS: produce 100 B, 50 connections",
        systems=TLS,
        in_flight=1,
        connections=50,
    ),
    # All cores of one machine: 1, 2 and 4 processes
    *(
        Row(
            name=f"brokers/{name}",
            title=f"{title}, {connections} connections, 24 partitions",
            load=partial(loads.spread, connections=connections, partitions=24, **what),  # type: ignore[arg-type]
            figures=THROUGHPUT if "batch_bytes" in what else RATE,
            systems=SEVERAL,
            weight=3,
        )
        for name, title, connections, what in (
            ("produce-50", "produce 100 B", 50, {}),
            ("fetch-50", "fetch at the end of the log", 50, {"fetches": True}),
            (
                "128k",
                "produce, batches of 128 KiB of 1 KiB records",
                24,
                {"record_bytes": KIB, "batch_bytes": 128 * KIB},
            ),
        )
    ),
    # Partitions
    *(
        _small(
            f"partitions/{count}",
            f"produce 100 B to {count} partitions in turn, 32 in flight",
            in_flight=32,
            partitions=count,
            weight=2 if count == 2_000 else 1,
            setup_seconds=1.0 + count / 200,
        )
        for count in (10, 300, 2_000)
    ),
    # Latency
    *(
        Row(
            name=f"latency/ack-{rate}",
            title=f"produce 100 B at {rate} per second, to the acknowledgement",
            load=partial(loads.at_rate, rate=rate),
            figures=LATENCY,
            systems=(*ONE, *OTHERS),
            weight=3 if rate == 500 else 2,
        )
        for rate in (100, 500, 2_000)
    ),
    Row(
        name="latency/end-to-end-500",
        title="produce 100 B at 500 per second, to a waiting consumer",
        load=partial(loads.at_rate, rate=500, consumers=1),
        figures=LATENCY,
        systems=(*ONE, *OTHERS),
        weight=3,
    ),
    *(
        Row(
            name=f"fan-out/{count}",
            title=f"1 KiB at 100 per second to {count} consumers, until the last has it",
            load=partial(loads.at_rate, rate=100, consumers=count, record_bytes=KIB),
            figures=LATENCY,
            systems=(*ONE, *OTHERS),
            weight=2 if count == 50 else 1,
        )
        for count in (1, 10, 50)
    ),
    # A real client
    *(
        Row(
            name=f"client/produce-{codec}",
            title=f"confluent-kafka produces 1 KiB records, codec {codec}, acks=1",
            load=partial(loads.client_produce, codec=codec),
            figures=THROUGHPUT,
            systems=(*ONE, "mock") if codec == "none" else ONE,
            weight=3 if codec == "none" else 1,
        )
        for codec in ("none", "gzip", "snappy", "lz4", "zstd")
    ),
    Row(
        name="client/produce-100b",
        title="confluent-kafka produces 100 B records, acks=1",
        load=partial(loads.client_produce, record_bytes=100),
        figures=THROUGHPUT,
        systems=(*ONE, "mock"),
        weight=2,
    ),
    Row(
        name="client/produce-acks-0",
        title="confluent-kafka produces 1 KiB records, acks=0",
        load=partial(loads.client_produce, acks=0),
        figures=THROUGHPUT,
        weight=1,
    ),
    *(
        Row(
            name=f"client/consume-{codec}",
            title=f"confluent-kafka consumes 1 KiB records, codec {codec}",
            load=partial(loads.client_consume, codec=codec),
            figures=THROUGHPUT,
            systems=(*ONE, "mock") if codec == "none" else ONE,
            weight=2 if codec == "none" else 1,
        )
        for codec in ("none", "zstd")
    ),
    # Transactions
    *(
        Row(
            name=f"transactions/{count}-records{suffix}",
            title=f"{'3 replicas, ' if suffix else ''}confluent-kafka commits transactions of "
            f"{count} records of 1 KiB, 4 partitions",
            load=partial(commit, records=count),
            figures=RATE_OF_TRANSACTIONS,
            systems=systems,
        )
        for suffix, systems in (("", ONE), ("-replicated", THREE))
        for count in (1, 100)
    ),
    # Life and death
    Row(
        name="life/start",
        title="first start",
        load=loads.start,
        figures=START,
        systems=(*ONE, *OTHERS),
        weight=3,
        sample_seconds=8.0,
    ),
    Row(
        name="life/restart",
        title="start after kill -9 with 256 MiB in the log",
        load=loads.restart,
        figures=RESTART,
        systems=(*ONE, *OTHERS),
        weight=3,
        sample_seconds=6.0,
        setup_seconds=15.0,
        repetitions=3,
    ),
    Row(
        name="life/idle-2000",
        title="idle, one node, 2,000 partitions",
        load=partial(loads.idle, partitions=2_000),
        figures=IDLE,
        weight=1,
        setup_seconds=20.0,
        sample_seconds=2.0,
        repetitions=3,
    ),
    # Three nodes
    *(
        _small(
            f"replicated/one-at-a-time-{count}",
            f"3 replicas, acks=all, 100 B one at a time, {count} other partitions",
            systems=THREE if count != 300 else THREE[:2],
            acks=ALL,
            in_flight=1,
            others=count,
            weight=3 if count != 300 else 2,
            setup_seconds=8.0 + count / 20,
        )
        for count in (0, 300, 1_000)
    ),
    *(
        _produce(
            f"replicated/{size // KIB}k",
            f"3 replicas, acks=all, batches of {size_name(size)} of 1 KiB records",
            systems=THREE,
            acks=ALL,
            record_bytes=KIB,
            batch_bytes=size,
            weight=3 if size == 128 * KIB else 2,
        )
        for size in (16 * KIB, 128 * KIB, MIB)
    ),
    _produce(
        "replicated/128k-acks-1",
        "3 replicas, acks=1, batches of 128 KiB of 1 KiB records",
        systems=THREE,
        acks=1,
        record_bytes=KIB,
        batch_bytes=128 * KIB,
        weight=1,
    ),
    *(
        Row(
            name=f"replicated/client-{count}",
            title=f"3 replicas, confluent-kafka idempotent, 1 KiB, 6 partitions, {count} others",
            load=partial(loads.client_produce, acks="all", partitions=6, others=count),
            figures=THROUGHPUT,
            systems=THREE if not count else THREE[:2],
            weight=2,
            setup_seconds=8.0 + count / 20,
        )
        for count in (0, 1_000)
    ),
    Row(
        name="replicated/latency-200",
        title="3 replicas, acks=all, 100 B at 200 per second, to the acknowledgement",
        load=partial(loads.at_rate, rate=200, acks=ALL),
        figures=LATENCY,
        systems=THREE,
        weight=3,
    ),
    Row(
        name="replicated/idle-1000",
        title="3 nodes idle, 1,000 partitions with 3 replicas",
        load=partial(loads.idle, partitions=1_000),
        figures=IDLE,
        systems=THREE[:2],
        weight=2,
        setup_seconds=60.0,
        sample_seconds=3.0,
        repetitions=3,
    ),
    Row(
        name="replicated/failover",
        title="kill -9 of a leader, each system's own time-outs",
        load=loads.failover,
        figures=FAILOVER,
        systems=THREE[:2],
        weight=2,
        setup_seconds=20.0,
        sample_seconds=30.0,
        repetitions=3,
    ),
)
