"""Fixes where a pipeline begins, once for all its queries. A shell.

`latest` and `group` mean another place every moment. A query that begins a moment after another
would never see what lies between: a record that does not parse would be in no dead-letter topic.
So they are looked up once and kept beside the checkpoint; a query that has not begun yet begins
there, also after a crash.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from moldau.client.admin.values import OffsetSpec
from moldau.client.blocking import Admin
from moldau.errors import KafkaError
from moldau.model import TopicPartition
from moldau.spark.pipeline.durable_files import create_whole, find_text
from moldau.spark.pipeline.model import Pipeline, Source
from moldau.spark.pipeline.source_topics import find_partitions, open_admin
from moldau.spark.rules.offsets import (
    EARLIEST_OFFSET,
    Offsets,
    StreamOffset,
    find_recreated,
    offsets_to_json,
    without_topics,
)

_MOVING = ("latest", "group")


def fix_starts(pipeline: Pipeline, bootstrap: str) -> Pipeline:
    """The pipeline with offsets in the place of what would move."""
    if not any(source.starting_offsets in _MOVING for source in pipeline.sources):
        return pipeline
    with open_admin(pipeline, bootstrap) as admin:
        fixed = tuple(_fix(source, Path(pipeline.checkpoint), admin) for source in pipeline.sources)
    return replace(pipeline, sources=fixed)


def _fix(source: Source, checkpoint: Path, admin: Admin) -> Source:
    if source.starting_offsets not in _MOVING:
        return source
    partitions, topic_ids = find_partitions(admin, source)
    if not partitions:
        return source  # Spark says it: there is no such topic
    path = checkpoint / f"starts-{source.name}.json"
    if find_text(path) is None:
        found = StreamOffset(_look_up(source, partitions, admin), topic_ids)
        create_whole(path, json.dumps(found.to_json()))
    kept = StreamOffset.from_json(json.loads(path.read_text()))
    offsets = without_topics(kept.offsets, find_recreated(kept.topic_ids, topic_ids))
    # Partitions that came since are read from their beginning, as in a query that runs.
    starts = {one: offsets.get(one, EARLIEST_OFFSET) for one in partitions}
    return replace(source, starting_offsets=json.dumps(offsets_to_json(starts)))


def _look_up(source: Source, partitions: Collection[TopicPartition], admin: Admin) -> Offsets:
    answers = (
        admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
        if source.starting_offsets == "latest"
        else admin.list_group_offsets(source.group or "", partitions)
    )
    found: dict[TopicPartition, int] = {}
    for partition, answer in answers.items():
        if isinstance(answer, KafkaError):
            raise answer
        found[partition] = answer.offset
    return found
