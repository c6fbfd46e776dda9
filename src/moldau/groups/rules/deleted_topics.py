"""Which committed offsets belong to a topic that was deleted (GRP-10). A rule.

An offset with the id of the topic that has the name now belongs to that topic. The others belong
to a former topic of the name, except those that were committed by name after the present topic was
created: the coordinator's image was old when it handled the commit, and gave it the former id.

An offset without an id was written by an older broker, or the client set a time of its own. It
belongs to a former topic if a topic of the name was deleted after the commit.

An offset is deleted only if the deletion of its topic is known. Until then it is kept and not
shown: the image may be old, or the topic comes back (DEL-1). So is an offset that was committed
after the deletion, while the image has no topic of the name: the next topic may exist already.
Times are the store's, those of commits as well: the clocks of brokers may differ by more than the
time between a deletion and the next commit (`MetadataPublisher.store_now_ms`).
"""

from __future__ import annotations

from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.groups.rules.records import CommittedOffset
from moldau.model import NO_TIMESTAMP


def is_current(topic: str, committed: CommittedOffset, image: MetadataImage) -> bool:
    """Whether the offset belongs to the topic of this name, or to one that may come back."""
    live, topic_id = image.topics.get(topic), committed.topic_id
    if live is None:
        return not image.was_deleted(topic, topic_id, committed.commit_timestamp_ms)
    if topic_id == live.topic_id:
        return True
    if committed.names_topic_id:
        return False
    if live.created_ms != NO_TIMESTAMP and committed.commit_timestamp_ms >= live.created_ms:
        return True
    return topic_id is None and not image.was_deleted(topic, None, committed.commit_timestamp_ms)


def is_deleted(topic: str, committed: CommittedOffset, image: MetadataImage) -> bool:
    """Whether the offset goes with its topic."""
    deleted_ms = image.find_deletion_ms(topic, committed.topic_id)
    if deleted_ms is None or is_current(topic, committed, image):
        return False
    live = image.topics.get(topic)
    is_sure = committed.names_topic_id or (live is not None and live.created_ms != NO_TIMESTAMP)
    return is_sure or committed.commit_timestamp_ms <= deleted_ms
