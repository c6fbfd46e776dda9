"""The offsets topic as it is made for the first group. A rule."""

from __future__ import annotations

from moldau.cluster.rules.topic_creation import TopicSpec
from moldau.config.broker_options import BrokerOptions
from moldau.config.internal_topics import find_internal_configs
from moldau.model.topic_names import GROUP_OFFSETS_TOPIC
from moldau.shards.state_topic import replication_factor_of


def offsets_topic_spec(options: BrokerOptions) -> TopicSpec:
    return TopicSpec(
        name=GROUP_OFFSETS_TOPIC,
        partition_count=options.offsets_topic_num_partitions,
        replication_factor=replication_factor_of(
            options,
            "offsets.topic.replication.factor",
            options.offsets_topic_replication_factor,
        ),
        configs=find_internal_configs(GROUP_OFFSETS_TOPIC, options) or {},
    )
