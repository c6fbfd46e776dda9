"""Incremental fetch sessions (KIP-227): a client names its partitions once, then only changes.

A session is made by a fetch with epoch 0, continued with epoch 1, 2, …, and ended by epoch -1, by
eviction or with the process. Losing one is harmless: the client is told and starts over. The cache
is bounded; when it is full, a session unused for two minutes makes room, otherwise the client is
served without one. (Kafka also lets a larger session evict a smaller one; that only matters with a
thousand sessions, and makes clients fall out of favour in turns.)

No I/O; `now` is handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

from moldau.errors import FetchSessionNotFoundError, InvalidFetchSessionEpochError
from moldau.replication.replica import PartitionRead
from moldau.wire.fetch_frame import FetchPartition

NO_SESSION = 0
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
_LAST_EPOCH = 0x7FFFFFFF
STALE_AFTER_MS = 120_000

TopicReference = str | UUID
"""A topic as the client names it: by name up to version 12, by id from 13 on."""

PartitionKey = tuple[TopicReference, int]


class SessionPartition:
    """A partition that a client fetches, and what it was last told about it."""

    __slots__ = ("_told_high_watermark", "_told_log_start", "request", "topic")

    def __init__(self, topic: TopicReference, request: FetchPartition) -> None:
        self.topic = topic
        self.request = request
        self._told_high_watermark = -1  # -1: nothing yet, or an error, which is told every time
        self._told_log_start = -1

    def has_news(self, read: PartitionRead) -> bool:
        """Whether an incremental answer has to contain the partition; remembers what it says."""
        news = (
            (read.records is not None and read.records.length > 0)
            or read.high_watermark != self._told_high_watermark
            or read.log_start_offset != self._told_log_start
            or read.diverging_epoch is not None
        )
        self._told_high_watermark = read.high_watermark
        self._told_log_start = read.log_start_offset
        return news

    def has_committed(self, read: PartitionRead) -> bool:
        """Whether the high watermark is another than the one that was told."""
        return read.high_watermark != self._told_high_watermark

    def has_deleted(self, read: PartitionRead) -> bool:
        """Whether the log start is another than the one that was told."""
        return read.log_start_offset != self._told_log_start

    def forget_told(self) -> None:
        self._told_high_watermark = -1


class FetchSession:
    """One client's partitions, in the order in which they are served."""

    __slots__ = ("epoch", "id", "last_used_ms", "partitions")

    def __init__(self, session_id: int, now_ms: int) -> None:
        self.id = session_id
        self.epoch = 1  # the next one expected
        self.last_used_ms = now_ms
        self.partitions: dict[PartitionKey, SessionPartition] = {}

    def update(
        self,
        wanted: Iterable[tuple[TopicReference, FetchPartition]],
        forgotten: Iterable[PartitionKey],
    ) -> None:
        for topic, request in wanted:
            known = self.partitions.get((topic, request.partition))
            if known is None:
                self.partitions[topic, request.partition] = SessionPartition(topic, request)
            else:
                if known.request.current_leader_epoch != request.current_leader_epoch:
                    known.forget_told()  # what was told in another epoch may have been ignored
                known.request = request
        for key in forgotten:
            self.partitions.pop(key, None)

    def serve_last(self, keys: Sequence[PartitionKey]) -> None:
        """Partitions that were served go to the end, so that all get their turn."""
        for key in keys:
            partition = self.partitions.pop(key, None)
            if partition is not None:
                self.partitions[key] = partition

    def advance(self, now_ms: int) -> None:
        self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1
        self.last_used_ms = now_ms


class FetchSessions:
    """The sessions of a broker; at most `max_sessions` of them."""

    def __init__(self, max_sessions: Callable[[], int], draw_id: Callable[[], int]) -> None:
        self._max_sessions = max_sessions
        self._draw_id = draw_id  # a positive number, hard to guess
        self._sessions: dict[int, FetchSession] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, now_ms: int) -> FetchSession | None:
        """A new session, or None when the cache is full of busy ones."""
        if len(self._sessions) >= self._max_sessions() and not self._evict_stale(now_ms):
            return None
        session_id = self._draw_id()
        while session_id in self._sessions or session_id == NO_SESSION:
            session_id = self._draw_id()
        session = self._sessions[session_id] = FetchSession(session_id, now_ms)
        return session

    def _evict_stale(self, now_ms: int) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now_ms - oldest.last_used_ms < STALE_AFTER_MS:
            return False
        del self._sessions[oldest.id]
        return True

    def require(self, session_id: int, epoch: int, now_ms: int) -> FetchSession:
        """The session for an incremental fetch, moved on to its next epoch."""
        session = self._sessions.get(session_id)
        if session is None:
            raise FetchSessionNotFoundError(f"there is no fetch session {session_id}")
        if epoch != session.epoch:
            raise InvalidFetchSessionEpochError(
                f"fetch session {session_id} expects epoch {session.epoch}, not {epoch}"
            )
        session.advance(now_ms)
        del self._sessions[session_id]
        self._sessions[session_id] = session
        return session

    def close(self, session_id: int) -> None:
        self._sessions.pop(session_id, None)
