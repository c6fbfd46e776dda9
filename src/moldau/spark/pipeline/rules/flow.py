"""Where the rows of each query come from, and which consumer group tells how far it is. A rule.

What a query in SQL reads is told from the names after FROM and JOIN; Spark is not asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from moldau.spark.pipeline.model import (
    LakeSink,
    Pipeline,
    PythonTransform,
    Sink,
    Source,
    SqlTransform,
    TopicSink,
    Transform,
)
from moldau.spark.pipeline.rules.sinks import find_exactly_once

_TOKEN = re.compile(
    r"""--[^\n]*|/\*.*?\*/            # comments
    |'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"   # texts
    |`(?P<quoted>[^`]+)`|(?P<word>[A-Za-z_][\w.]*)|(?P<mark>[(),])""",
    re.VERBOSE | re.DOTALL,
)
_BEFORE_TABLE = ("from", "join")
_STATE = (("group", "by"), ("select", "distinct"), ("window", "("), ("session_window", "("))
_AFTER_TABLES = ("where", "group", "having", "order", "on", "using", "union", "select", "limit")


def describe_flow(pipeline: Pipeline, sink: Sink) -> str:
    """`clicks -> per_minute -> clicks-per-minute`, for people."""
    target = sink.topic if isinstance(sink, TopicSink) else sink.folder
    return f"{_describe(pipeline, sink.input)} -> {target}"


def _describe(pipeline: Pipeline, name: str) -> str:
    for source in pipeline.sources:
        if source.name == name:
            return _topics(source)
    place = next(n for n, one in enumerate(pipeline.transforms) if one.name == name)
    parts = [_describe(pipeline, one) for one in find_inputs(pipeline, place)]
    if len(parts) > 1:
        parts = [f"({one})" if " -> " in one else one for one in parts]
    return " -> ".join([*([" + ".join(parts)] if parts else []), name])


def _topics(source: Source) -> str:
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
    return any(pair in _STATE for pair in pairwise(tokens))


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
