"""Says within two seconds that a pipeline waits for its cluster, and why. A shell.

Spark's processes wait and try again by themselves, without a word on the terminal. So the driver
asks the cluster once a second what they ask: for brokers, and for leaders of the partitions that
the pipeline reads and writes.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable

from moldau.client.blocking import Admin
from moldau.client.cluster_client import ClientSettings
from moldau.client.connections import ConnectionSettings
from moldau.errors import MoldauError
from moldau.model import TopicPartition
from moldau.spark.pipeline.model import Pipeline, TopicSink
from moldau.spark.pipeline.rules.failures import tell_leaderless

Say = Callable[[str], None]

_LOOK_SECONDS = 0.5
_ANSWER_SECONDS = 1.0
_TELL_AGAIN_SECONDS = 30.0


class ClusterWatch:
    """Looks at a cluster for as long as it is entered."""

    def __init__(self, pipeline: Pipeline, bootstrap: str, say: Say) -> None:
        self._bootstrap = bootstrap
        self._say = say
        self._topics = _topics_of(pipeline)
        self._patterns = [one.topic_pattern for one in pipeline.sources if one.topic_pattern]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cluster watch", daemon=True)
        self._since: float | None = None  # when the trouble began, while there is one
        self._told_at: float | None = None

    def __enter__(self) -> ClusterWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with _open_admin(self._bootstrap) as admin:
            while not self._stop.wait(_LOOK_SECONDS):
                self._note(self._find_trouble(admin), time.monotonic())

    def _find_trouble(self, admin: Admin) -> str | None:
        try:
            found = admin.list_topics()
        except MoldauError as error:
            return str(error)
        leaderless = [
            TopicPartition(topic.name, row.index)
            for topic in found.values()
            if self._is_used(topic.name)
            for row in topic.partitions
            if row.leader_id < 0
        ]
        return tell_leaderless(leaderless) if leaderless else None

    def _is_used(self, topic: str) -> bool:
        return topic in self._topics or any(re.fullmatch(one, topic) for one in self._patterns)

    def _note(self, trouble: str | None, now: float) -> None:
        if trouble is None:
            if self._since is not None and self._told_at is not None:
                self._say(f"the cluster answers again, after {now - self._since:.0f} seconds")
            self._since = self._told_at = None
            return
        self._since = now if self._since is None else self._since
        if self._told_at is None or now - self._told_at >= _TELL_AGAIN_SECONDS:
            self._told_at = now
            self._say(f"{trouble}; the pipeline waits and tries again")


def wait_for_cluster(bootstrap: str, stop: threading.Event, seconds: float | None) -> None:
    """Return when a broker answers, or somebody says stop; raises what the last attempt ended with
    when that takes too long. None waits for ever."""
    deadline = None if seconds is None else time.monotonic() + seconds
    with _open_admin(bootstrap) as admin:
        while not stop.is_set():
            try:
                admin.describe_cluster()
                return
            except MoldauError:
                if deadline is not None and time.monotonic() >= deadline:
                    raise
            stop.wait(_LOOK_SECONDS)


def _open_admin(bootstrap: str) -> Admin:
    """One that gives up in time for somebody to be told."""
    connection = ConnectionSettings(
        client_id="moldau-pipeline",
        connect_seconds=_ANSWER_SECONDS,
        request_seconds=_ANSWER_SECONDS,
    )
    settings = ClientSettings(connection=connection, timeout_seconds=_ANSWER_SECONDS)
    return Admin(bootstrap, settings)


def _topics_of(pipeline: Pipeline) -> set[str]:
    read = [topic for source in pipeline.sources for topic in source.topics]
    dead = [source.dead_letter for source in pipeline.sources if source.dead_letter]
    written = [sink.topic for sink in pipeline.sinks if isinstance(sink, TopicSink)]
    return {*read, *dead, *written}
