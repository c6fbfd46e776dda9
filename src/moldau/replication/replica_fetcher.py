"""Copies from leaders: a fetcher for each broker that leads something followed here.

A fetcher (Kafka's `ReplicaFetcherThread`) has one fetch under way at a time, with all partitions
that follow its leader. It asks, uses or throws away what comes, and pauses after a failure.

A round looks at the partitions that something happened to since the one before it (`_due`), and at
no others: what the leader's session holds of the rest is still so. So a round costs what moved.

A shell: one task runs `run`. The partitions are changed by others between its steps; an answer is
used only where a partition still is where it was when the request was made. A `LeaderEndPoint` is
the way to one leader; tests replace it.

`FollowerTruncation` brings a follower's log to where it and the leader's agree, so that a power
loss undoes nothing. The log is cut off where the histories part, thrown away where the leader's
begins later, or begun anew in front of a batch. Each time `truncating` of the partition is held
until the checkpoints know of it: no broker leads with a log before, and nothing is appended to it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from moldau.clock import Clock, Interruption, Timer, WorkInterrupted
from moldau.config.broker_options import BrokerOptions
from moldau.errors import (
    ClientError,
    CorruptBatchError,
    ErrorCode,
    KafkaError,
    MalformedFrameError,
    StorageError,
)
from moldau.model import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    BrokerId,
    LeaderEpoch,
    Offset,
    TopicPartition,
)
from moldau.net.peer import Peer
from moldau.records.batch_header import walk_headers
from moldau.replication.partition import FollowPosition, Partition
from moldau.replication.replication_quota import ReplicationQuota
from moldau.replication.rules.truncation import find_cut, find_earlier_start
from moldau.storage.log import Log
from moldau.wire.apis import FETCH
from moldau.wire.fetch_exchange import (
    AnsweredPartition,
    FetchAnswer,
    FetchSessionHandler,
    SessionKey,
    TopicKey,
    encode_fetch_request,
    encode_offset_question,
    parse_fetch_answer,
    parse_offset_answer,
)
from moldau.wire.fetch_frame import FetchPartition, FetchRequest
from moldau.wire.headers import read_response_header, request_prefix

_log = logging.getLogger("moldau.replication.fetcher")

FIRST_BACKOFF_SECONDS: Final = 0.05
"""After a first failure: mostly the other side has yet to hear of an election."""
_INTERRUPT_SECONDS: Final = 0.02
"""A partition that was added waits for so long for the fetch under way to end by itself."""
_INTERRUPT_SECONDS_PER_PARTITION: Final = 0.0005
_BYTES_PER_TURN: Final = 1 << 20
_BATCHES_PER_TURN: Final = 100
"""Checked and appended before somebody else may use the loop: about a millisecond."""


class _Followed:
    """A partition that is copied, and how it goes."""

    __slots__ = ("asked_as", "failures", "not_before", "partition")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.failures = 0  # in a row
        self.not_before = 0.0  # monotonic seconds
        self.asked_as: _Key | None = None  # in the session


class _Asked(NamedTuple):
    """What is asked for one partition, until it is asked for something else."""

    followed: _Followed
    position: FollowPosition
    key: SessionKey


_Key = tuple[UUID, int]


class ReplicaFetcher:
    """The copying from one broker."""

    def __init__(
        self,
        leader_id: BrokerId,
        link: LeaderEndPoint,
        *,
        broker_id: BrokerId,
        broker_epoch: Callable[[], int],
        clock: Clock,
        options: Callable[[], BrokerOptions],
        truncations: Truncations,
        quota: ReplicationQuota,
    ) -> None:
        self.leader_id = leader_id
        self._link = link
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._clock = clock
        self._options = options
        self._truncation = FollowerTruncation(truncations)
        self._quota = quota
        self._session = FetchSessionHandler()
        self._followed: dict[TopicPartition, _Followed] = {}
        self._changed = asyncio.Event()
        self._under_way: Interruption | None = None  # of the fetch
        self._asked: dict[_Key, _Asked] = {}  # what the session holds
        self._due: dict[_Followed, None] = {}  # to be looked at before the next request
        self._late: dict[_Followed, None] = {}  # put off; not in the session
        self._max_bytes = 0  # that the session was told
        self._unflushed: dict[_Followed, None] = {}  # to flush before the next fetch speaks of it
        self._interruption: Timer | None = None
        self._failures = 0  # of whole fetches, in a row
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._followed)

    # For others

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """What is copied."""
        return tuple(followed.partition for followed in self._followed.values())

    def add(self, partition: Partition) -> None:
        """Copy this one too; one that was put off is asked for again without a pause.

        Where it is asked for in this epoch nothing changes: on a long way, in-sync sets that change
        more often than an answer needs would keep it from ever getting one. Nor is an answer thrown
        away that is being used: its leader does not tell twice what is committed.
        """
        if self._is_asking_for(partition):
            return
        self.remove(partition.topic_partition)
        followed = self._followed[partition.topic_partition] = _Followed(partition)
        self._due[followed] = None
        if partition.log.flush_is_due:
            self._unflushed[followed] = None
        self._changed.set()
        if self._under_way is not None and self._interruption is None:
            seconds = interrupt_after_seconds(len(self._asked))
            self._interruption = self._clock.call_later(seconds, self._interrupt_late)

    def _is_asking_for(self, partition: Partition) -> bool:
        asked = self._asked.get((partition.topic_id, partition.topic_partition.partition))
        return (
            asked is not None
            and self._is_followed(asked.followed)
            and asked.followed.partition is partition
            and asked.position.leader_epoch == partition.leader_epoch
        )

    def remove(self, topic_partition: TopicPartition) -> None:
        followed = self._followed.pop(topic_partition, None)
        if followed is not None:
            self._due.pop(followed, None)
            self._late.pop(followed, None)
            self._drop_partition(followed)

    def look_again(self, topic_partition: TopicPartition) -> None:
        """Something happened to a partition besides what came from its leader."""
        followed = self._followed.get(topic_partition)
        if followed is not None:
            self._due[followed] = None

    def close(self) -> None:
        """End at the next step. What is being written is written to its end."""
        self._is_closed = True
        for topic_partition in tuple(self._followed):
            self.remove(topic_partition)
        self._changed.set()
        self._interrupt()

    def _interrupt_late(self) -> None:
        """Do not let a new partition wait until a long poll about others is over."""
        self._interruption = None
        if any(followed.asked_as is None for followed in self._due):
            self._interrupt()

    def _interrupt(self) -> None:
        if self._under_way is not None:
            self._under_way.request()

    # The task

    async def run(self) -> None:
        try:
            while not self._is_closed:
                self._changed.clear()
                self._note_due()
                await self._cut_damaged()
                if self._unflushed:
                    await self._flush()
                self._update_session()
                if self._asked:
                    await self._fetch()
                else:
                    await self._wait_for_work()
        finally:
            if self._interruption is not None:
                self._interruption.cancel()
            await self._link.close()

    async def _wait_for_work(self) -> None:
        """Until a partition is added, or one that has failed may be tried again."""
        if not self._followed:
            await self._changed.wait()
            return
        now = self._clock.monotonic()
        next_at = min((followed.not_before for followed in self._late), default=now)
        timer = self._clock.call_later(max(next_at - now, 0.001), self._changed.set)
        try:
            await self._changed.wait()
        finally:
            timer.cancel()

    async def _cut_damaged(self) -> None:
        """Take away bytes that are known to be bad, once nobody relies on this replica."""
        for followed in tuple(self._due):
            partition, state = followed.partition, followed.partition.state
            offset = state.damaged_from
            if offset is None or not state.is_following or self._broker_id in state.isr:
                continue
            _log.warning("%s is copied again from offset %d", partition.topic_partition, offset)
            state.damaged_from = None
            try:
                await self._truncation.cut_off(partition, offset)
            except StorageError as error:
                self._put_off(followed, str(error))
            finally:
                if not state.is_leader and partition.log.log_end_offset > offset:
                    state.damaged_from = offset  # refused, or there was an election meanwhile

    def _is_followed(self, followed: _Followed) -> bool:
        """It may have been removed, or added anew."""
        return self._followed.get(followed.partition.topic_partition) is followed

    async def _flush(self) -> None:
        """REP-7: what `flush.messages` wants on the disk is there before a fetch tells of it."""
        due = [one for one in self._unflushed if self._is_followed(one)]
        self._unflushed = dict.fromkeys(due)
        flushes = (followed.partition.log.flush() for followed in due)
        for followed, error in zip(
            due, await asyncio.gather(*flushes, return_exceptions=True), strict=True
        ):
            if error is None:
                del self._unflushed[followed]
            elif isinstance(error, KafkaError):
                self._put_off(followed, str(error))
            else:
                raise error

    # Asking

    def _note_due(self) -> None:
        """What has been put off for long enough is due; everything, where everybody may be."""
        now, max_bytes = self._clock.monotonic(), self._options().replica_fetch_max_bytes
        if max_bytes != self._max_bytes or self._quota.is_exceeded:
            self._max_bytes = max_bytes
            self._due.update(dict.fromkeys(self._followed.values()))
        for followed in [one for one in self._late if one.not_before <= now]:
            del self._late[followed]
            self._due[followed] = None

    def _update_session(self) -> None:
        """Tell the session what is wanted of the partitions that are due."""
        now = self._clock.monotonic()
        due, self._due = self._due, {}
        for followed in filter(self._is_followed, due):
            partition = followed.partition
            if followed.not_before > now or not partition.is_following:
                self._put_off_until(followed, max(followed.not_before, now))
            elif self._quota.holds_back(partition):
                self._put_off_until(followed, now + self._quota.pause_seconds)
            else:
                self._want_partition(followed)

    def _want_partition(self, followed: _Followed) -> None:
        partition = followed.partition
        position = partition.fetch_position()
        topic_id, (name, index) = partition.topic_id, partition.topic_partition
        if followed.asked_as != (topic_id, index):
            self._drop_partition(followed)
        session_key = (TopicKey(name, topic_id), index)
        followed.asked_as = (topic_id, index)
        self._late.pop(followed, None)
        self._asked[topic_id, index] = _Asked(followed, position, session_key)
        self._session.want(
            session_key,
            FetchPartition(
                index,
                position.leader_epoch,
                position.offset,
                position.last_epoch,
                position.log_start_offset,
                self._max_bytes,
            ),
        )

    def _put_off_until(self, followed: _Followed, not_before: float) -> None:
        followed.not_before = not_before
        self._drop_partition(followed)
        self._late[followed] = None

    def _drop_partition(self, followed: _Followed) -> None:
        key, followed.asked_as = followed.asked_as, None
        if key is not None:
            self._session.drop(self._asked.pop(key).key)

    def _make_request(self) -> FetchRequest:
        options = self._options()
        said = self._session.next_request()
        return FetchRequest(
            replica_id=self._broker_id,
            replica_epoch=self._broker_epoch(),
            max_wait_ms=options.replica_fetch_wait_max_ms,
            min_bytes=options.replica_fetch_min_bytes,
            max_bytes=options.replica_fetch_response_max_bytes,
            isolation_level=0,
            session_id=said.session_id,
            session_epoch=said.epoch,
            topics=said.topics,
            forgotten_topics=said.forgotten,
            rack_id="",
            cluster_id=None,
        )

    async def _fetch(self) -> None:
        request = self._make_request()
        try:
            answer = await self._send_request(request)
        except WorkInterrupted:
            self._session.start_over()
        except Exception as error:  # noqa: BLE001 whatever it is, the copying goes on
            await self._pause(error)
        else:
            await self._use_answer(answer)

    async def _send_request(self, request: FetchRequest) -> FetchAnswer:
        self._under_way = Interruption()
        try:
            return await self._under_way.run(self._link.fetch(request))
        finally:
            self._under_way = None

    async def _pause(self, error: BaseException) -> None:
        if not isinstance(error, ClientError | MalformedFrameError):
            _log.error("a fetch from broker %d failed", self.leader_id, exc_info=error)
        self._session.start_over()
        if self._failures == 0:
            _log.warning("cannot copy from broker %d: %s", self.leader_id, error)
        self._failures += 1
        await self._clock.sleep(self._backoff_seconds(self._failures))

    def _backoff_seconds(self, failures: int) -> float:
        most = self._options().replica_fetch_backoff_ms / 1000
        return min(most, FIRST_BACKOFF_SECONDS * (1 << min(failures - 1, 20)))

    # Using the answer

    async def _use_answer(self, answer: FetchAnswer) -> None:
        if answer.error_code != ErrorCode.none.value:
            self._session.start_over(is_forgotten=True)
            self._failures += 1
            if self._failures > 1:
                await self._clock.sleep(self._backoff_seconds(self._failures))
            return
        self._failures = 0
        self._session.answered(answer.session_id)
        for topic in answer.topics:
            for row in topic.partitions:
                await self._use_row(topic.topic_id, row)

    async def _use_row(self, topic_id: UUID | None, row: AnsweredPartition) -> None:
        asked = None if topic_id is None else self._asked.get((topic_id, row.partition))
        if asked is None:
            return
        followed, position, _ = asked
        partition = followed.partition
        self._due[followed] = None
        if not partition.is_at(position):
            return
        try:
            if row.error_code == ErrorCode.offset_out_of_range.value:
                await self._come_back_into_range(followed, position)
            elif row.error_code != ErrorCode.none.value:
                self._put_off(followed, f"error {row.error_code}")
            elif row.diverging_epoch is not None:
                await self._truncation.go_back(partition, position, row.diverging_epoch)
            else:
                await self._append(followed, position, row)
        except KafkaError as error:  # mostly a damaged batch, or a disk that failed
            self._put_off(followed, str(error))
        except Exception as error:  # noqa: BLE001 a bug holds up one partition, not all of them
            _log.exception("%s cannot be copied", partition.topic_partition)
            self._put_off(followed, repr(error))

    async def _append(
        self, followed: _Followed, position: FollowPosition, row: AnsweredPartition
    ) -> None:
        partition, asked_offset = followed.partition, position.offset
        if partition.log.flushing.has_pending_truncation:  # who truncated it was interrupted
            await self._truncation.complete(partition)
        if row.records and position.offset == position.log_start_offset:
            position = await self._truncation.make_room(partition, position, row.records)
        for piece in _pieces(row.records):
            if not partition.is_at(position):  # there was an election between two turns
                return
            partition.append_as_follower(piece)
            self._quota.record(partition, len(piece))
            position = position._replace(offset=partition.log.log_end_offset)
            await self._clock.sleep(0)
        if row.records and position.offset == asked_offset:
            raise CorruptBatchError("the leader sent no whole batch")
        if partition.log.flush_is_due:
            self._unflushed[followed] = None
        if partition.is_at(position):
            partition.apply_leader_offsets(row.high_watermark, row.log_start_offset)
            followed.failures = 0

    def _put_off(self, followed: _Followed, reason: str) -> None:
        followed.failures += 1
        seconds = self._backoff_seconds(followed.failures)
        followed.not_before = self._clock.monotonic() + seconds
        self._due[followed] = None
        _log.debug(
            "%s is not copied from broker %d for %.3f s: %s",
            followed.partition.topic_partition,
            self.leader_id,
            seconds,
            reason,
        )

    async def _come_back_into_range(self, followed: _Followed, position: FollowPosition) -> None:
        partition = followed.partition
        try:
            bounds = await self._link.find_bounds(partition.topic_partition, position.leader_epoch)
        except (ClientError, MalformedFrameError) as error:
            self._put_off(followed, str(error))
            return
        if bounds is None:
            self._put_off(followed, "the leader does not say where its log begins")
            return
        if not await self._truncation.come_into_range(partition, position, bounds):
            self._put_off(followed, "its offset was out of range and is no longer")


def interrupt_after_seconds(held_partitions: int) -> float:
    """How long a partition that was added waits for a long poll about others to end by itself.

    An interruption makes the session start over: all that it holds is asked for and looked at
    again, some 50 us for each. The more it holds the longer it is left alone, so that topics that
    are made one after the other cost what they hold, and not what is there already. From a
    thousand partitions on the long poll mostly ends first, as it always does with Kafka.
    """
    return max(_INTERRUPT_SECONDS, held_partitions * _INTERRUPT_SECONDS_PER_PARTITION)


def _pieces(records: memoryview) -> Iterator[memoryview]:
    """What a leader sent, in pieces of whole batches that do not hold up the loop for long."""
    start = end = count = 0
    for position, header in walk_headers(records):
        end = position + header.size_bytes
        count += 1
        if count >= _BATCHES_PER_TURN or end - start >= _BYTES_PER_TURN:
            yield records[start:end]
            start, count = end, 0
    if start < len(records):
        yield records[start:]


FETCH_VERSION: Final = 16
"""The first with everything a follower says and hears: topic ids, its broker epoch, divergence."""


class LogBounds(NamedTuple):
    """Where a leader's log begins and ends."""

    log_start_offset: int
    log_end_offset: int


