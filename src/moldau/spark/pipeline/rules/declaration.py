"""From the tables of a pipeline file to a pipeline, or to everything that is wrong with it. A rule.

[sources.NAME]     topics, and how their values are read
[transforms.NAME]  SQL or a Python function, each over what is above it
[sinks.NAME]       a topic, a folder of Parquet files, or a Delta table

Columns of sinks are SQL expressions, as Spark's `selectExpr` takes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from moldau.errors import ConfigurationError
from moldau.spark.options import read_write_options
from moldau.spark.pipeline.model import (
    METADATA_COLUMNS,
    LakeSink,
    LateRecords,
    OutputMode,
    PartitionBy,
    Pipeline,
    PythonTransform,
    RegistrySource,
    Sink,
    Source,
    SqlTransform,
    TopicSink,
    Transform,
    ValueFormat,
    Watermark,
    find_exactly_once,
    keeps_state,
)
from moldau.spark.pipeline.rules.lake import DATE_COLUMN, HOUR_COLUMN
from moldau.spark.pipeline.rules.section import (
    Faults,
    Section,
    check_known,
    check_topic,
    parse_size_bytes,
    parse_span_ms,
    spark_interval,
)

_VALID_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_VALID_VIEW = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def read_pipeline(
    document: Mapping[str, object], *, default_name: str, folder: str, option_fault: OptionFault
) -> Pipeline | tuple[str, ...]:
    """The pipeline that a document declares, or messages that say what is wrong with it."""
    faults = Faults()
    root = Section(document, "", faults)
    name = root.find_text("name") or default_name
    if not _VALID_NAME.fullmatch(name):
        root.fault("name", f"{name!r} is no name; use letters, digits, dots, dashes, underscores")
    sources = _read_sources(root, name, option_fault)
    transforms = _read_transforms(root, [one.name for one in sources])
    pipeline = Pipeline(
        name=name,
        bootstrap=root.find_text("bootstrap"),
        checkpoint=root.find_text("checkpoint") or f"checkpoints/{name}",
        mode=root.choice("mode", "continuous", ("continuous", "once")),
        folder=folder,
        sources=sources,
        transforms=transforms,
        sinks=_read_sinks(root, sources, transforms),
        spark=root.pairs("spark"),
    )
    root.finish()
    _check_names(root, pipeline)
    if not faults.messages:
        _check_delivery(root, pipeline)
    return tuple(faults.messages) or pipeline


def _read_sources(
    root: Section, pipeline_name: str, option_fault: OptionFault
) -> tuple[Source, ...]:
    sections = root.sections("sources")
    if not sections and not root.has("sources"):
        root.fault("sources", "there is none; add a table such as [sources.clicks]")
    return tuple(
        _read_source(name, section, pipeline_name, option_fault) for name, section in sections
    )


def _read_transforms(root: Section, sources: list[str]) -> tuple[Transform, ...]:
    """Each sees what was declared before it; without a word it takes the last of them."""
    known = list(sources)
    found: list[Transform] = []
    for name, section in root.sections("transforms"):
        transform = _read_transform(name, section, known)
        if transform is not None:
            found.append(transform)
        known.append(name)
    return tuple(found)


def _read_sinks(
    root: Section, sources: tuple[Source, ...], transforms: tuple[Transform, ...]
) -> tuple[Sink, ...]:
    sections = root.sections("sinks")
    if not sections and not root.has("sinks"):
        root.fault("sinks", "there is none; add a table such as [sinks.lake]")
    known = [one.name for one in (*sources, *transforms)]
    read = [read_sink(name, section, known, sources) for name, section in sections]
    return tuple(one for one in read if one is not None)


def _check_delivery(root: Section, pipeline: Pipeline) -> None:
    """Spark refuses further sinks, behind functions, when it plans."""
    for sink in pipeline.sinks:
        if not isinstance(sink, TopicSink) or not find_exactly_once(sink):
            continue
        if sink.output_mode == "update" or keeps_state(pipeline, sink.input):
            root.fault(f"sinks.{sink.name}.options.exactlyOnce", refuse_exactly_once(sink))


def _check_names(root: Section, pipeline: Pipeline) -> None:
    seen: set[str] = set()
    for kind, names in (
        ("sources", [one.name for one in pipeline.sources]),
        ("transforms", [one.name for one in pipeline.transforms]),
    ):
        for name in names:
            if not _VALID_VIEW.fullmatch(name):
                root.fault(
                    f"{kind}.{name}",
                    "SQL could not name it; use letters, digits and underscores",
                )
            if name.lower() in seen:
                root.fault(f"{kind}.{name}", "there is another of this name; rename one of them")
            seen.add(name.lower())
    for sink in pipeline.sinks:
        if not _VALID_NAME.fullmatch(sink.name):
            root.fault(f"sinks.{sink.name}", "use letters, digits, dots, dashes and underscores")


# Sources

_FORMATS: tuple[ValueFormat, ...] = ("binary", "text", "json", "avro", "registry")
_LATE: tuple[LateRecords, ...] = ("dead_letter", "drop")
_OWN_OPTIONS = {
    "subscribe": "topic or topics",
    "subscribepattern": "topic_pattern",
    "assign": "topic or topics",
    "startingoffsets": "starting_offsets",
    "includeheaders": "headers",
    "groupid": "group",
    "kafka.group.id": "group",
    "kafka.bootstrap.servers": "bootstrap at the top of the file",
}


OptionFault = Callable[[str, str], str | None]
"""What is wrong with an option of `format("moldau")` and its value, in a message; or None."""


def _read_source(
    name: str, section: Section, pipeline_name: str, option_fault: OptionFault
) -> Source:
    """The source; what is wrong goes to the section's faults."""
    value_format: ValueFormat = section.choice("format", "binary", _FORMATS)
    topics = _read_topics(section)
    watermark = _read_watermark(section)
    dead_letter = _read_dead_letter(section, value_format, watermark, topics)
    registry = read_registry(section, value_format, topics)
    source = Source(
        name=name,
        topics=topics,
        topic_pattern=section.find_text("topic_pattern"),
        format=value_format,
        schema=_read_schema(section, value_format, has_registry=registry is not None),
        registry=registry,
        dead_letter=dead_letter,
        late=_read_late(section, dead_letter),
        starting_offsets=_read_starting_offsets(section),
        include_headers=section.flag("headers", default=False),
        watermark=watermark,
        group=section.find_text("group") or f"pipeline-{pipeline_name}",
        options=_read_options(section, option_fault),
    )
    if sum(map(section.has, ("topic", "topics", "topic_pattern"))) != 1:
        section.fault(
            "topic", "give exactly one of topic, topics and topic_pattern, to say what is read"
        )
    section.finish()
    return source


