"""The topics that a source reads, as far as they are there. A shell."""

from __future__ import annotations

import re

from moldau.client.blocking import Admin
from moldau.client.cluster import client_settings
from moldau.client.rules.cluster_metadata import TopicMetadata
from moldau.config.client_options import AdminOptions
from moldau.model import TopicPartition
from moldau.spark.offset_reader import FoundPartitions
from moldau.spark.pipeline.model import Pipeline, Source


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
