"""What a member of a group does about an error of its coordinator. A rule.

RETRY         the same again after a pause
REDISCOVER    ask who coordinates the group now, then the same again
REJOIN        the group rebalances: join again as the same member
START_OVER    the group has forgotten the member: what it owned is lost; join as a new one
STOP          nothing that the client can do about it
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from moldau.errors import ClientError, ErrorCode, KafkaError, UnsupportedByBrokerError


class Reaction(Enum):
    RETRY = "retry"
    REDISCOVER = "rediscover"
    REJOIN = "rejoin"
    START_OVER = "start over"
    STOP = "stop"


_REACTIONS: Final[Mapping[ErrorCode, Reaction]] = {
    ErrorCode.coordinator_load_in_progress: Reaction.RETRY,
    ErrorCode.unstable_offset_commit: Reaction.RETRY,
    ErrorCode.coordinator_not_available: Reaction.REDISCOVER,
    ErrorCode.not_coordinator: Reaction.REDISCOVER,
    ErrorCode.request_timed_out: Reaction.REDISCOVER,
    ErrorCode.rebalance_in_progress: Reaction.REJOIN,
    # The coordinator has given us a member id, to join with (KIP-394).
    ErrorCode.member_id_required: Reaction.REJOIN,
    ErrorCode.illegal_generation: Reaction.START_OVER,
    ErrorCode.unknown_member_id: Reaction.START_OVER,
    ErrorCode.fenced_member_epoch: Reaction.START_OVER,
    # The answer to a heartbeat is under way that tells the new one.
    ErrorCode.stale_member_epoch: Reaction.RETRY,
    # A topic that was deleted will not come back for the sake of a commit.
    ErrorCode.unknown_topic_or_partition: Reaction.STOP,
}


def react_to(error: KafkaError | ClientError) -> Reaction:
    if isinstance(error, KafkaError):
        known = _REACTIONS.get(error.code)
        if known is not None:
            return known
        return Reaction.RETRY if error.code.retriable else Reaction.STOP
    if isinstance(error, UnsupportedByBrokerError):
        return Reaction.STOP
    return Reaction.REDISCOVER
