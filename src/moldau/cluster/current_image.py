"""The current metadata image, and whoever hears when it changes. A shell.

A change that this broker wrote itself is applied at once, by the code that wrote it, in the step in
which the write returned: so images follow in the order of the writes. What others wrote is read
again by `metadata_publisher`. A reading may be overtaken by a change that is applied meanwhile:
each change notes its path, so that whoever reads there knows that the answer is old, and an image
never goes back.

Everything runs on one loop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from moldau.cluster import acl_nodes, layout, quota_nodes
from moldau.cluster.rules.metadata_image import (
    NO_DELETIONS,
    NOTHING_DELETED,
    BrokerState,
    DeletedTopic,
    MetadataImage,
    TopicState,
    newest_states,
)
from moldau.errors import InvariantViolation
from moldau.model import AclEntry, BrokerId, ResourcePattern, TopicId
from moldau.quotas import QuotaEntity

Subscriber = Callable[[MetadataImage, MetadataImage, frozenset[str]], None]
"""Gets the old image, the new one, and the names of the topics made, changed or deleted."""


class CurrentImage:
    """Subscribers are called on the loop and must not raise."""

    def __init__(self, cluster_id: str) -> None:
        self._image = MetadataImage(cluster_id=cluster_id)
        self._subscribers: list[Subscriber] = []
        self._overtaken: set[str] = set()  # paths that changed here since their reading began

    @property
    def image(self) -> MetadataImage:
        return self._image

    def subscribe(self, callback: Subscriber) -> None:
        """Hear of every image after the current one."""
        self._subscribers.append(callback)

    # Changes that this broker has written

    def apply_topics(
        self,
        changed: Iterable[TopicState],
        removed: Collection[str] = (),
        deleted: Mapping[TopicId, DeletedTopic] = NO_DELETIONS,
    ) -> None:
        topics = tuple(changed)
        names = (*(topic.name for topic in topics), *removed)
        self._overtaken.update(map(layout.topic_path, names))
        self._publish_topics(topics, removed, deleted=deleted)

    def apply_deletion(self, topic: TopicState) -> None:
        """The topic is marked: it exists no more, but its name is not free yet."""
        self._overtaken.add(layout.topic_path(topic.name))
        self._publish_topics((), (), {topic.name: topic.topic_id})

    def apply_topic_configs(self, name: str, configs: Mapping[str, str]) -> None:
        topic = self._image.topics.get(name)
        if topic is not None:
            self.apply_topics((replace(topic, configs=dict(configs)),))

    def apply_broker_configs(self, broker_id: BrokerId | None, configs: Mapping[str, str]) -> None:
        self._overtaken.add(layout.broker_config_path(broker_id))
        self._publish(self._image.with_broker_config(broker_id, configs))

    def apply_group_configs(self, group_id: str, configs: Mapping[str, str]) -> None:
        self._overtaken.add(layout.group_config_path(group_id))
        self._publish(self._image.with_group_configs({group_id: configs}))

    def apply_acls(self, changed: Mapping[ResourcePattern, frozenset[AclEntry]]) -> None:
        self._overtaken.update(map(acl_nodes.acl_path, changed))
        self._publish(self._image.with_acls(changed))

    def apply_quotas(self, entity: QuotaEntity, limits: Mapping[str, float]) -> None:
        self._overtaken.add(quota_nodes.quota_path(entity))
        self._publish(self._image.with_quotas({entity: limits}))

    def apply_broker(self, broker: BrokerState) -> None:
        self._overtaken.add(layout.BROKER_IDS)
        alive = {**self._image.brokers, broker.id: broker}
        self._publish(self._image.with_brokers(alive.values()))

    def apply_controller(self, controller_id: BrokerId) -> None:
        self._overtaken.add(layout.CONTROLLER)
        self._publish(self._image.with_controller(controller_id))

    def _publish_topics(
        self,
        topics: Iterable[TopicState],
        removed: Collection[str],
        deleting: Mapping[str, TopicId] = NOTHING_DELETED,
        deleted: Mapping[TopicId, DeletedTopic] = NO_DELETIONS,
        *,
        may_go_back: bool = False,
    ) -> None:
        present = self._image.topics
        newest = [
            topic if may_go_back else newest_states(present.get(topic.name), topic)
            for topic in topics
        ]
        changed = [topic for topic in newest if present.get(topic.name) != topic]
        absent = self._image.deleting.keys() | self._image.unreadable
        gone = [n for n in removed if n in present or n in absent]
        going = {n: i for n, i in deleting.items() if self._image.deleting.get(n) != i}
        if changed or gone or going:
            names = frozenset((*(topic.name for topic in changed), *gone, *going))
            self._publish(self._image.with_topics(changed, gone, going, deleted), names)

    def _publish(self, image: MetadataImage, changed_topics: frozenset[str] = frozenset()) -> None:
        if image is self._image:  # nothing has changed by it
            return
        if image.version <= self._image.version:
            raise InvariantViolation(f"META-1: image {image.version} after {self._image.version}")
        former, self._image = self._image, image
        for subscriber in tuple(self._subscribers):
            subscriber(former, image, changed_topics)
