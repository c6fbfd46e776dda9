"""Administration, one module for each noun, and what these parts of `AsyncAdmin` share.

Each part states its operations once: as methods of a class that is made of a cluster's client, and
that `AsyncAdmin` (`admin.client`) inherits from.

Whoever has a cluster's client already asks a part by itself: `LogAdmin(client).list_offsets(…)`.
The blocking face, `blocking.Admin`, is derived.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from moldau.client.cluster import ClusterClient
from moldau.model import TopicPartition

DEFAULT_TIMEOUT_MS = 30_000


class AdminPart:
    """Some of the operations of `AsyncAdmin`."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client


def indexes_by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    indexes: defaultdict[str, list[int]] = defaultdict(list)
    for topic, index in partitions:
        indexes[topic].append(index)
    return indexes


def topic_rows(rows: Mapping[TopicPartition, Mapping[str, object]]) -> list[dict[str, object]]:
    """Fields of partitions, grouped by topic as requests want them."""
    return [
        {
            "name": topic,
            "partitions": [
                {"partition_index": index, **rows[TopicPartition(topic, index)]}
                for index in indexes
            ],
        }
        for topic, indexes in indexes_by_topic(rows).items()
    ]
