"""Topics for tests, with names that nobody else uses."""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Mapping

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from support import kafka_python_client
from support.broker_process import NOTHING
from support.confluent_client import admin_client
from support.waiting import PATIENCE_SECONDS

_numbers = itertools.count(1)


def fresh_name(prefix: str = "topic") -> str:
    """A name that this run has not used before."""
    return f"{prefix}-{os.getpid()}-{next(_numbers)}"


class Topics:
    """Makes topics on one broker."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin: AdminClient = admin_client(bootstrap)

    def create(
        self, partitions: int = 1, config: Mapping[str, str] = NOTHING, prefix: str = "topic"
    ) -> str:
        name = fresh_name(prefix)
        self.create_named(name, partitions, config)
        return name

    def create_named(
        self, name: str, partitions: int = 1, config: Mapping[str, str] = NOTHING
    ) -> None:
        wanted = NewTopic(name, partitions, 1, config=dict(config))
        self._admin.create_topics([wanted])[name].result(PATIENCE_SECONDS)

    def delete(self, name: str) -> None:
        self._admin.delete_topics([name])[name].result(PATIENCE_SECONDS)

    def names(self) -> set[str]:
        return set(self._admin.list_topics(timeout=PATIENCE_SECONDS).topics)

    def describe(self, name: str) -> tuple[str, list[tuple[int, int]]]:
        """Its id, and of each partition the number and the leader."""
        wanted = TopicCollection([name])
        found = self._admin.describe_topics(wanted)[name].result(PATIENCE_SECONDS)
        return str(found.topic_id), [(part.id, part.leader.id) for part in found.partitions]

    def id_of(self, name: str) -> uuid.UUID:
        found = self._admin.describe_topics(TopicCollection([name]))[name].result(PATIENCE_SECONDS)
        mask = (1 << 64) - 1
        most = found.topic_id.get_most_significant_bits() & mask
        least = found.topic_id.get_least_significant_bits() & mask
        return uuid.UUID(int=most << 64 | least)

    def config(self, name: str) -> dict[str, str]:
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        found = self._admin.describe_configs([resource])[resource].result(PATIENCE_SECONDS)
        return {entry.name: entry.value for entry in found.values()}

    def size_of(self, name: str) -> int:
        """Bytes in the log of partition 0."""
        with kafka_python_client.admin_client(self._bootstrap) as admin:
            (node,) = admin.describe_log_dirs()
        return next(
            int(part["partition_size"])
            for directory in node["log_dirs"]
            for found in directory["topics"]
            for part in found["partitions"]
            if found["name"] == name and part["partition_index"] == 0
        )
