"""The topic of transactions as it is made for the first transactional id. A rule."""

from __future__ import annotations

from moldau.cluster.rules.topic_creation import TopicSpec
from moldau.config.broker_options import BrokerOptions
from moldau.config.internal_topics import find_internal_configs
from moldau.model.topic_names import TRANSACTION_STATE_TOPIC
from moldau.shards.state_topic import replication_factor_of


def transactions_topic_spec(options: BrokerOptions) -> TopicSpec:
    return TopicSpec(
        name=TRANSACTION_STATE_TOPIC,
        partition_count=options.transaction_state_log_num_partitions,
        replication_factor=replication_factor_of(
            options,
            "transaction.state.log.replication.factor",
            options.transaction_state_log_replication_factor,
        ),
        configs=find_internal_configs(TRANSACTION_STATE_TOPIC, options) or {},
    )
