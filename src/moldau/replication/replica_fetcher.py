"""Copies from one leader broker: one fetch at a time, with all partitions that follow it.

Answers for asking, for using or throwing away what comes, and for the pause after a failure. How a
log goes back is `follower_truncation`'s business, and who follows whom is `replica_fetchers`'.

A round looks at the partitions that something happened to since the one before it (`_due`), and at
no others: what the leader's session holds of the rest is still so. So a round costs what moved.

A shell: one task runs `run`. The partitions are changed by others between its steps; an answer is
used only where a partition still is where it was when the request was made.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple
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
from moldau.model import BrokerId, TopicPartition
from moldau.records.batch_header import walk_headers
from moldau.replication.follower import FollowPosition
from moldau.replication.follower_truncation import FollowerTruncation, Truncations
from moldau.replication.leader_link import LeaderLink
from moldau.replication.partition import Partition
from moldau.replication.replication_quota import ReplicationQuota
from moldau.wire.fetch_exchange import (
    AnsweredPartition,
    FetchAnswer,
    FetchSessionHandler,
    SessionKey,
    TopicKey,
)
from moldau.wire.fetch_frame import FetchPartition, FetchRequest

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
        link: LeaderLink,
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
            self._ask_no_longer(followed)

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
                await self._repair()
                if self._unflushed:
                    await self._flush()
                self._plan()
                if self._asked:
                    await self._fetch()
                else:
                    await self._rest()
        finally:
            if self._interruption is not None:
                self._interruption.cancel()
            await self._link.close()

    async def _rest(self) -> None:
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

    async def _repair(self) -> None:
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

    def _plan(self) -> None:
        """Tell the session what is wanted of the partitions that are due."""
        now = self._clock.monotonic()
        due, self._due = self._due, {}
        for followed in filter(self._is_followed, due):
            partition = followed.partition
            if followed.not_before > now or not partition.is_following:
                self._ask_later(followed, max(followed.not_before, now))
            elif self._quota.holds_back(partition):
                self._ask_later(followed, now + self._quota.pause_seconds)
            else:
                self._ask(followed)

    def _ask(self, followed: _Followed) -> None:
        partition = followed.partition
        position = partition.follower.position()
        topic_id, (name, index) = partition.topic_id, partition.topic_partition
        if followed.asked_as != (topic_id, index):
            self._ask_no_longer(followed)
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

    def _ask_later(self, followed: _Followed, not_before: float) -> None:
        followed.not_before = not_before
        self._ask_no_longer(followed)
        self._late[followed] = None

    def _ask_no_longer(self, followed: _Followed) -> None:
        key, followed.asked_as = followed.asked_as, None
        if key is not None:
            self._session.drop(self._asked.pop(key).key)

    def _request(self) -> FetchRequest:
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
        request = self._request()
        try:
            answer = await self._ask_leader(request)
        except WorkInterrupted:
            self._session.start_over()
        except Exception as error:  # noqa: BLE001 whatever it is, the copying goes on
            await self._pause(error)
        else:
            await self._use(answer)

    async def _ask_leader(self, request: FetchRequest) -> FetchAnswer:
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

    async def _use(self, answer: FetchAnswer) -> None:
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
        if not partition.follower.is_at(position):
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
            await self._truncation.finish(partition)
        if row.records and position.offset == position.log_start_offset:
            position = await self._truncation.make_room(partition, position, row.records)
        for piece in _pieces(row.records):
            if not partition.follower.is_at(position):  # there was an election between two turns
                return
            partition.follower.append(piece)
            self._quota.record(partition, len(piece))
            position = position._replace(offset=partition.log.log_end_offset)
            await self._clock.sleep(0)
        if row.records and position.offset == asked_offset:
            raise CorruptBatchError("the leader sent no whole batch")
        if partition.log.flush_is_due:
            self._unflushed[followed] = None
        if partition.follower.is_at(position):
            partition.follower.take_offsets(row.high_watermark, row.log_start_offset)
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