def _read_topics(section: Section) -> tuple[str, ...]:
    one, many = section.find_text("topic"), section.find_texts("topics")
    topics = (one,) if one else many
    for topic in topics:
        check_topic(section, "topic" if one else "topics", topic)
    return topics


def _read_schema(section: Section, value_format: ValueFormat, *, has_registry: bool) -> str | None:
    schema = section.find_text("schema")
    if has_registry or value_format == "registry":
        if schema is not None:
            section.fault("schema", "the registry has it; remove one of schema and registry")
        return None
    if value_format == "json" and schema is None:
        section.fault(
            "schema",
            'is missing; JSON values need their columns, such as "user STRING, at TIMESTAMP"',
        )
    if value_format == "avro":
        _check_avro(section, schema)
    if value_format in ("binary", "text") and schema is not None:
        section.fault(
            "schema", f"{value_format} values have none; remove it, or set format", by="format"
        )
    return schema


def _check_avro(section: Section, schema: str | None) -> None:
    if schema is None:
        section.fault("schema", "is missing; Avro values need their schema, as JSON")
        return
    fault = _find_avro_fault(schema)
    if fault is not None:
        section.fault("schema", fault)


def _read_dead_letter(
    section: Section,
    value_format: ValueFormat,
    watermark: Watermark | None,
    topics: tuple[str, ...],
) -> str | None:
    topic = section.find_text("dead_letter")
    if topic is None:
        return None
    check_topic(section, "dead_letter", topic)
    if topic in topics:
        section.fault("dead_letter", f"{topic!r} is read by this source; choose another topic")
    if value_format == "binary" and watermark is None:
        section.fault(
            "dead_letter", "binary values always parse; remove it, or set format", by="format"
        )
    return topic


def _read_late(section: Section, dead_letter: str | None) -> LateRecords:
    late = section.choice("late", "drop" if dead_letter is None else "dead_letter", _LATE)
    if late == "dead_letter" and dead_letter is None:
        section.fault("late", 'nothing says which topic; set dead_letter, or late = "drop"')
    return late


def _read_starting_offsets(section: Section) -> str:
    text = section.find_text("starting_offsets") or "earliest"
    if text in ("earliest", "latest", "group") or text.startswith("{"):
        return text
    section.fault(
        "starting_offsets",
        f"{text!r} is not one of earliest, latest, group, nor JSON of offsets such as "
        '{"clicks": {"0": 23}}; choose one of them',
    )
    return "earliest"


def _read_watermark(section: Section) -> Watermark | None:
    found = section.section("watermark")
    if found is None:
        return None
    column = found.find_text("column") or "_timestamp"
    delay_ms = found.parsed("delay", -1, parse_span_ms)
    if delay_ms < 0 and not found.has("delay"):
        found.fault("delay", 'is missing; say how late records may be, such as "10 minutes"')
    found.finish()
    return Watermark(column=column, delay=spark_interval(max(delay_ms, 0)))


