"""A share session with one broker, on the side of the client. A rule.

The broker remembers which partitions a member wants; a request names only what has changed. Each
request has the epoch after the one before: 0 opens a session, -1 closes it. Requests of a session
therefore follow each other, and after a failure the session is opened anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from moldau.client.rules.queue_instructions import TopicIdPartition
from moldau.errors import InvariantViolation

OPENING_EPOCH: Final = 0
CLOSING_EPOCH: Final = -1
_LAST_EPOCH: Final = (1 << 31) - 1


class SessionStep(NamedTuple):
    """What the next request says of the session."""

    epoch: int
    added: Sequence[TopicIdPartition]
    forgotten: Sequence[TopicIdPartition]


class ClientShareSession:
    """The session with one broker."""

    def __init__(self) -> None:
        self.epoch = OPENING_EPOCH  # of the next request
        self.partitions: frozenset[TopicIdPartition] = frozenset()  # that the broker knows of
        self._asked: frozenset[TopicIdPartition] | None = None  # with the request under way

    @property
    def is_open(self) -> bool:
        """A broker takes acknowledgements in a session that is open, not in one that is about to
        be."""
        return self.epoch != OPENING_EPOCH

    def ask(self, wanted: frozenset[TopicIdPartition]) -> SessionStep:
        """A request for exactly these partitions goes out."""
        self._require_quiet()
        self._asked = wanted
        return SessionStep(
            self.epoch, sorted(wanted - self.partitions), sorted(self.partitions - wanted)
        )

    def ask_nothing(self) -> int:
        """A request goes out that leaves the partitions as they are; its epoch."""
        self._require_quiet()
        self._asked = self.partitions
        return self.epoch

    def answered(self) -> None:
        if self._asked is None:
            raise InvariantViolation("a share session has an answer without a request")
        self.partitions, self._asked = self._asked, None
        self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1

    def lose(self) -> None:
        """The broker has forgotten the session, or nobody knows what it remembers."""
        self.epoch = OPENING_EPOCH
        self.partitions, self._asked = frozenset(), None

    def _require_quiet(self) -> None:
        if self._asked is not None:
            raise InvariantViolation("requests of a share session follow each other")
