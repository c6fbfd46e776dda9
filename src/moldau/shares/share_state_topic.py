"""The topic of share states as it is made for the first share group. A rule."""

from __future__ import annotations

from moldau.cluster.rules.topic_creation import TopicSpec
from moldau.config.broker_options import BrokerOptions
from moldau.config.internal_topics import find_internal_configs
from moldau.model.topic_names import SHARE_GROUP_STATE_TOPIC
from moldau.shards.state_topic import replication_factor_of


def share_state_topic_spec(options: BrokerOptions) -> TopicSpec:
    return TopicSpec(
        name=SHARE_GROUP_STATE_TOPIC,
        partition_count=options.share_coordinator_state_topic_num_partitions,
        replication_factor=replication_factor_of(
            options,
            "share.coordinator.state.topic.replication.factor",
            options.share_coordinator_state_topic_replication_factor,
        ),
        configs=find_internal_configs(SHARE_GROUP_STATE_TOPIC, options) or {},
    )
