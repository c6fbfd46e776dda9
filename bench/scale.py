"""How much each benchmark does: enough to measure, enough to publish, or enough to see it work."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The size of a run. Everything is bounded, by bytes, by counts or by seconds."""

    batch_sizes: tuple[int, ...]
    """Of produced batches, in bytes."""
    record_sizes: tuple[int, ...]
    """Of the values in them."""
    rounds: int
    """Subjects are measured in turns, this many times each; the best round counts."""
    round_bytes: int
    """What one round of a throughput measurement moves at most."""
    short_rounds: int
    """The same where a round of small requests takes a tenth of a second."""
    requests: int
    """Small requests in one such round, one at a time; pipelined, it is five times as many."""
    latencies: int
    starts: int
    log_bytes: int
    """How large the large log of `growth` is."""
    cleaner_bytes: int
    """How large the log is that is compacted."""
    cleaner_keys: int
    """How many keys its records have."""
    partitions: int
    """How many partitions the full broker of `growth` has."""
    cluster_partitions: tuple[int, ...]
    """With how many partitions in a cluster a record is measured, in growing steps."""
    client_bytes: int
    """What one round with a real client moves."""
    spark_sinks: tuple[str, ...]
    """Where Spark writes what it has read."""
    spark_connector: bool
    """Whether Spark's own connector is looked for, which may ask Maven's repository."""


DEFAULT = Scale(
    batch_sizes=(16 * KIB, 128 * KIB, MIB),
    record_sizes=(100, KIB),
    rounds=5,
    round_bytes=192 * MIB,
    short_rounds=20,
    requests=1_000,
    latencies=5_000,
    starts=7,
    log_bytes=2 * GIB,
    cleaner_bytes=1_000_000_000,
    cleaner_keys=2_000_000,
    partitions=2_000,
    cluster_partitions=(10, 300, 1_000, 3_000),
    client_bytes=64 * MIB,
    spark_sinks=("noop", "parquet", "topic"),
    spark_connector=True,
)
FULL = Scale(
    batch_sizes=(16 * KIB, 128 * KIB, MIB),
    record_sizes=(100, KIB),
    rounds=9,
    round_bytes=256 * MIB,
    short_rounds=50,
    requests=2_000,
    latencies=20_000,
    starts=15,
    log_bytes=10 * GIB,
    cleaner_bytes=5_000_000_000,
    cleaner_keys=10_000_000,
    partitions=2_000,
    cluster_partitions=(10, 300, 1_000, 3_000, 10_000),
    client_bytes=128 * MIB,
    spark_sinks=("noop", "parquet", "topic"),
    spark_connector=True,
)
TINY = Scale(
    batch_sizes=(16 * KIB,),
    record_sizes=(KIB,),
    rounds=1,
    round_bytes=2 * MIB,
    short_rounds=1,
    requests=100,
    latencies=50,
    starts=1,
    log_bytes=8 * MIB,
    cleaner_bytes=20_000_000,
    cleaner_keys=20_000,
    partitions=12,
    cluster_partitions=(2, 6),
    client_bytes=MIB,
    spark_sinks=("noop",),
    spark_connector=False,
)
