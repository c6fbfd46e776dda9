"""Incremental fetch sessions (KIP-227): a client names its partitions once, then only changes.

A session is made by a fetch with epoch 0, continued with epoch 1, 2, …, and ended by epoch -1, by
eviction or with the process. Losing one is harmless: the client is told and starts over. Sessions
unused for two minutes go when another one comes. The cache is bounded; when it is full of others,
the client is served without one. (Kafka keeps unused ones until it is full, and then also lets a
larger session evict a smaller one; that only matters with a thousand sessions, and makes clients
fall out of favour in turns.)

What happens to a partition is passed on to the sessions that watch it, and to the requests that
wait there. An append costs one look into a dictionary when nobody watches.

No I/O; `now` is handed in. Owned by the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from moldau.broker.fetch_session import FetchSession, NoteIdle, SessionPartition
from moldau.errors import FetchSessionNotFoundError, InvalidFetchSessionEpochError
from moldau.model import TopicPartition
from moldau.wire.fetch_exchange import NO_SESSION

STALE_AFTER_MS = 120_000

_Watching = dict[TopicPartition, dict[SessionPartition, None]]
"""By partition, in the order of their coming; no empty ones."""


class FetchSessions:
    """The sessions of a broker; at most `max_sessions` of them."""

    def __init__(
        self,
        max_sessions: Callable[[], int],
        draw_id: Callable[[], int],
        note_idle: NoteIdle = lambda topic_partition, replica, until: None,
    ) -> None:
        self._max_sessions = max_sessions
        self._draw_id = draw_id  # a positive number, hard to guess
        self._note_idle = note_idle
        self._sessions: dict[int, FetchSession] = {}  # least recently used first
        self._of_followers: dict[int, int] = {}  # the session that each opened last
        self._consumers: _Watching = {}
        self._followers: _Watching = {}

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def watched(self) -> int:
        """How many partitions of sessions are watched."""
        kinds = (self._consumers, self._followers)
        return sum(len(watching) for kind in kinds for watching in kind.values())

    # Opening and closing

    def open(self, now_ms: int, replica_id: int = -1) -> FetchSession | None:
        """A new session, or None when the cache is full of busy ones.

        A follower has one. It does not know those whose first answer it has not waited for, and so
        cannot close them.
        """
        if replica_id >= 0:
            self.close(self._of_followers.pop(replica_id, NO_SESSION))
        self._evict_stale(now_ms)
        if len(self._sessions) >= self._max_sessions():
            return None
        session_id = self._draw_id()
        while session_id in self._sessions or session_id == NO_SESSION:
            session_id = self._draw_id()
        session = self._sessions[session_id] = FetchSession(session_id, now_ms, self._note_idle)
        if replica_id >= 0:
            self._of_followers[replica_id] = session_id
        return session

    def open_for_one(self, now_ms: int) -> FetchSession:
        """What serves a single request; call `unwatch` when it has waited."""
        return FetchSession(NO_SESSION, now_ms, self._note_idle)

    def _evict_stale(self, now_ms: int) -> None:
        """Also while there is room: who was killed closes nothing, and every append would tell it
        of records."""
        for session in tuple(self._sessions.values()):
            if now_ms - session.last_used_ms < STALE_AFTER_MS:
                return
            if not session.waits:
                self.close(session.id)

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
        session = self._sessions.pop(session_id, None)
        if session is not None:
            for partition in session.partitions.values():
                session.mark(partition)  # its rest is over, and nobody watches it any more
            self.unwatch(session.partitions.values())

    # Watching

    def watch(self, partition: SessionPartition, topic_partition: TopicPartition) -> None:
        """From now on the session hears what happens to the partition."""
        if partition.watched_as is None and not self._is_closed(partition.session):
            partition.watched_as = topic_partition
            self._kind_of(partition).setdefault(topic_partition, {})[partition] = None

    def rest(self, partition: SessionPartition, topic_partition: TopicPartition) -> None:
        """A look has found nothing more to say: the next one is when something happens."""
        self.watch(partition, topic_partition)
        if partition.watched_as is not None:
            partition.session.rest(partition)

    def unwatch(self, partitions: Iterable[SessionPartition]) -> None:
        for partition in partitions:
            topic_partition = partition.watched_as
            if topic_partition is None:
                continue
            partition.watched_as = None
            for kind in (self._consumers, self._followers):
                watching = kind.get(topic_partition)
                if watching is not None and watching.pop(partition, 0) is None and not watching:
                    del kind[topic_partition]

    def _is_closed(self, session: FetchSession) -> bool:
        """A request may still wait in a session that its client has left for another one."""
        return session.is_kept and self._sessions.get(session.id) is not session

    def _kind_of(self, partition: SessionPartition) -> _Watching:
        is_follower = partition.session.terms.replica_id >= 0
        return self._followers if is_follower else self._consumers

    # What happens

    def on_append(self, topic_partition: TopicPartition, size_bytes: int) -> None:
        """Records were appended and are committed."""
        watching = self._consumers.get(topic_partition)
        if watching:
            _count(watching, size_bytes)

    def on_replicable(self, topic_partition: TopicPartition, size_bytes: int) -> None:
        """Records were appended; followers may have them."""
        watching = self._followers.get(topic_partition)
        if watching:
            _count(watching, size_bytes)

    def on_commit(self, topic_partition: TopicPartition) -> None:
        """The high watermark moved: consumers may have more, and followers hear of it."""
        for kind in (self._consumers, self._followers):
            for partition in kind.get(topic_partition, ()):
                session = partition.session
                session.mark(partition)
                for wait in session.waits:
                    if wait.hears_commits:
                        wait.wake()

    def on_change(self, topic_partition: TopicPartition) -> None:
        """Leadership, existence or the log start changed: everybody has to look again."""
        for kind in (self._consumers, self._followers):
            for partition in kind.get(topic_partition, ()):
                partition.session.mark(partition)
                partition.session.wake()

    def on_access_change(self) -> None:
        """Access control lists changed: who may read what has to be asked again."""
        sessions = dict.fromkeys(self._sessions.values())
        for watching in tuple(self._consumers.values()):
            sessions.update(dict.fromkeys(partition.session for partition in watching))
        for session in sessions:
            if session.terms.replica_id < 0:
                session.look_again()
                session.wake()


def _count(watching: Iterable[SessionPartition], size_bytes: int) -> None:
    for partition in watching:
        session = partition.session
        session.mark(partition)
        for wait in session.waits:
            wait.count(size_bytes)
