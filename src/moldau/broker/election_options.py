"""What the options of a topic say about its elections. A rule."""

from __future__ import annotations

from moldau.cluster.rules.metadata_image import TopicState
from moldau.cluster.rules.unclean_recovery import RecoveryStrategy
from moldau.config.broker_options import BrokerOptions
from moldau.config.topic_options import TopicOptions
from moldau.errors import InvalidConfigError


def min_in_sync_of(topic: TopicState, options: BrokerOptions) -> int:
    """`min.insync.replicas`; the brokers' own where a topic's options make no sense."""
    try:
        return TopicOptions.resolve(topic.configs, options).min_insync_replicas
    except InvalidConfigError:
        return options.min_insync_replicas


def recovery_strategy_of(topic: TopicState, options: BrokerOptions) -> RecoveryStrategy:
    """`unclean.recovery.strategy` where it is set; else what the older option asks for.

    Where a topic's options make no sense nothing is given up.
    """
    try:
        resolved = TopicOptions.resolve(topic.configs, options)
    except InvalidConfigError:
        return RecoveryStrategy.NONE
    strategy = resolved.unclean_recovery_strategy
    if strategy is not None:
        return RecoveryStrategy(strategy)
    if resolved.unclean_leader_election_enable:
        return RecoveryStrategy.AGGRESSIVE
    return RecoveryStrategy.BALANCED
