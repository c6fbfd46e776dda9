"""What a pipeline is: its sources, transforms and sinks, checked; and where rows go."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal, TypeAlias

from moldau.spark.options import read_write_options

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


# Where the rows of each query come from, how often they are written, and which consumer group has
# its progress. What a query in SQL reads is found by the names after FROM and JOIN; Spark is not
# asked.


_TOKEN = re.compile(
    r"""--[^\n]*|/\*.*?\*/            # comments
    |'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"   # texts
    |`(?P<quoted>[^`]+)`|(?P<word>[A-Za-z_][\w.]*)|(?P<mark>[(),])""",
    re.VERBOSE | re.DOTALL,
)
_BEFORE_TABLE = ("from", "join")
_STATEFUL = (("group", "by"), ("select", "distinct"), ("window", "("), ("session_window", "("))
_AFTER_TABLES = ("where", "group", "having", "order", "on", "using", "union", "select", "limit")


def describe_flow(pipeline: Pipeline, sink: Sink) -> str:
    """`clicks -> per_minute -> clicks-per-minute`, for people."""
    target = sink.topic if isinstance(sink, TopicSink) else sink.folder
    return f"{_describe_input(pipeline, sink.input)} -> {target}"


def _describe_input(pipeline: Pipeline, name: str) -> str:
    for source in pipeline.sources:
        if source.name == name:
            return _describe_topics(source)
    place = next(n for n, one in enumerate(pipeline.transforms) if one.name == name)
    parts = [_describe_input(pipeline, one) for one in find_inputs(pipeline, place)]
    if len(parts) > 1:
        parts = [f"({one})" if " -> " in one else one for one in parts]
    return " -> ".join([*([" + ".join(parts)] if parts else []), name])


def _describe_topics(source: Source) -> str:
    return ", ".join(source.topics) or f"/{source.topic_pattern}/"


def keeps_state(pipeline: Pipeline, name: str) -> bool:
    """Whether a query over this source or transform has a window, groups or removes duplicates, as
    far as the SQL on the way says so. Spark knows it of functions, too, but only when it plans."""
    for place, transform in enumerate(pipeline.transforms):
        if transform.name == name:
            own = isinstance(transform, SqlTransform) and _has_state(transform.sql)
            return own or any(keeps_state(pipeline, one) for one in find_inputs(pipeline, place))
    return False


def _has_state(sql: str) -> bool:
    tokens = [(one["word"] or one["mark"] or "").lower() for one in _TOKEN.finditer(sql)]
    return any(pair in _STATEFUL for pair in pairwise(tokens))


def describe_delivery(pipeline: Pipeline, sink: Sink) -> str:
    """How often a row of a sink is there, as far as the file says it."""
    if isinstance(sink, LakeSink):
        return "exactly once"
    asked = find_exactly_once(sink)
    if asked is False or sink.output_mode == "update" or keeps_state(pipeline, sink.input):
        return "at least once"
    if asked:
        return "exactly once"
    return (
        "exactly once where the brokers allow two-phase commit and the query cannot drop late "
        "rows, otherwise at least once"
    )


def find_exactly_once(sink: TopicSink) -> bool | None:
    """The option exactlyOnce of the file; None when it is not set."""
    given = {name.lower(): value for name, value in sink.options}
    if "exactlyonce" not in given:
        return None
    options = {"kafka.bootstrap.servers": "-", "exactlyonce": given["exactlyonce"]}
    return read_write_options(options).exactly_once


def find_inputs(pipeline: Pipeline, place: int) -> tuple[str, ...]:
    """The sources and transforms that the transform at a place reads: those above it."""
    transform: Transform = pipeline.transforms[place]
    if isinstance(transform, PythonTransform):
        return transform.inputs
    known = [one.name for one in (*pipeline.sources, *pipeline.transforms[:place])]
    by_name = {one.lower(): one for one in known}
    found = (by_name.get(one.lower()) for one in _find_tables(transform.sql))
    return tuple(dict.fromkeys(one for one in found if one is not None))


def _find_tables(sql: str) -> Iterator[str]:
    """The names that stand where a table does."""
    lists: list[bool] = [False]  # for each open bracket, whether a list of tables goes on in it
    is_next = False
    for token in _TOKEN.finditer(sql):
        word, mark = token["quoted"] or token["word"], token["mark"]
        if mark == "(":
            lists.append(False)
            is_next = False
        elif mark == ")":
            lists = lists[:-1] or [False]
        elif mark == ",":
            is_next = lists[-1]
        elif token["word"] and word.lower() in _BEFORE_TABLE:
            lists[-1] = is_next = True
        elif token["word"] and word.lower() in _AFTER_TABLES:
            lists[-1] = is_next = False
        elif is_next and word:
            is_next = False
            yield word


# Groups


def with_groups_of(pipeline: Pipeline, query: str) -> Pipeline:
    """The pipeline as one query runs it. The first sink has the group that a source names.

    Queries go at different speeds. In one group the quick ones would hide how far the slow ones are
    behind, and whoever looks would see offsets go to and fro; so each query has one of its own.
    """
    if query == pipeline.sinks[0].name:
        return pipeline
    return replace(
        pipeline,
        sources=tuple(
            one if one.group is None else replace(one, group=f"{one.group}-{query}")
            for one in pipeline.sources
        ),
    )