class LeaderEndPoint(Protocol):
    """The way to a leader. Raises `ClientError` or `MalformedFrameError` when there is none."""

    async def fetch(self, request: FetchRequest) -> FetchAnswer: ...

    async def find_bounds(
        self, topic_partition: TopicPartition, leader_epoch: LeaderEpoch
    ) -> LogBounds | None:
        """None when the leader refuses."""
        ...

    async def close(self) -> None: ...


class RemoteLeaderEndPoint:
    """The real one. A `LeaderEndPoint`."""

    def __init__(
        self, peer: Peer, broker_id: BrokerId, options: Callable[[], BrokerOptions]
    ) -> None:
        self._peer = peer
        self._broker_id = broker_id
        self._options = options
        self._client_id = f"broker-{broker_id}-fetcher"

    async def fetch(self, request: FetchRequest) -> FetchAnswer:
        body = encode_fetch_request(FETCH_VERSION, request)
        prefix = request_prefix(FETCH.key, FETCH_VERSION, 0, self._client_id, len(body))
        wait_seconds = request.max_wait_ms / 1000
        frame = await self._send_frame(prefix + body, extra_seconds=wait_seconds)
        _, position = read_response_header(frame, FETCH.key, FETCH_VERSION)
        return parse_fetch_answer(FETCH_VERSION, frame, position)

    async def find_bounds(
        self, topic_partition: TopicPartition, leader_epoch: LeaderEpoch
    ) -> LogBounds | None:
        offsets = []
        for timestamp in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP):
            question = encode_offset_question(
                topic_partition.topic,
                topic_partition.partition,
                replica_id=self._broker_id,
                leader_epoch=leader_epoch,
                timestamp=timestamp,
                client_id=self._client_id,
            )
            error_code, offset = parse_offset_answer(await self._send_frame(question))
            if error_code != ErrorCode.none.value:
                return None
            if offset < 0:
                raise MalformedFrameError(f"a leader's log of {topic_partition} has no offsets")
            offsets.append(offset)
        return LogBounds(*offsets)

    async def _send_frame(self, frame: bytes, extra_seconds: float = 0.0) -> memoryview:
        timeout_seconds = self._options().replica_socket_timeout_ms / 1000 + extra_seconds
        return await self._peer.ask((frame,), timeout_seconds=timeout_seconds)

    async def close(self) -> None:
        await self._peer.close()


