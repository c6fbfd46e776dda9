"""What a pipeline is: its sources, transforms and sinks, checked and complete. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

ValueFormat = Literal["binary", "text", "json", "avro", "registry"]
OutputMode = Literal["append", "update", "complete"]
PartitionBy = Literal["hour", "day", "none"]
Mode = Literal["continuous", "once"]
LateRecords = Literal["dead_letter", "drop"]
Delivery = Literal["exactly once", "at least once"]
Pairs: TypeAlias = tuple[tuple[str, str], ...]

METADATA_COLUMNS = ("_key", "_topic", "_partition", "_offset", "_timestamp", "_headers")
"""What every source adds to the columns of a value, each under the record's own name for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """How long records may be late before an aggregation stops waiting for them."""

    column: str
    delay: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySource:
    """Where the schema of a source's values is kept, and which of them its columns are of."""

    subject: str
    version: int | None  # None: the latest, when the pipeline starts
    message: str | None  # of Protobuf; None: the first
    settings: Pairs  # with Confluent's names; they may hold secrets, or name where these are


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Topics that are read. Exactly one of `topics` and `topic_pattern` is given."""

    name: str
    topics: tuple[str, ...]
    topic_pattern: str | None
    format: ValueFormat
    schema: str | None
    """The columns of a value: Spark's DDL for JSON, the schema's JSON for Avro."""
    registry: RegistrySource | None
    """In place of a schema, for Avro and for what a registry says that it is."""
    dead_letter: str | None
    """Where records go that do not parse; without it, the first of them stops the pipeline."""
    late: LateRecords
    """What becomes of records that are in no window: too late for it, or without a time. They are
    counted in any case."""
    starting_offsets: str
    include_headers: bool
    watermark: Watermark | None
    group: str | None
    """The consumer group that progress is committed to."""
    options: Pairs

    @property
    def may_be_faulty(self) -> bool:
        """Whether there are values that do not parse."""
        return self.format != "binary"


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlTransform:
    """A query over the sources and transforms before it, by their names."""

    name: str
    sql: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonTransform:
    """A function from DataFrames to a DataFrame."""

    name: str
    module: str
    function: str
    inputs: tuple[str, ...]


Transform: TypeAlias = SqlTransform | PythonTransform


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSink:
    """A derived feed."""

    name: str
    input: str
    topic: str
    key: str | None
    value: str | None
    headers: str | None
    partition: str | None
    trigger: str | None
    output_mode: OutputMode
    options: Pairs
    prefers_exactly_once: bool = False
    """The file leaves it open, and the brokers can do it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeSink:
    """An offline load, into Parquet files or a Delta table."""

    name: str
    input: str
    format: Literal["parquet", "delta"]
    folder: str
    time: str
    partition_by: PartitionBy
    target_file_bytes: int
    compact: bool
    compact_min_files: int
    late_after_ms: int
    trigger: str | None


Sink: TypeAlias = TopicSink | LakeSink


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """One pipeline. Names are unique among sources and transforms, and every input is one."""

    name: str
    bootstrap: str | None
    checkpoint: str
    mode: Mode
    folder: str
    """Where the file is: Python functions are looked for here first."""
    sources: tuple[Source, ...]
    transforms: tuple[Transform, ...]
    sinks: tuple[Sink, ...]
    spark: Pairs
    security: Mapping[str, str] = field(default_factory=dict, repr=False)
    """How clients reach the brokers, by Kafka's names (`security.protocol`, …); no part of the
    file."""

    def kafka_options(self, bootstrap: str) -> dict[str, str]:
        """Of a source or a sink in Spark."""
        secured = {f"kafka.{name}": value for name, value in self.security.items()}
        return {"kafka.bootstrap.servers": bootstrap, **secured}

    @property
    def lake_sinks(self) -> tuple[LakeSink, ...]:
        return tuple(sink for sink in self.sinks if isinstance(sink, LakeSink))
