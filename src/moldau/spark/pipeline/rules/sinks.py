"""Reads `[sinks.NAME]`, and says how rows become records or files there. A rule.

Columns are SQL expressions, as Spark's `selectExpr` takes them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from moldau.errors import ConfigurationError
from moldau.spark.options import read_write_options
from moldau.spark.pipeline.model import (
    METADATA_COLUMNS,
    LakeSink,
    OutputMode,
    PartitionBy,
    Sink,
    Source,
    TopicSink,
)
from moldau.spark.pipeline.rules.lake import DATE_COLUMN, HOUR_COLUMN
from moldau.spark.pipeline.rules.section import (
    Section,
    check_known,
    check_topic,
    parse_size_bytes,
    parse_span_ms,
    spark_interval,
)

# Declaration

_KINDS = ("topic", "parquet", "delta")
_MODES: tuple[OutputMode, ...] = ("append", "update", "complete")
_PARTITIONS: tuple[PartitionBy, ...] = ("hour", "day", "none")
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)
_HOUR_MS = 3_600_000
_MEGABYTE = 1_000_000
_TARGET_BYTES = 128 * _MEGABYTE
_LAKE_TRIGGER_MS = 60_000
_COMPACT_MIN_FILES = 8
_OWN_OPTIONS = {"topic": "topic", "kafka.bootstrap.servers": "bootstrap at the top of the file"}
_NO_OPTION = "the producer has no such option; they are called as in Kafka, such as kafka.linger.ms"


def read_sink(
    name: str, section: Section, known: Sequence[str], sources: tuple[Source, ...]
) -> Sink | None:
    """The sink, or None when nothing says what it is."""
    given = [kind for kind in _KINDS if section.has(kind)]
    if len(given) != 1:
        section.fault("topic", "give exactly one of topic, parquet and delta, to say where to")
        return None
    source = section.find_text("from") or (known[-1] if known else "")
    if section.has("from"):
        check_known(section, "from", source, known)
    sink: Sink
    if given[0] == "topic":
        sink = _read_topic_sink(name, section, source, sources)
    else:
        sink = _read_lake_sink(name, section, source, given[0])
    section.finish()
    return sink


def _read_topic_sink(
    name: str, section: Section, source: str, sources: tuple[Source, ...]
) -> TopicSink:
    topic = section.require_text("topic", "name the topic that is written")
    if topic:
        check_topic(section, "topic", topic)
    if any(topic in one.topics for one in sources):
        section.fault(
            "topic",
            f"{topic!r} is a source as well: its records would go round for ever; "
            "choose another topic",
        )
    return TopicSink(
        name=name,
        input=source,
        topic=topic,
        key=section.find_text("key"),
        value=section.find_text("value"),
        headers=section.find_text("headers"),
        partition=section.find_text("partition"),
        trigger=_read_trigger(section, None),
        output_mode=section.choice("output_mode", "append", _MODES),
        options=_read_options(section),
    )


def _read_options(section: Section) -> tuple[tuple[str, str], ...]:
    options = section.pairs("options")
    for key, value in options:
        fault = _find_option_fault(key, value)
        if fault is not None:
            section.fault(f"options.{key}", fault)
    return options


def find_exactly_once(sink: TopicSink) -> bool | None:
    """What the file says about exactlyOnce; None when it says nothing."""
    given = {name.lower(): value for name, value in sink.options}
    if "exactlyonce" not in given:
        return None
    options = {"kafka.bootstrap.servers": "-", "exactlyonce": given["exactlyonce"]}
    return read_write_options(options).exactly_once


def refuse_exactly_once(sink: TopicSink) -> str:
    """Why such a sink cannot be written exactly once, and what to do."""
    what = (
        'with output_mode = "update"'
        if sink.output_mode == "update"
        else "behind a query that may drop late rows (window, GROUP BY, DISTINCT and the like)"
    )
    return (
        f"a topic {what} is written batch by batch, at least once; remove exactlyOnce = true, or "
        "write the rows to a lake (parquet, delta), which is exactly once"
    )


def _find_option_fault(key: str, value: str) -> str | None:
    own = _OWN_OPTIONS.get(key.lower())
    if own is not None:
        return f"set it with {own} instead"
    try:
        unknown = read_write_options({"kafka.bootstrap.servers": "-", key: value}).unknown
    except ConfigurationError as fault:
        return str(fault)
    is_known = not unknown and (key.lower() == "exactlyonce" or key.lower().startswith("kafka."))
    return None if is_known else _NO_OPTION


def _read_lake_sink(name: str, section: Section, source: str, kind: str) -> LakeSink:
    return LakeSink(
        name=name,
        input=source,
        format="delta" if kind == "delta" else "parquet",
        folder=_read_folder(section, kind),
        time=section.find_text("time") or "_timestamp",
        partition_by=section.choice("partition_by", "hour", _PARTITIONS),
        target_file_bytes=max(
            section.parsed("target_file_size", _TARGET_BYTES, parse_size_bytes), 1
        ),
        compact=section.flag("compact", default=kind == "parquet"),
        compact_min_files=section.number("compact_min_files", _COMPACT_MIN_FILES, 2),
        late_after_ms=section.parsed("late_after", _HOUR_MS, parse_span_ms),
        trigger=_read_trigger(section, spark_interval(_LAKE_TRIGGER_MS)),
    )


def _read_folder(section: Section, kind: str) -> str:
    folder = section.require_text(kind, "name the folder")
    scheme = _SCHEME.match(folder)
    if scheme is not None and scheme[1].lower() != "file":
        section.fault(
            kind,
            f"{scheme[1]}:// is not served: files are put in place by renaming them, which needs a "
            "folder of a file system that the driver and all executors share; mount it, and give "
            "its path",
        )
    return folder.removeprefix("file://")


def _read_trigger(section: Section, default: str | None) -> str | None:
    return section.parsed("trigger", default, lambda text: spark_interval(parse_span_ms(text)))


# Columns

_FOLDERS: dict[PartitionBy, tuple[tuple[str, str], ...]] = {
    "hour": ((DATE_COLUMN, "yyyy-MM-dd"), (HOUR_COLUMN, "HH")),
    "day": ((DATE_COLUMN, "yyyy-MM-dd"),),
    "none": (),
}


def topic_columns(sink: TopicSink, columns: Sequence[str]) -> list[str]:
    """The expressions of key, value, headers and partition, as far as there are any."""
    given = {
        "key": sink.key,
        "value": sink.value or _default_value(columns),
        "headers": sink.headers,
        "partition": sink.partition,
    }
    chosen: list[str] = []
    for name, expression in given.items():
        if expression is not None:
            chosen.append(f"{_as_text(name, expression)} AS {name}")
        elif name in columns:
            chosen.append(_quote(name))
    return chosen


def _as_text(name: str, expression: str) -> str:
    """A key may be any number or text; its text is what is written."""
    if name == "key":
        return f"CAST({expression} AS STRING)"
    return f"CAST({expression} AS INT)" if name == "partition" else expression


def _default_value(columns: Sequence[str]) -> str | None:
    """JSON of all columns but those that tell where a record came from."""
    if "value" in columns:
        return None
    chosen = [_quote(name) for name in columns if name not in METADATA_COLUMNS]
    if not chosen:
        raise ConfigurationError(
            "there is no column to write but where records came from; select one, or give the sink "
            "a value"
        )
    return f"to_json(struct({', '.join(chosen)}))"


def folder_columns(sink: LakeSink, columns: Sequence[str]) -> dict[str, str]:
    """Names and expressions of the columns that become folders; raises ConfigurationError."""
    folders = _FOLDERS[sink.partition_by]
    if folders and sink.time not in columns:
        raise ConfigurationError(
            f"sinks.{sink.name}.time: {sink.input!r} has no column {sink.time!r}, only "
            f"{', '.join(columns)}; select it, name another one, or set partition_by to none"
        )
    for name, _ in folders:
        if name in columns:
            raise ConfigurationError(
                f"sinks.{sink.name}: {sink.input!r} has a column {name!r}, which is what a folder "
                "is called here; rename it"
            )
    return {
        name: f"date_format(CAST({_quote(sink.time)} AS TIMESTAMP), '{form}')"
        for name, form in folders
    }


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
