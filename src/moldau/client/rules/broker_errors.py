"""What the error codes of answers mean for a client: exceptions, advice, another attempt. Rules."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from shlex import quote
from typing import Final

from moldau import errors
from moldau.errors import (
    BrokerUnreachableError,
    ClientError,
    ClusterUnreachableError,
    ConnectionLostError,
    ErrorCode,
    KafkaError,
    MoldauError,
    NoAnswerError,
    UnknownTopicError,
    UnknownTopicIdError,
    UnsupportedByBrokerError,
)

_DENIALS: Final = frozenset(
    {
        ErrorCode.topic_authorization_failed,
        ErrorCode.group_authorization_failed,
        ErrorCode.cluster_authorization_failed,
        ErrorCode.transactional_id_authorization_failed,
    }
)


@cache
def error_class(code: ErrorCode) -> type[KafkaError]:
    """The class for a code; codes that no room of Moldau raises get theirs here."""
    for found in vars(errors).values():
        if isinstance(found, type) and issubclass(found, KafkaError) and _is_for(found, code):
            return found
    name = "".join(word.capitalize() for word in code.name.split("_"))
    return type(f"{name.removesuffix('Exception')}Error", (KafkaError,), {"code": code})


def _is_for(found: type[KafkaError], code: ErrorCode) -> bool:
    # Only direct children of the root: their own children narrow the meaning and share the code.
    return found.__base__ is KafkaError and found.code is code


def error_for(code: ErrorCode, message: str | None, subject: str = "") -> KafkaError:
    """An exception for an answer's code, its message saying what it is about."""
    words = message or _words_for(code)
    if subject and subject not in words:
        words = f"{subject}: {words}"
    return error_class(code)(explain_denial(words) if code in _DENIALS else words)


def find_error(code: ErrorCode, message: str | None, subject: str) -> KafkaError | None:
    """The error of one row of an answer, or None."""
    return None if code is ErrorCode.none else error_for(code, message, subject)


def read_code(number: int) -> ErrorCode:
    """A code as it came; newer brokers may have some that are not known here."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.unknown_server_error


def is_retriable(error: KafkaError) -> bool:
    """Whether Kafka says of the code that the same request may succeed later."""
    return error.code.retriable


def _words_for(code: ErrorCode) -> str:
    known = error_class(code).__doc__
    if known and error_class(code).__module__ == errors.__name__:
        first = known.splitlines()[0].rstrip(".")
        return first[0].lower() + first[1:]
    return code.name.replace("_", " ")


# Denials, and how to grant what is missing. A Moldau broker tells who lacks what wherever the
# protocol has room for a message; then the command that grants it is known. Elsewhere, and with
# other brokers, only what it is about.


_LACKS: Final = re.compile(
    r"(?P<who>.+) lacks (?P<operation>[A-Za-z]+) on (?P<type>[A-Za-z]+):(?P<name>.*)", re.DOTALL
)

_NAMED: Final = re.compile(r"\b(?P<type>topic|group) (?P<quote>['\"]?)(?P<name>[^'\":]+)(?P=quote)")
"""What an answer without a message is about, in the words of the client."""

_SOMEBODY: Final = "the principal"
"""Who asked, where the broker does not say who that is."""

CLUSTER: Final = "Cluster:kafka-cluster"

_OPTIONS: Final = {
    "Topic": "--topic",
    "Group": "--group",
    "Cluster": "--cluster",
    "TransactionalId": "--transactional-id",
}


def describe_missing_right(operation: str, resource: str) -> str:
    """What a denial without a message means, where only one right can be missing: `Describe`,
    `Topic:clicks`."""
    return f"{_SOMEBODY} lacks {operation} on {resource}"


def explain_denial(words: str) -> str:
    """The message of a denial with what an administrator can do about it."""
    found = _LACKS.search(words)
    if found is None or found["type"] not in _OPTIONS:
        named = _NAMED.search(words)
        resource = "" if named is None else f" --{named['type']} {quote(named['name'])}"
        return (
            f"{words}; an administrator grants it with `moldau acls add --allow-principal "
            f"User:NAME --operation OPERATION{resource}`"
        )
    resource = _OPTIONS[found["type"]]
    if found["type"] != "Cluster":
        resource += f" {quote(found['name'])}"
    who = found["who"].rpartition(": ")[2] or found["who"]
    who = "User:NAME" if who == _SOMEBODY else quote(who)
    return (
        f"{words}; an administrator grants it with `moldau acls add --allow-principal "
        f"{who} --operation {found['operation'].lower()} {resource}`"
    )


# Connections come back and leaders move, so those failures are tried again until the caller's
# time is over. An unknown topic is tried a few times only: right after its creation a broker may
# not have heard of it, later it is a wrong name. A cluster that does not answer at all is worth
# waiting for in the middle of work, not at its beginning, where the address is likely wrong.


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


Chance = Callable[[], float]
"""Gives a number from 0 to 1: `random.random`, or a fixed one in tests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Doubles with each attempt up to a limit (Kafka's `retry.backoff.ms` and its maximum)."""

    first_seconds: float = 0.1
    max_seconds: float = 1.0
    jitter: float = 0.2  # spreads clients that failed together: up to this share more or less

    def delay_seconds(self, attempt: int, chance: Chance) -> float:
        """The pause after the failed attempt number `attempt`, counted from 0."""
        plain = min(self.first_seconds * float(2 ** min(attempt, 30)), self.max_seconds)
        return plain * (1 - self.jitter + 2 * self.jitter * chance())


# What a member of a group does about an error of its coordinator


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