TaskFactory = Callable[[], Coroutine[Any, Any, None]]


class ReplicaFetchers:
    """The fetchers of one broker; owned by the event loop.

    `keep(name, begin)` runs what `begin` gives, and begins again when that fails.
    """

    def __init__(
        self, make: Callable[[BrokerId], ReplicaFetcher], keep: Callable[[str, TaskFactory], object]
    ) -> None:
        self._make = make
        self._keep = keep
        self._fetchers: dict[BrokerId, ReplicaFetcher] = {}  # each with at least one partition
        self._leaders: dict[TopicPartition, BrokerId] = {}

    def follow(self, partition: Partition) -> None:
        """Copy from the partition's leader from now on."""
        leader = partition.leader_id
        if self._leaders.get(partition.topic_partition, leader) != leader:
            self.forget(partition.topic_partition)
        self._leaders[partition.topic_partition] = leader
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = self._make(leader)
            self._keep(f"copying from broker {leader}", self._copying(leader, fetcher))
        fetcher.add(partition)

    def _copying(self, leader: BrokerId, fetcher: ReplicaFetcher) -> TaskFactory:
        """How to copy with this fetcher and, if it fails, with another in its place."""
        failed: ReplicaFetcher | None = None

        async def copy() -> None:
            nonlocal failed
            present = fetcher if failed is None else self._replace(leader, failed)
            if present is not None:
                failed = present
                await present.run()

        return copy

    def _replace(self, leader: BrokerId, failed: ReplicaFetcher) -> ReplicaFetcher | None:
        if self._fetchers.get(leader) is not failed:
            return None  # all it copied is copied from elsewhere, or by another one, by now
        fetcher = self._fetchers[leader] = self._make(leader)
        for partition in failed.partitions:
            fetcher.add(partition)
        return fetcher

    def look_again(self, topic_partition: TopicPartition) -> None:
        """Something happened to a partition here; nothing where it is not copied."""
        leader = self._leaders.get(topic_partition)
        if leader is not None:
            self._fetchers[leader].look_again(topic_partition)

    def forget(self, topic_partition: TopicPartition) -> None:
        """Copy a partition no longer."""
        leader = self._leaders.pop(topic_partition, None)
        if leader is None:
            return
        fetcher = self._fetchers[leader]
        fetcher.remove(topic_partition)
        if not len(fetcher):
            del self._fetchers[leader]
            fetcher.close()

    def forget_all(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
        self._leaders.clear()


class Truncations(Protocol):
    """Keeps a power loss from undoing half of a truncation; `storage.checkpoints` does."""

    async def prepare_truncation(self, log: Log, offset: int) -> None:
        """Return when no checkpoint vouches for what lies behind an offset."""
        ...

    async def complete_truncation(self, log: Log) -> None:
        """Return when a truncation is on disk; nothing is appended before."""
        ...


class FollowerTruncation:
    """See the module. What is told of a position is done only while the log is there."""

    def __init__(self, truncations: Truncations) -> None:
        self._truncations = truncations

    async def cut_off(self, partition: Partition, offset: int) -> None:
        """Take away what is at an offset and behind it."""
        async with partition.truncating:
            await self._truncate(partition, offset)

    async def go_back(
        self, partition: Partition, position: FollowPosition, diverging_epoch: tuple[int, int]
    ) -> None:
        """The leader's history is another one from the end of an epoch on."""
        async with partition.truncating:
            if partition.is_at(position):
                await self._truncate(partition, partition.find_truncation_offset(*diverging_epoch))

    async def come_into_range(
        self, partition: Partition, position: FollowPosition, bounds: LogBounds
    ) -> bool:
        """Our log ends before the leader's begins, or behind its end (an unclean election).

        False when it does neither any more.
        """
        async with partition.truncating:
            if not partition.is_at(position):
                return True
            if position.offset < bounds.log_start_offset:
                partition.truncate_fully(bounds.log_start_offset)
                await self._truncations.complete_truncation(partition.log)
            elif position.offset > bounds.log_end_offset:
                await self._truncate(partition, bounds.log_end_offset)
            else:
                return False
        return True

    async def make_room(
        self, partition: Partition, position: FollowPosition, records: memoryview
    ) -> FollowPosition:
        """Let a batch fit in whose middle the leader's log begins, and an empty one here."""
        _, first = next(walk_headers(records), (0, None))
        if first is None:
            return position
        start = find_earlier_start(
            position.log_start_offset, position.offset, first.base_offset, first.next_offset - 1
        )
        if start is None:
            return position
        async with partition.truncating:
            if not partition.is_at(position):
                return position
            partition.truncate_fully(start)
            await self._truncations.complete_truncation(partition.log)
        return position._replace(offset=start, log_start_offset=start)

    async def complete(self, partition: Partition) -> None:
        """Who truncated the log was interrupted."""
        async with partition.truncating:
            await self._truncations.complete_truncation(partition.log)

    async def _truncate(self, partition: Partition, offset: int) -> None:
        """Hold `truncating`: the log may get another owner while the disk works."""
        position, log = partition.fetch_position(), partition.log
        try:
            prepared = None
            while prepared is None or _cut_of(log, offset) < prepared:
                # Compaction may get further while the disk works, and then all of it goes, too.
                prepared = _cut_of(log, offset)
                await self._truncations.prepare_truncation(log, prepared)
            if partition.is_at(position):
                partition.truncate_to(offset)
        finally:
            partition.log.flushing.withdraw_truncation()
        await self._truncations.complete_truncation(partition.log)


def _cut_of(log: Log, offset: int) -> Offset:
    return find_cut(offset, log.log_start_offset, log.cleaned_offset, log.compared_offset)
