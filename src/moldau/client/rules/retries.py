"""Whether a failed request is worth another attempt. A rule.

Connections come back and leaders move, so those failures are tried again until the caller's
time is over. An unknown topic is tried a few times only: right after its creation a broker may
not have heard of it, later it is a wrong name. A cluster that does not answer at all is worth
waiting for in the middle of work, not at its beginning, where the address is likely wrong.
"""

from __future__ import annotations

from moldau.errors import (
    BrokerUnreachableError,
    ClusterUnreachableError,
    ConnectionLostError,
    KafkaError,
    MoldauError,
    NoAnswerError,
    UnknownTopicError,
    UnknownTopicIdError,
)

MAX_UNKNOWN_TOPIC_ATTEMPTS = 4


def may_retry(error: MoldauError, attempt: int, *, wait_for_cluster: bool = False) -> bool:
    """`attempt` counts from 0: the number of attempts before the one that failed."""
    if isinstance(error, ClusterUnreachableError):
        return wait_for_cluster
    if isinstance(error, UnknownTopicError | UnknownTopicIdError):
        return attempt + 1 < MAX_UNKNOWN_TOPIC_ATTEMPTS
    if isinstance(error, KafkaError):
        return error.code.retriable
    return isinstance(error, BrokerUnreachableError | ConnectionLostError | NoAnswerError)
