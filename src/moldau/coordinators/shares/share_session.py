"""Share sessions (KIP-932): a member names its partitions once, then only changes.

A session is opened by a ShareFetch with epoch 0, goes on with 1, 2, …, and is ended by epoch -1 or
with its connection. There is one for each member at each broker, and in all as many as
`group.share.max.share.sessions`; none is taken away for another one, since records are locked for
its member.

No I/O. Owned by the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple
from uuid import UUID

from moldau.errors import (
    InvalidShareSessionEpochError,
    ShareSessionLimitReachedError,
    ShareSessionNotFoundError,
)

OPENING_EPOCH: Final = 0
CLOSING_EPOCH: Final = -1
_LAST_EPOCH: Final = 0x7FFFFFFF

SessionPartitionKey = tuple[UUID, int]
"""A topic's id and a partition's index."""


class MemberKey(NamedTuple):
    """Whose session it is."""

    group_id: str
    member_id: str


class ShareSession:
    """See the module."""

    __slots__ = ("connection", "epoch", "key", "partitions")

    def __init__(self, key: MemberKey, connection: object) -> None:
        self.key = key
        self.connection = connection
        self.epoch = 1  # the next one expected
        # Whether the member has to be told of a partition even if there is nothing to say: it is
        # new, or an error was told last.
        self.partitions: dict[SessionPartitionKey, bool] = {}

    def add_partitions(
        self, partitions: Iterable[SessionPartitionKey]
    ) -> list[SessionPartitionKey]:
        """Take partitions in; returns those that were not in."""
        new = [one for one in partitions if one not in self.partitions]
        self.partitions.update(dict.fromkeys(new, True))
        return new

    def remove_partitions(
        self, partitions: Iterable[SessionPartitionKey]
    ) -> list[SessionPartitionKey]:
        """Take partitions out; returns those that were in."""
        return [one for one in partitions if self.partitions.pop(one, None) is not None]

    def in_turn(self) -> list[SessionPartitionKey]:
        """Every request begins with another partition, so that all are served."""
        partitions = [*self.partitions]
        first = self.epoch % len(partitions) if partitions else 0
        return partitions[first:] + partitions[:first]

    def advance(self) -> None:
        self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1


class ShareSessions:
    """The sessions of a broker."""

    def __init__(self, max_sessions: Callable[[], int]) -> None:
        self._max_sessions = max_sessions
        self._sessions: dict[MemberKey, ShareSession] = {}
        self._by_connection: dict[object, dict[MemberKey, None]] = {}  # no empty ones
        self._by_group: dict[str, int] = {}  # how many; no zeros

    def __len__(self) -> int:
        return len(self._sessions)

    def has_group(self, group_id: str) -> bool:
        return group_id in self._by_group

    def is_open(self, session: ShareSession) -> bool:
        """A request may still wait in a session that its member has left for another one."""
        return self._sessions.get(session.key) is session

    def open(self, key: MemberKey, connection: object) -> ShareSession:
        """A new session in the place of the member's old one. What it has acquired stays its own
        until the locks are over."""
        self.close(key)
        if len(self._sessions) >= self._max_sessions():
            raise ShareSessionLimitReachedError(
                f"there are {len(self._sessions)} share sessions, and no more are allowed"
            )
        session = self._sessions[key] = ShareSession(key, connection)
        self._by_connection.setdefault(connection, {})[key] = None
        self._by_group[key.group_id] = self._by_group.get(key.group_id, 0) + 1
        return session

    def require(self, key: MemberKey, epoch: int) -> ShareSession:
        """The session for a request, moved on to its next epoch unless it is being closed."""
        session = self._sessions.get(key)
        if session is None:
            raise ShareSessionNotFoundError(f"member {key.member_id} has no share session here")
        if epoch == CLOSING_EPOCH:
            return session
        if epoch != session.epoch:
            raise InvalidShareSessionEpochError(
                f"the share session of {key.member_id} expects epoch {session.epoch}, not {epoch}"
            )
        session.advance()
        return session

    def close(self, key: MemberKey) -> ShareSession | None:
        session = self._sessions.pop(key, None)
        if session is None:
            return None
        members = self._by_connection[session.connection]
        del members[key]
        if not members:
            del self._by_connection[session.connection]
        self._by_group[key.group_id] -= 1
        if not self._by_group[key.group_id]:
            del self._by_group[key.group_id]
        return session

    def close_connection(self, connection: object) -> list[ShareSession]:
        """The connection has ended, and with it the sessions that were opened through it."""
        keys = tuple(self._by_connection.get(connection, ()))
        return [session for key in keys if (session := self.close(key)) is not None]
