"""What the options of a topic say about its elections."""

from __future__ import annotations

from uuid import UUID

import pytest

from moldau.broker.control_plane import min_in_sync_of, recovery_strategy_of
from moldau.cluster.rules.leader_election import RecoveryStrategy
from moldau.cluster.rules.metadata_image import TopicState
from moldau.config.broker_options import BrokerOptions
from moldau.model import TopicId

UNCLEAN, STRATEGY = "unclean.leader.election.enable", "unclean.recovery.strategy"


def topic(configs: dict[str, str]) -> TopicState:
    return TopicState(name="t", topic_id=TopicId(UUID(int=1)), partitions=(), configs=configs)


@pytest.mark.parametrize(
    ("broker", "configs", "expected"),
    [
        ({}, {}, "balanced"),
        ({UNCLEAN: "true"}, {}, "aggressive"),
        ({UNCLEAN: "true"}, {UNCLEAN: "false"}, "balanced"),
        ({UNCLEAN: "true"}, {STRATEGY: "none"}, "none"),
        ({STRATEGY: "none"}, {}, "none"),
        ({STRATEGY: "none"}, {UNCLEAN: "true"}, "none"),  # the newer one goes first
        ({STRATEGY: "none"}, {STRATEGY: "aggressive"}, "aggressive"),
        ({}, {STRATEGY: "nonsense"}, "none"),  # written past every check: nothing is given up
    ],
)
def test_the_strategy_is_the_one_that_is_set_or_what_the_older_option_means(
    broker: dict[str, str], configs: dict[str, str], expected: str
) -> None:
    options = BrokerOptions.resolve(broker)
    assert recovery_strategy_of(topic(configs), options) is RecoveryStrategy(expected)


def test_who_must_be_in_sync_is_the_topics_word_or_the_brokers() -> None:
    options = BrokerOptions.resolve({"min.insync.replicas": "2"})
    assert min_in_sync_of(topic({}), options) == 2
    assert min_in_sync_of(topic({"min.insync.replicas": "3"}), options) == 3
    assert min_in_sync_of(topic({"min.insync.replicas": "many"}), options) == 2
