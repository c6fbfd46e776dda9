"""Serving a folder that was copied from a Kafka broker (L10).

Such a folder has logs but no coordination store, so nothing knows of its topics. When a store is
new, the topics are registered as the logs say: name and partitions by the folders, the id by
`partition.metadata`. A store that is not new knows its topics, and a log that it does not know
belongs to a topic that was deleted: that one is left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from moldau.cluster.cluster_identity import new_topic_id
from moldau.cluster.rules.metadata_image import PartitionState, TopicState
from moldau.cluster.topic_operations import creation
from moldau.coordination.port import Coordination
from moldau.model import BrokerId, LeaderEpoch, TopicId, TopicPartition
from moldau.storage.log import Log

_log = logging.getLogger(__name__)


async def adopt_topics(
    coordination: Coordination, logs: Mapping[TopicPartition, Log], broker_id: BrokerId
) -> None:
    """Register a topic for the logs that were found; partitions that are missing are made."""
    by_topic: dict[str, dict[int, Log]] = {}
    for topic_partition, log in logs.items():
        by_topic.setdefault(topic_partition.topic, {})[topic_partition.partition] = log
    for name, found in sorted(by_topic.items()):
        topic = TopicState(
            name=name,
            topic_id=_topic_id_of(found),
            partitions=tuple(
                _state_of(found.get(number), broker_id) for number in range(max(found) + 1)
            ),
        )
        await coordination.transact(creation(topic, None))
        _log.warning("found topic %s with %d partitions on disk", name, len(topic.partitions))


def _topic_id_of(logs: Mapping[int, Log]) -> TopicId:
    known = next((log.topic_id for log in logs.values() if log.topic_id is not None), None)
    return new_topic_id() if known is None else known


def _state_of(log: Log | None, broker_id: BrokerId) -> PartitionState:
    epoch = None if log is None else log.latest_epoch
    return PartitionState(
        leader=broker_id,
        leader_epoch=LeaderEpoch(0 if epoch is None else epoch),
        isr=(broker_id,),
        replicas=(broker_id,),
    )
