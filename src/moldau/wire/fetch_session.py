"""The asking side of a fetch session (KIP-227): name partitions once, then only changes. A rule.

A session is asked for with epoch 0 and goes on with 1, 2, …; the broker may decline, and then every
request names everything. When an answer is lost or the broker has forgotten the session, the next
request starts over. `moldau.broker.fetch_sessions` is the other side.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from moldau.wire.fetch_frame import FetchPartition, FetchTopic, ForgottenTopic

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_LAST_EPOCH: Final = 0x7FFFFFFF


class TopicKey(NamedTuple):
    """A topic under its name and its id, if it has one: a topic made anew is another one."""

    name: str
    topic_id: UUID | None


Wanted = Mapping[tuple[TopicKey, int], FetchPartition]


class SessionRequest(NamedTuple):
    """What a request says of partitions."""

    session_id: int
    epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]


class FetchSession:
    """The session with one broker. Requests and answers alternate."""

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._named: dict[tuple[TopicKey, int], FetchPartition] = {}  # in the session

    @property
    def is_open(self) -> bool:
        return self._id != NO_SESSION

    @property
    def id(self) -> int:
        return self._id

    def next_request(self, wanted: Wanted) -> SessionRequest:
        """Everything in a first request; later what is new, moved or no longer wanted."""
        if self._epoch == INITIAL_EPOCH:
            named: dict[tuple[TopicKey, int], FetchPartition] = dict(wanted)
            forgotten: tuple[tuple[TopicKey, int], ...] = ()
        else:
            named = {key: one for key, one in wanted.items() if self._named.get(key) != one}
            forgotten = tuple(key for key in self._named if key not in wanted)
        self._named = dict(wanted)
        return SessionRequest(self._id, self._epoch, _by_topic(named), _forget(forgotten))

    def answered(self, session_id: int) -> None:
        self._id = session_id
        if session_id == NO_SESSION:
            self._epoch = INITIAL_EPOCH
        else:
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1

    def start_over(self, *, is_forgotten: bool = False) -> None:
        """After a failure. A session that the broker still has is ended by the next request."""
        self._epoch = INITIAL_EPOCH
        if is_forgotten:
            self._id = NO_SESSION


def _by_topic(named: Mapping[tuple[TopicKey, int], FetchPartition]) -> list[FetchTopic]:
    topics: dict[TopicKey, list[FetchPartition]] = {}
    for (topic, _), partition in named.items():
        topics.setdefault(topic, []).append(partition)
    return [FetchTopic(key.name, key.topic_id, rows) for key, rows in topics.items()]


def _forget(keys: Collection[tuple[TopicKey, int]]) -> list[ForgottenTopic]:
    topics: dict[TopicKey, list[int]] = {}
    for topic, index in keys:
        topics.setdefault(topic, []).append(index)
    return [ForgottenTopic(key.name, key.topic_id, rows) for key, rows in topics.items()]
