"""Derived feeds exactly once, where the file says nothing about it and the brokers can. A shell.

It takes two-phase commit, which brokers have off unless somebody turns it on. Whether they have is
found out as a task would: their configuration is not everybody's to read, and access lists have a
say in it as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from moldau.spark.options import read_write_options
from moldau.spark.pipeline.model import Delivery, LakeSink, Pipeline, Sink, TopicSink
from moldau.spark.pipeline.rules.flow import keeps_state
from moldau.spark.pipeline.rules.sinks import find_exactly_once


def choose_delivery(pipeline: Pipeline, bootstrap: str) -> Pipeline:
    """The pipeline with the topics marked that are written exactly once by default. Whether they
    are is known when the queries are planned."""
    kafka = pipeline.kafka_options(bootstrap)
    return replace(pipeline, sinks=tuple(_choose(pipeline, one, kafka) for one in pipeline.sinks))


def say_delivery(
    pipeline: Pipeline, deliveries: Mapping[str, Delivery], say: Callable[[str], None]
) -> None:
    """Say how often rows of the marked topics are there; `deliveries` are those of the queries."""
    marked = [s.name for s in pipeline.sinks if isinstance(s, TopicSink) and s.prefers_exactly_once]
    exactly = [name for name in marked if deliveries[name] == "exactly once"]
    if exactly:
        say(
            f"exactly once for readers of committed records: {', '.join(exactly)} "
            "(options = { exactlyOnce = false } in the file for at least once)"
        )
    others = [name for name in marked if name not in exactly]
    if others:
        say(f"at least once: {', '.join(others)} (the query may drop late rows)")


def _choose(pipeline: Pipeline, sink: Sink, kafka: Mapping[str, str]) -> Sink:
    if isinstance(sink, LakeSink) or sink.output_mode == "update":
        return sink  # Spark's sink has no such mode: what is written batch by batch has no decision
    if find_exactly_once(sink) is not None or keeps_state(pipeline, sink.input):
        return sink
    options = {**kafka, **dict(sink.options)}
    from moldau.spark.exactly_once import can_prepare

    return replace(sink, prefers_exactly_once=can_prepare(read_write_options(options)))
