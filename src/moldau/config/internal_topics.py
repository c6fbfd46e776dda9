"""The settings that the brokers' own topics have, wherever they come from. A rule.

Kafka's own (`GroupCoordinatorService`, `TransactionStateManager`, `ShareCoordinatorService`): what
is in these topics is the latest word on something, and a policy that deletes by age loses it.
"""

from __future__ import annotations

from collections.abc import Mapping

from moldau.config.broker_options import BrokerOptions
from moldau.model import (
    GROUP_OFFSETS_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)


def find_internal_configs(topic: str, options: BrokerOptions) -> Mapping[str, str] | None:
    """None for a topic that is not one of them."""
    if topic == GROUP_OFFSETS_TOPIC:
        return {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(options.offsets_topic_segment_bytes),
        }
    if topic == TRANSACTION_STATE_TOPIC:
        return {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(options.transaction_state_log_min_isr),
            "segment.bytes": str(options.transaction_state_log_segment_bytes),
            "unclean.leader.election.enable": "false",
        }
    if topic == SHARE_GROUP_STATE_TOPIC:
        return {
            "cleanup.policy": "delete",  # its coordinator deletes what is superseded
            "compression.type": "producer",
            "min.insync.replicas": str(options.share_coordinator_state_topic_min_isr),
            "retention.bytes": "-1",
            "retention.ms": "-1",
            "segment.bytes": str(options.share_coordinator_state_topic_segment_bytes),
        }
    return None
