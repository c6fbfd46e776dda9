"""How the columns of a frame become key and value of records, or folders of a lake. A rule.

Everything is said in SQL expressions, as Spark's `selectExpr` takes them.
"""

from __future__ import annotations

from collections.abc import Sequence

from moldau.errors import ConfigurationError
from moldau.spark.pipeline.model import METADATA_COLUMNS, LakeSink, PartitionBy, TopicSink
from moldau.spark.pipeline.rules.lake_layout import DATE_COLUMN, HOUR_COLUMN

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
