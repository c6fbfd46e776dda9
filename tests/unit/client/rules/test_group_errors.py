"""What a member does about errors of its coordinator."""

from __future__ import annotations

import pytest

from moldau.client.rules.broker_errors import Reaction, error_for, react_to
from moldau.errors import ConnectionLostError, ErrorCode, NoAnswerError, UnsupportedByBrokerError


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.coordinator_load_in_progress, Reaction.RETRY),
        (ErrorCode.unstable_offset_commit, Reaction.RETRY),
        (ErrorCode.not_coordinator, Reaction.REDISCOVER),
        (ErrorCode.coordinator_not_available, Reaction.REDISCOVER),
        (ErrorCode.rebalance_in_progress, Reaction.REJOIN),
        (ErrorCode.member_id_required, Reaction.REJOIN),
        (ErrorCode.unknown_member_id, Reaction.START_OVER),
        (ErrorCode.illegal_generation, Reaction.START_OVER),
        (ErrorCode.fenced_instance_id, Reaction.STOP),
        (ErrorCode.inconsistent_group_protocol, Reaction.STOP),
        (ErrorCode.group_authorization_failed, Reaction.STOP),
        (ErrorCode.group_max_size_reached, Reaction.STOP),
        (ErrorCode.unknown_topic_or_partition, Reaction.STOP),
        (ErrorCode.network_exception, Reaction.RETRY),
    ],
)
def test_each_code_has_its_reaction(code: ErrorCode, expected: Reaction) -> None:
    assert react_to(error_for(code, None)) is expected


def test_a_lost_coordinator_is_looked_for() -> None:
    assert react_to(ConnectionLostError("")) is Reaction.REDISCOVER
    assert react_to(NoAnswerError("")) is Reaction.REDISCOVER


def test_a_broker_that_does_not_know_groups_is_the_end() -> None:
    assert react_to(UnsupportedByBrokerError("")) is Reaction.STOP
