"""Fetch sessions, and what a fetch reads of partitions.

Incremental fetch sessions (KIP-227): a client names its partitions once, then only changes. A
session is made by a fetch with epoch 0, continued with epoch 1, 2, …, and ended by epoch -1, by
eviction or with the process. Losing one is harmless: the client is told and starts over. How long
a fetch waits is decided by `handlers.fetch` and `purgatory`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple
from uuid import UUID

from moldau.broker.api import RequestContext
from moldau.broker.authorization import require_topic
from moldau.errors import (
    FetchSessionNotFoundError,
    InvalidFetchSessionEpochError,
    KafkaError,
    UnknownTopicIdError,
)
from moldau.metrics.figures import TopicTraffic
from moldau.model import READ_COMMITTED, AclOperation, BrokerId, Principal, TopicPartition
from moldau.replication.partition import FollowedRead, Partition, PartitionRead
from moldau.replication.rules.replica import RACK_AWARE_SELECTOR
from moldau.wire.fetch_exchange import LAST_EPOCH, NO_SESSION
from moldau.wire.fetch_frame import FetchPartition, FetchRequest

_FEW_HOLES = 32

TopicReference = str | UUID
"""A topic as the client names it: by name up to version 12, by id from 13 on."""

PartitionKey = tuple[TopicReference, int]

NoteIdle = Callable[[TopicPartition, BrokerId, float], None]
"""Tells a partition until when a follower has asked for its end."""

STALE_AFTER_MS = 120_000
FIRST_WITH_RACK = 11
"""From this version on a consumer can be sent to a follower, and so may read from one."""


class Terms(NamedTuple):
    """What else a request says that decides what is found; with other terms all is looked at."""

    replica_id: int = -1
    replica_epoch: int = -1
    isolation_level: int = 0
    rack_id: str = ""
    reads_followers: bool = True
    by_id: bool = True  # names topics so, from version 13 on
    selector: str | None = None
    rights: tuple[Principal, str, int] | None = None
    """Who reads, from where, and which version of the access control lists is in force."""


class FetchWait:
    """A request that waits for news. `missing_bytes` > 0 as long as it waits for more."""

    __slots__ = ("hears_commits", "missing_bytes")

    def __init__(self, missing_bytes: int, *, hears_commits: bool) -> None:
        self.missing_bytes = missing_bytes
        self.hears_commits = hears_commits  # whether a high watermark is worth an answer

    def wake(self) -> None:
        """Have it look again, soon: not while it is told."""
        raise NotImplementedError

    def count(self, size_bytes: int) -> None:
        self.missing_bytes -= size_bytes
        if self.missing_bytes <= 0:
            self.wake()


class AskedOnce(NamedTuple):
    """A partition that a request without a session names: everything about it is news."""

    topic: TopicReference
    request: FetchPartition

    @property
    def is_allowed(self) -> bool:
        """Whether access control has let it be read; that is asked for each request anew."""
        return False

    def note_answer(self, read: PartitionRead) -> bool:
        return True

    def has_committed(self, read: PartitionRead) -> bool:
        return True

    def has_deleted(self, read: PartitionRead) -> bool:
        return True

    def forget_told(self) -> None:
        pass


class SessionPartition:
    """A partition that a client fetches, and what it was last told about it.

    `has_news` as long as it is in its session's `news`. Otherwise it is watched.
    """

    __slots__ = (
        "_told_high_watermark",
        "_told_log_start",
        "has_news",
        "is_allowed",
        "request",
        "session",
        "topic",
        "turn",
        "watched_as",
    )

    def __init__(
        self, session: FetchSession, topic: TopicReference, request: FetchPartition, turn: int
    ) -> None:
        self.session = session
        self.topic = topic
        self.request = request
        self.turn = turn  # those with lower ones are served before
        self.has_news = True
        self.is_allowed = False  # access control lets it be read, on the terms of the session
        self.watched_as: TopicPartition | None = None
        # -1: nothing yet; an error, which is told every time; or a divergence, whose reader goes
        # back and uses nothing else of the answer.
        self._told_high_watermark = -1
        self._told_log_start = -1

    def note_answer(self, read: PartitionRead) -> bool:
        """Whether an incremental answer has to contain the partition; remembers what it says."""
        news = (
            (read.records is not None and read.records.length > 0)
            or read.high_watermark != self._told_high_watermark
            or read.log_start_offset != self._told_log_start
            or read.diverging_epoch is not None
        )
        self._told_high_watermark = read.high_watermark if read.diverging_epoch is None else -1
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
    """The partitions that a client fetches, and which of them have news.

    A partition has news from the moment in which something happens to it (records, a high
    watermark, a log start, another leader) or the client names it, until a look finds nothing more
    to say. A round looks at those with news and at no others: what is not among them is *at rest*,
    and a look at it would find what the last one found (ISR-4). So a round costs what moved, not
    what exists.

    With each request a follower says of everything at rest that it still is where it was, which is
    the end of the log; `asked_at` is when it last did. When the rest ends, the leader is told until
    when it lasted.

    Invariant: `news` is a part of `partitions`. No I/O; `now` is handed in. Owned by the event
    loop.
    """

    __slots__ = (
        "_holes",
        "_next_turn",
        "_note_idle",
        "asked_at",
        "epoch",
        "id",
        "last_used_ms",
        "news",
        "partitions",
        "terms",
        "waits",
    )

    def __init__(self, session_id: int, now_ms: int, note_idle: NoteIdle) -> None:
        self.id = session_id
        self.epoch = 1  # the next one expected
        self.last_used_ms = now_ms
        self.partitions: dict[PartitionKey, SessionPartition] = {}
        self.news: dict[SessionPartition, None] = {}
        self.waits: dict[FetchWait, None] = {}  # one, unless a client breaks the rules
        self.terms = Terms()
        self.asked_at = float("-inf")  # monotonic seconds
        self._next_turn = 0
        self._holes = 0  # in `news`: a dict that was large takes as long to walk when it is empty
        self._note_idle = note_idle

    @property
    def is_kept(self) -> bool:
        """Whether there may be another request; otherwise it is good for one alone."""
        return self.id != NO_SESSION

    def advance(self, now_ms: int) -> None:
        self.epoch = 1 if self.epoch == LAST_EPOCH else self.epoch + 1
        self.last_used_ms = now_ms

    # What a request says

    def begin_round(
        self,
        terms: Terms,
        wanted: Iterable[tuple[TopicReference, FetchPartition]],
        forgotten: Iterable[PartitionKey],
        now: float,
    ) -> list[SessionPartition]:
        """Take over what a request says; returns the partitions that are no longer wanted."""
        if terms != self.terms:
            self.look_again()
            self.terms = terms
        for topic, request in wanted:
            self._want(topic, request)
        gone = [self.partitions.pop(key) for key in forgotten if key in self.partitions]
        for partition in gone:
            self.mark(partition)
            del self.news[partition]
        self.asked_at = now
        return gone

    def _want(self, topic: TopicReference, request: FetchPartition) -> None:
        known = self.partitions.get((topic, request.partition))
        if known is None:
            known = SessionPartition(self, topic, request, self._take_turn())
            self.partitions[topic, request.partition] = known
            self.news[known] = None
            return
        self.mark(known)
        if known.request.current_leader_epoch != request.current_leader_epoch:
            known.forget_told()  # what was told in another epoch may have been ignored
        known.request = request

    # What is looked at, in which order

    def in_turn(self) -> list[SessionPartition]:
        """The partitions with news, those first that have waited longest to be served."""
        return sorted(self.news, key=attrgetter("turn")) if len(self.news) > 1 else [*self.news]

    def serve_last(self, served: SessionPartition) -> None:
        """A partition that was served goes to the end, so that all get their turn."""
        served.turn = self._take_turn()

    def _take_turn(self) -> int:
        self._next_turn += 1
        return self._next_turn

    # What happens

    def look_again(self) -> None:
        """Nothing that was found or allowed before counts any more."""
        for partition in self.partitions.values():
            partition.is_allowed = False
            self.mark(partition)

    def mark(self, partition: SessionPartition) -> None:
        """Something happened to a partition."""
        if not partition.has_news:
            partition.has_news = True
            self.news[partition] = None
            replica_id, watched_as = self.terms.replica_id, partition.watched_as
            if replica_id >= 0 and watched_as is not None:
                self._note_idle(watched_as, BrokerId(replica_id), self.asked_at)

    def rest(self, partition: SessionPartition) -> None:
        """A look has found nothing more to say; whatever happens next is marked."""
        partition.has_news = False
        self.news.pop(partition, None)
        self._holes += 1
        if self._holes > max(_FEW_HOLES, len(self.news)):
            self.news = dict(self.news)
            self._holes = 0

    def wake(self) -> None:
        for wait in self.waits:
            wait.wake()


_Watching = dict[TopicPartition, dict[SessionPartition, None]]
"""By partition, in the order of their coming; no empty ones."""


class FetchSessions:
    """The sessions of a broker; at most `max_sessions` of them.

    Sessions unused for two minutes are evicted when another one is opened. When the cache is full
    of others, the client is served without one. (Kafka keeps unused ones until it is full, and then
    also lets a larger session evict a smaller one; that only matters with a thousand sessions, and
    makes clients lose their sessions in turns.)

    What happens to a partition is passed on to the sessions that watch it, and to the requests that
    wait there. An append costs one look into a dictionary when nothing watches. No I/O; `now` is
    handed in. Owned by the event loop.
    """

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


class FoundPartition(NamedTuple):
    """What was found in one partition: a read, another replica to read from, or an error."""

    wanted: SessionPartition | AskedOnce
    read: PartitionRead | None
    error: KafkaError | None
    preferred_replica: int = -1
    is_at_rest: bool = False  # the same fetch finds nothing else until something happens
    traffic: TopicTraffic | None = None  # where what is sent is counted


def find_name(topic: TopicReference, context: RequestContext) -> str | None:
    if isinstance(topic, str):
        return topic
    found = context.services.image.topics_by_id.get(topic)
    return None if found is None else found.name


def read_partitions(
    partitions: Sequence[SessionPartition | AskedOnce],
    request: FetchRequest,
    context: RequestContext,
    *,
    is_first: bool,
) -> tuple[list[FoundPartition], int]:
    """Read partitions within the limits; the first that has records may exceed them with one batch.

    A follower's request tells how far it has come when it comes, and not again while it waits.
    """
    limit_bytes = min(request.max_bytes, context.services.options.fetch_max_bytes)
    is_consumer = request.replica_id < 0
    results: list[FoundPartition] = []
    size_bytes = 0
    for wanted in partitions:
        try:
            left_bytes, min_one = limit_bytes - size_bytes, size_bytes == 0
            if is_consumer:
                result = _read_for_consumer(wanted, left_bytes, min_one, request, context)
            else:
                result = _read_for_follower(
                    wanted, left_bytes, min_one, request, context, counts=is_first
                )
        except KafkaError as error:
            results.append(FoundPartition(wanted, None, error))
            continue
        results.append(result)
        read = result.read
        if read is not None and read.records is not None:
            size_bytes += read.records.length
    return results, size_bytes


def _read_for_consumer(
    wanted: SessionPartition | AskedOnce,
    limit_bytes: int,
    min_one: bool,
    request: FetchRequest,
    context: RequestContext,
) -> FoundPartition:
    services, topic = context.services, wanted.topic
    index, leader_epoch, offset, last_fetched_epoch, _, max_bytes, _, _ = wanted.request
    name = topic if isinstance(topic, str) else _require_name(topic, context)
    if services.authorizer is not None and not wanted.is_allowed:
        require_topic(context, AclOperation.READ, name)
        if isinstance(wanted, SessionPartition):
            wanted.is_allowed = True
    partitions = services.partitions
    read_committed = request.isolation_level == READ_COMMITTED
    is_choosing = False  # whom to read from: other brokers may come that are nearer
    if context.version < FIRST_WITH_RACK:
        partition = partitions.require_leader(name, index)
    else:
        partition = partitions.require_replica(name, index)
    if name is not topic:
        _check_topic(partition, topic)
    if leader_epoch >= 0:
        partition.check_epoch(leader_epoch)
    read = partition.read(
        offset,
        min(max_bytes, limit_bytes),
        read_committed=read_committed,
        min_one=min_one,
        last_fetched_epoch=last_fetched_epoch,
    )
    if request.rack_id and partition.is_leader:
        preferred = _find_preferred(partition, request.rack_id, wanted.request, context)
        if preferred is not None:
            return FoundPartition(wanted, read._replace(records=None), None, preferred)
        is_choosing = services.options.replica_selector_class is not None
    end_offset = read.last_stable_offset if read_committed else read.high_watermark
    is_at_rest = offset >= end_offset and not is_choosing
    return FoundPartition(wanted, read, None, -1, is_at_rest, partition.traffic)


def _find_preferred(
    partition: Partition, rack: str, request: FetchPartition, context: RequestContext
) -> BrokerId | None:
    services = context.services
    if services.options.replica_selector_class != RACK_AWARE_SELECTOR:
        return None
    racks = {broker.id: broker.rack for broker in services.image.brokers.values()}
    return partition.state.find_read_replica(rack, racks, request.fetch_offset)


def _read_for_follower(
    wanted: SessionPartition | AskedOnce,
    limit_bytes: int,
    min_one: bool,
    request: FetchRequest,
    context: RequestContext,
    *,
    counts: bool,
) -> FoundPartition:
    partition_request = wanted.request
    name = _require_name(wanted.topic, context)
    services = context.services
    partition = services.partitions.require_leader(name, partition_request.partition)
    _check_topic(partition, wanted.topic)
    replica = BrokerId(request.replica_id)
    is_held_back = services.leader_quota.holds_back(partition, replica)
    followed = FollowedRead(
        replica,
        request.replica_epoch,
        partition_request.current_leader_epoch,
        partition_request.fetch_offset,
        partition_request.last_fetched_epoch,
        partition_request.log_start_offset,
    )
    read = partition.read_for_follower(
        followed,
        0 if is_held_back else min(partition_request.partition_max_bytes, limit_bytes),
        min_one=min_one and not is_held_back,
        counts=counts,
    )
    if read.records is not None:
        services.leader_quota.record(partition, read.records.length, replica)
    is_at_rest = partition.is_follower_at_rest(followed)
    return FoundPartition(wanted, read, None, -1, is_at_rest, partition.traffic)


def _require_name(topic: TopicReference, context: RequestContext) -> str:
    name = find_name(topic, context)
    if name is None:
        raise UnknownTopicIdError(f"there is no topic with id {topic}")
    return name


def _check_topic(partition: Partition, topic: TopicReference) -> None:
    """A topic that was made again under its name may not be the one that is open here yet."""
    if not isinstance(topic, str) and partition.topic_id != topic:
        raise UnknownTopicIdError(f"{partition.topic_partition} is about to be opened as {topic}")
