"""One fetch session: the partitions that a client fetches, and which of them have news.

A partition has news from the moment in which something happens to it (records, a high watermark, a
log start, another leader) or the client names it, until a look finds nothing more to say. A round
looks at those with news and at no others: what is not among them is *at rest*, and a look at it
would find what the last one found (ISR-4). So a round costs what moved, not what exists.

With each request a follower says of everything at rest that it still is where it was, which is the
end of the log; `asked_at` is when it last did. When the rest ends, the leader is told until when it
lasted.

No I/O; `now` is handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import NamedTuple
from uuid import UUID

from moldau.model import BrokerId, Principal, TopicPartition
from moldau.replication.partition_reads import PartitionRead
from moldau.wire.fetch_exchange import LAST_EPOCH, NO_SESSION
from moldau.wire.fetch_frame import FetchPartition

_FEW_HOLES = 32

TopicReference = str | UUID
"""A topic as the client names it: by name up to version 12, by id from 13 on."""

PartitionKey = tuple[TopicReference, int]

NoteIdle = Callable[[TopicPartition, BrokerId, float], None]
"""Tells a partition until when a follower has asked for its end."""


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
    """See the module. `news` is a part of `partitions`; both belong to the event loop."""

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
