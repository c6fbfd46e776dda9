"""Looks after the cluster of a running pipeline, so that it is told what the pipeline waits for.

Spark's processes wait and try again by themselves, without a word on the terminal. So the driver
asks the cluster what they ask: for brokers, of whose absence its client tells, and for leaders of
the partitions that the pipeline reads and writes. A shell.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator

from moldau.client.blocking import Admin
from moldau.client.cluster import ClientSettings, client_security
from moldau.client.connections import NO_LEADER, ConnectionSettings, PartitionOutages
from moldau.client.rules.cluster_metadata import PartitionMetadata
from moldau.config.client_options import AdminOptions
from moldau.errors import MoldauError, StorageError
from moldau.model import TopicPartition
from moldau.spark.pipeline.model import Pipeline, TopicSink
from moldau.spark.pipeline.rules.failures import lost_its_disk

_LOOK_SECONDS = 0.5
_ANSWER_SECONDS = 1.0

_NO_DISK = StorageError("the disks of its replicas are full or have failed")


class ClusterWatch:
    """Looks at a cluster for as long as it is entered, in a thread of its own."""

    def __init__(self, pipeline: Pipeline, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._security = client_security(AdminOptions.read(dict(pipeline.security)))
        self._topics = _topics_of(pipeline)
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
        while self._answered_at <= began and not stop.wait(_LOOK_SECONDS / 5):
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
                    self._look(admin)
                    self._answered_at = began
                except MoldauError as error:
                    self._error = error
                if self._stop.wait(_LOOK_SECONDS):
                    return

    def _look(self, admin: Admin) -> None:
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


def _topics_of(pipeline: Pipeline) -> set[str]:
    read = [topic for source in pipeline.sources for topic in source.topics]
    dead = [source.dead_letter for source in pipeline.sources if source.dead_letter]
    written = [sink.topic for sink in pipeline.sinks if isinstance(sink, TopicSink)]
    return {*read, *dead, *written}
