"""Reads `[sources.NAME]`. A rule."""

from __future__ import annotations

from collections.abc import Callable

from moldau.model.topic_names import find_name_fault
from moldau.spark.pipeline.model import LateRecords, Source, ValueFormat, Watermark
from moldau.spark.pipeline.rules.avro_schema import find_schema_fault
from moldau.spark.pipeline.rules.quantities import parse_span_ms, spark_interval
from moldau.spark.pipeline.rules.section import Section

_FORMATS: tuple[ValueFormat, ...] = ("binary", "text", "json", "avro")
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
"""What is wrong with an option of `format("moldau")` and its value, in a sentence; or None."""


def read_source(
    name: str, section: Section, pipeline_name: str, option_fault: OptionFault
) -> Source:
    """The source; what is wrong goes to the section's faults."""
    value_format: ValueFormat = section.choice("format", "binary", _FORMATS)
    topics = _read_topics(section)
    watermark = _read_watermark(section)
    dead_letter = _read_dead_letter(section, value_format, watermark, topics)
    source = Source(
        name=name,
        topics=topics,
        topic_pattern=section.find_text("topic_pattern"),
        format=value_format,
        schema=_read_schema(section, value_format),
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


def check_topic(section: Section, key: str, topic: str) -> None:
    """A fault where no broker would take the name."""
    fault = find_name_fault(topic)
    if fault is not None:
        section.fault(key, fault)


def _read_schema(section: Section, value_format: ValueFormat) -> str | None:
    schema = section.find_text("schema")
    if value_format == "json" and schema is None:
        section.fault(
            "schema",
            'is missing; JSON values need their columns, such as "user STRING, at TIMESTAMP"',
        )
    if value_format == "avro":
        _check_avro(section, schema)
    if value_format in ("binary", "text") and schema is not None:
        section.fault("schema", f"{value_format} values have none; remove it, or set format")
    return schema


def _check_avro(section: Section, schema: str | None) -> None:
    if schema is None:
        section.fault("schema", "is missing; Avro values need their schema, as JSON")
        return
    fault = find_schema_fault(schema)
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
        section.fault("dead_letter", "binary values always parse; remove it, or set format")
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
