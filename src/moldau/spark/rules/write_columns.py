"""Which columns a DataFrame must have to be written to topics. A rule.

The columns are those of Spark's own Kafka sink: `value`, and where they are there `key`, `headers`,
`topic` and `partition`; others are not looked at. Types are given as Spark names them in short.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from moldau.errors import ConfigurationError

_TEXT_OR_BYTES = ("string", "binary")
_HEADERS = ("array<struct<key:string,value:binary>>",)
_TYPES: Mapping[str, tuple[str, ...]] = {
    "key": _TEXT_OR_BYTES,
    "value": _TEXT_OR_BYTES,
    "headers": _HEADERS,
    "topic": ("string",),
    "partition": ("int",),
}

_WRITTEN = ("key", "value", "headers", "partition")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteColumns:
    """Which columns are there to be written; `value` always is."""

    topic: str | None
    """Where all rows go, whatever their column says."""
    written: tuple[str, ...]
    """The names of those that are part of a record, or say where it goes in its topic. A column of
    timestamps is none of them, as in Spark's own sink."""


def check_columns(types: Mapping[str, str], topic: str | None) -> WriteColumns:
    """What will be written; raises ConfigurationError with the column and the remedy."""
    if "value" not in types:
        raise ConfigurationError(
            f"a column 'value' is needed, there {_describe(types)}; make it of the others, for "
            "example with to_json(struct(*)) AS value"
        )
    for name, allowed in _TYPES.items():
        found = types.get(name)
        if found is not None and found not in allowed:
            raise ConfigurationError(
                f"the column {name!r} is {found}, it has to be {' or '.join(allowed)}; "
                f"{_remedy(name)}"
            )
    if topic is None and "topic" not in types:
        raise ConfigurationError(
            'nothing says which topic to write to: give .option("topic", ...), or a column '
            f"'topic'; there {_describe(types)}"
        )
    return WriteColumns(
        topic=topic,
        written=tuple(name for name in _WRITTEN if name in types),
    )


def refuse_null_topic(count: int) -> None:
    """Rows without a topic have nowhere to go."""
    if count:
        raise ConfigurationError(
            f"the column 'topic' is null in {count} of the rows; fill it, or give "
            '.option("topic", ...)'
        )


def _describe(types: Mapping[str, str]) -> str:
    if not types:
        return "are no columns"
    return f"{'is' if len(types) == 1 else 'are'} {', '.join(types)}"


def _remedy(name: str) -> str:
    match name:
        case "headers":
            return "make it of array(struct(name AS key, content AS value))"
        case "partition":
            return "cast it with CAST(partition AS INT)"
        case _:
            return f"cast it with CAST({name} AS STRING), or make JSON of it with to_json"
