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
LAST_EPOCH: Final = 0x7FFFFFFF


class TopicKey(NamedTuple):
    """A topic under its name and its id, if it has one: a topic made anew is another one."""

    name: str
    topic_id: UUID | None


SessionKey = tuple[TopicKey, int]
Wanted = Mapping[SessionKey, FetchPartition]


class SessionRequest(NamedTuple):
    """What a request says of partitions."""

    session_id: int
    epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]


_NOTHING: Final[dict[SessionKey, None]] = {}


class FetchSessionHandler:
    """The session with one broker. Requests and answers alternate.

    A request costs what changed since the one before it, whatever the session holds.
    """

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._wanted: dict[SessionKey, FetchPartition] = {}
        self._unsaid: dict[SessionKey, None] = {}  # of them, what the next request has to name
        self._dropped: dict[SessionKey, None] = {}  # since the last request

    @property
    def is_open(self) -> bool:
        return self._id != NO_SESSION

    @property
    def id(self) -> int:
        return self._id

    # What is wanted

    def want(self, key: SessionKey, partition: FetchPartition) -> None:
        """Fetch a partition from there on, until it is wanted otherwise."""
        if self._wanted.get(key) != partition:
            self._wanted[key] = partition
            self._unsaid[key] = None
            self._dropped.pop(key, None)

    def drop(self, key: SessionKey) -> None:
        """Fetch a partition no longer."""
        if self._wanted.pop(key, None) is not None:
            self._unsaid.pop(key, None)
            self._dropped[key] = None

    def want_only(self, wanted: Wanted) -> None:
        """Fetch these, and nothing else."""
        for key in [key for key in self._wanted if key not in wanted]:
            self.drop(key)
        for key, partition in wanted.items():
            self.want(key, partition)

    # Requests and answers

    def next_request(self, *, by_name: bool = False) -> SessionRequest:
        """Everything in a first request; later what is new, moved or no longer wanted.

        `by_name` before version 13. To forget a topic that was made anew would be to forget the new
        one, then: what is forgotten is so after what is wanted.
        """
        if self._epoch == INITIAL_EPOCH:
            named, dropped = self._wanted, _NOTHING
        else:
            named = {key: self._wanted[key] for key in self._unsaid}
            dropped = self._without_renewed() if by_name else self._dropped
        request = SessionRequest(self._id, self._epoch, _by_topic(named), _forget(dropped))
        self._unsaid, self._dropped = {}, {}
        return request

    def _without_renewed(self) -> dict[SessionKey, None]:
        if not self._dropped:
            return _NOTHING
        wanted = {(topic.name, index) for topic, index in self._wanted}
        return {(topic, i): None for topic, i in self._dropped if (topic.name, i) not in wanted}

    def answered(self, session_id: int) -> None:
        self._id = session_id
        if session_id == NO_SESSION:
            self._epoch = INITIAL_EPOCH
        else:
            self._epoch = 1 if self._epoch == LAST_EPOCH else self._epoch + 1

    def start_over(self, *, is_forgotten: bool = False) -> None:
        """After a failure. A session that the broker still has is ended by the next request."""
        self._epoch = INITIAL_EPOCH
        if is_forgotten:
            self._id = NO_SESSION


def _by_topic(named: Wanted) -> list[FetchTopic]:
    topics: dict[TopicKey, list[FetchPartition]] = {}
    for (topic, _), partition in named.items():
        topics.setdefault(topic, []).append(partition)
    return [FetchTopic(key.name, key.topic_id, rows) for key, rows in topics.items()]


def _forget(keys: Collection[SessionKey]) -> list[ForgottenTopic]:
    topics: dict[TopicKey, list[int]] = {}
    for topic, index in keys:
        topics.setdefault(topic, []).append(index)
    return [ForgottenTopic(key.name, key.topic_id, rows) for key, rows in topics.items()]