def _read_options(section: Section, option_fault: OptionFault) -> tuple[tuple[str, str], ...]:
    options = section.pairs("options")
    for name, value in options:
        own = _OWN_OPTIONS.get(name.lower())
        fault = option_fault(name, value) if own is None else f"set it with {own} instead"
        if fault is not None:
            section.fault(f"options.{name}", fault)
    return options


# Avro schemas, as far as they show without decoding anything

_AVRO_EXAMPLE = (
    '{"type": "record", "name": "Click", "fields": [{"name": "user", "type": "string"}]}'
)


def _find_avro_fault(text: str) -> str | None:
    """A message about the first fault, or None."""
    try:
        schema: object = json.loads(text)
    except ValueError as fault:
        return f"an Avro schema is JSON, and this is none: {fault}; write it like {_AVRO_EXAMPLE}"
    if not isinstance(schema, dict) or schema.get("type") != "record":
        return f"is not the schema of a record; write it like {_AVRO_EXAMPLE}"
    if not isinstance(schema.get("name"), str):
        return 'the record has no name; add "name"'
    fields = schema.get("fields")
    if not isinstance(fields, list) or not fields:
        return f'the record has no fields; add "fields", as in {_AVRO_EXAMPLE}'
    return next((told for one in fields if (told := _find_avro_field_fault(one))), None)


def _find_avro_field_fault(field: object) -> str | None:
    if not isinstance(field, dict) or not isinstance(field.get("name"), str):
        return f'the field {json.dumps(field)} has no name; add "name"'
    if "type" not in field:
        return f'the field {field["name"]!r} has no type; add one, such as "type": "string"'
    return None


# Transforms

_FUNCTION = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)")


def _read_transform(name: str, section: Section, known: Sequence[str]) -> Transform | None:
    """The transform, or None when too much is wrong with it; it may use what is `known`."""
    sql, function = section.find_text("sql"), section.find_text("python")
    inputs = section.find_texts("from")
    section.finish()
    if bool(sql) == bool(function):
        section.fault("sql", "give exactly one of sql and python, to say what is done")
        return None
    if sql:
        if inputs:
            section.fault("from", "SQL names what it reads in its own FROM; remove it")
        return SqlTransform(name=name, sql=sql)
    for one in inputs:
        check_known(section, "from", one, known)
    return _read_function(name, section, function or "", inputs or tuple(known[-1:]))


def _read_function(
    name: str, section: Section, text: str, inputs: tuple[str, ...]
) -> PythonTransform | None:
    found = _FUNCTION.fullmatch(text)
    if found is None:
        section.fault("python", f"{text!r} names no function; write module:function")
        return None
    return PythonTransform(name=name, module=found[1], function=found[2], inputs=inputs)


# Schema registries


_REGISTRY_KEYS: Final = ("subject", "schema_version", "message", "registry_options")
_REGISTRY_URL: Final = "schema.registry.url"


def read_registry(
    section: Section, value_format: ValueFormat, topics: tuple[str, ...]
) -> RegistrySource | None:
    """What is wrong goes to the section's faults."""
    url = section.find_text("registry")
    subject = section.find_text("subject")
    version = section.number("schema_version", 0, 1)
    message = section.find_text("message")
    options = section.pairs("registry_options")
    if url is None:
        if value_format == "registry":
            section.fault("registry", "is missing; give its address, like http://127.0.0.1:8081")
        for key in _REGISTRY_KEYS:
            if section.has(key):
                section.fault(key, "is about a schema registry; set registry to its address")
        return None
    if value_format not in ("avro", "registry"):
        section.fault(
            "registry",
            'values of this format have none; set format to "avro" or "registry"',
            by="format",
        )
    if subject is None and len(topics) != 1:
        section.fault("subject", "is missing; several topics need to be told which schema counts")
    return RegistrySource(
        subject=subject or "".join(f"{one}-value" for one in topics[:1]),
        version=version or None,
        message=message,
        settings=((_REGISTRY_URL, url), *options),
    )


# Sinks


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
_OWN_SINK_OPTIONS = {
    "topic": "topic",
    "kafka.bootstrap.servers": "bootstrap at the top of the file",
}
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
        options=_read_sink_options(section),
    )


def _read_sink_options(section: Section) -> tuple[tuple[str, str], ...]:
    options = section.pairs("options")
    for key, value in options:
        fault = _find_option_fault(key, value)
        if fault is not None:
            section.fault(f"options.{key}", fault)
    return options


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
    own = _OWN_SINK_OPTIONS.get(key.lower())
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
