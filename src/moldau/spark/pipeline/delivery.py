"""Derived feeds exactly once, where the file says nothing about it and the brokers can. A shell.

It takes two-phase commit, which brokers have off unless somebody turns it on. Whether they have is
found out as a task would: their configuration is not everybody's to read, and access lists have a
say in it as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from moldau.spark.pipeline.model import LakeSink, Pipeline, Sink, TopicSink
from moldau.spark.rules.write_options import read_write_options

_OPTION = "exactlyonce"


def choose_delivery(pipeline: Pipeline, bootstrap: str, say: Callable[[str], None]) -> Pipeline:
    """The pipeline with the topics marked that are written exactly once by default."""
    kafka = pipeline.kafka_options(bootstrap)
    sinks = tuple(_choose(sink, kafka) for sink in pipeline.sinks)
    chosen = [one.name for one in sinks if isinstance(one, TopicSink) and one.prefers_exactly_once]
    if chosen:
        say(
            f"exactly once for readers of committed records: {', '.join(chosen)} "
            "(options = { exactlyOnce = false } in the file for at least once)"
        )
    return replace(pipeline, sinks=sinks)


def _choose(sink: Sink, kafka: Mapping[str, str]) -> Sink:
    if isinstance(sink, LakeSink) or sink.output_mode == "update":
        return sink  # Spark's sink has no such mode: what is written batch by batch has no decision
    if any(name.lower() == _OPTION for name, _ in sink.options):
        return sink
    options = {**kafka, **dict(sink.options)}
    from moldau.spark.exactly_once import can_prepare

    return replace(sink, prefers_exactly_once=can_prepare(read_write_options(options)))
