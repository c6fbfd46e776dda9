"""What a pipeline asks its cluster: topics, where sources begin, and whether it answers."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from moldau.client.admin.values import OffsetSpec
from moldau.client.blocking import Admin
from moldau.client.cluster import ClientSettings, client_security, client_settings
from moldau.client.connections import NO_LEADER, ConnectionSettings, PartitionOutages
from moldau.client.rules.cluster_metadata import PartitionMetadata, TopicMetadata
from moldau.config.client_options import AdminOptions
from moldau.errors import KafkaError, MoldauError, StorageError
from moldau.model import TopicPartition
from moldau.spark.offset_reader import FoundPartitions
from moldau.spark.pipeline.checkpoint import create_whole, find_text
from moldau.spark.pipeline.model import Pipeline, Source, TopicSink
from moldau.spark.pipeline.rules.queries import has_lost_disk as lost_its_disk
from moldau.spark.rules.offsets import (
    EARLIEST_OFFSET,
    Offsets,
    StreamOffset,
    find_recreated,
    offsets_to_json,
    without_topics,
)


def open_admin(pipeline: Pipeline, bootstrap: str) -> Admin:
    """As the clients of the pipeline connect."""
    options = AdminOptions.read(dict(pipeline.security))
    return Admin(bootstrap, client_settings(options, timeout_ms=options.default_api_timeout_ms))


def find_partitions(admin: Admin, source: Source) -> FoundPartitions:
    """All partitions of a source's topics, in order, and the ids of these topics."""
    topics = [one for one in admin.list_topics().values() if _is_read(source, one)]
    partitions = sorted(
        TopicPartition(one.name, row.index) for one in topics for row in one.partitions
    )
    ids = {one.name: one.topic_id for one in topics if one.topic_id is not None}
    return FoundPartitions(partitions, ids)


def _is_read(source: Source, topic: TopicMetadata) -> bool:
    if source.topic_pattern is None:
        return topic.name in source.topics
    return not topic.is_internal and re.fullmatch(source.topic_pattern, topic.name) is not None


# Where a pipeline begins, once for all its queries. `latest` and `group` mean another place every
# moment. A query that begins a moment after another would never see what lies between: a record
# that does not parse would be in no dead-letter topic. So they are looked up once and kept beside
# the checkpoint; a query that has not begun yet begins there, also after a crash.


_MOVING = ("latest", "group")


def fix_starts(pipeline: Pipeline, bootstrap: str) -> Pipeline:
    """The pipeline with offsets in the place of what would move."""
    if not any(source.starting_offsets in _MOVING for source in pipeline.sources):
        return pipeline
    with open_admin(pipeline, bootstrap) as admin:
        fixed = tuple(
            _fix_start(source, Path(pipeline.checkpoint), admin) for source in pipeline.sources
        )
    return replace(pipeline, sources=fixed)


def _fix_start(source: Source, checkpoint: Path, admin: Admin) -> Source:
    if source.starting_offsets not in _MOVING:
        return source
    partitions, topic_ids = find_partitions(admin, source)
    if not partitions:
        return source  # Spark says it: there is no such topic
    path = checkpoint / f"starts-{source.name}.json"
    if find_text(path) is None:
        found = StreamOffset(_find_offsets(source, partitions, admin), topic_ids)
        create_whole(path, json.dumps(found.to_json()))
    kept = StreamOffset.from_json(json.loads(path.read_text()))
    offsets = without_topics(kept.offsets, find_recreated(kept.topic_ids, topic_ids))
    # Partitions that came since are read from their beginning, as in a query that runs.
    starts = {one: offsets.get(one, EARLIEST_OFFSET) for one in partitions}
    return replace(source, starting_offsets=json.dumps(offsets_to_json(starts)))


def _find_offsets(source: Source, partitions: Collection[TopicPartition], admin: Admin) -> Offsets:
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


# Spark's processes wait and try again by themselves, and print nothing on the terminal. So the
# driver asks the cluster what they ask: for brokers, whose absence its client reports, and for
# leaders of the partitions that the pipeline reads and writes.


_CHECK_SECONDS = 0.5
_ANSWER_SECONDS = 1.0

_NO_DISK = StorageError("the disks of its replicas are full or have failed")


class ClusterWatch:
    """Looks at a cluster for as long as it is entered, in a thread of its own."""

    def __init__(self, pipeline: Pipeline, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._security = client_security(AdminOptions.read(dict(pipeline.security)))
        self._topics = _find_topics(pipeline)
        self._patterns = [one.topic_pattern for one in pipeline.sources if one.topic_pattern]
        self._outages = PartitionOutages()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cluster watch", daemon=True)
        self._answered_at = 0.0  # when the last look began that had an answer
        self._error: MoldauError | None = None  # why the last look had none

    def __enter__(self) -> ClusterWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def wait_until_answered(self, stop: threading.Event, seconds: float | None) -> None:
        """Return when the cluster has answered since, or somebody says stop; raises why it does not
        when that takes too long. None waits for ever."""
        began = time.monotonic()
        while self._answered_at <= began and not stop.wait(_CHECK_SECONDS / 5):
            if seconds is not None and time.monotonic() >= began + seconds and self._error:
                raise self._error

    def _run(self) -> None:
        connection = ConnectionSettings(
            security=self._security,
            client_id="moldau-pipeline",
            connect_seconds=_ANSWER_SECONDS,
            request_seconds=_ANSWER_SECONDS,
        )
        settings = ClientSettings(connection=connection, timeout_seconds=_ANSWER_SECONDS)
        with Admin(self._bootstrap, settings) as admin:
            while True:
                began = time.monotonic()
                try:
                    self._check_leaders(admin)
                    self._answered_at = began
                except MoldauError as error:
                    self._error = error
                if self._stop.wait(_CHECK_SECONDS):
                    return

    def _check_leaders(self, admin: Admin) -> None:
        leaderless: list[tuple[TopicPartition, PartitionMetadata]] = []
        for partition, row in self._partitions(admin):
            if row.leader_id < 0:
                leaderless.append((partition, row))
            elif self._outages:
                self._outages.on_success(partition, time.monotonic())
        if leaderless:
            alive = {broker.id for broker in admin.describe_cluster().brokers}
            for partition, row in leaderless:
                has_lost_disk = lost_its_disk(row.offline_replicas, alive)
                error = _NO_DISK if has_lost_disk else NO_LEADER
                self._outages.on_refusal(partition, error, time.monotonic())

    def _partitions(self, admin: Admin) -> Iterator[tuple[TopicPartition, PartitionMetadata]]:
        for topic in admin.list_topics().values():
            if topic.name in self._topics or self._is_matched(topic.name):
                for row in topic.partitions:
                    yield TopicPartition(topic.name, row.index), row

    def _is_matched(self, topic: str) -> bool:
        return any(re.fullmatch(one, topic) for one in self._patterns)


def _find_topics(pipeline: Pipeline) -> set[str]:
    read = [topic for source in pipeline.sources for topic in source.topics]
    dead = [source.dead_letter for source in pipeline.sources if source.dead_letter]
    written = [sink.topic for sink in pipeline.sinks if isinstance(sink, TopicSink)]
    return {*read, *dead, *written}
