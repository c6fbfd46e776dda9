"""What both faces of a queue have inside: the machine, and the shell that works for it.

`AsyncQueue` runs it on its user's loop, `Queue` on a loop in a thread of its own. Whatever happens,
happens to the machine (`rules.share_consumer`) in a turn, under a lock that the program's threads
share: taking a record that is there, and acknowledging one, bother the loop only when it has
nothing under way.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never, cast
from uuid import UUID

from moldau.client.cluster import ClusterClient, client_settings
from moldau.client.connections import BrokerConnection, ConnectionPool, PartitionOutages
from moldau.client.consumer.coordinator import CoordinatorConnection, make_member_id
from moldau.client.consumer.rules.consumer_membership import HeartbeatAnswer
from moldau.client.consumer.rules.instructions import Refresh, WriteLog
from moldau.client.queue.rules.in_flight import (
    AcknowledgedRanges,
    AcquiredOffsets,
    ArmShareTimer,
    FinishAcknowledgement,
    InFlightRecord,
    SendShareAcknowledge,
    SendShareFetch,
    SendShareHeartbeat,
    SendShareLeave,
    ShareAnswer,
    ShareInstruction,
    SharePartitionAnswer,
    ShareTimer,
    TopicIdPartition,
)
from moldau.client.queue.rules.share_consumer import ShareConsumerMachine, ShareConsumerSettings
from moldau.client.queue.rules.share_membership import SHARE_LEAVING_EPOCH
from moldau.client.rules.broker_errors import find_error, read_code
from moldau.client.rules.cluster_metadata import parse_bootstrap
from moldau.clock import Clock, SystemClock, Timer, finish_within
from moldau.config.client_options import QueueOptions
from moldau.errors import (
    ClientError,
    ClosedClientError,
    KafkaError,
    MalformedFrameError,
    UnsupportedByBrokerError,
)
from moldau.model import AcknowledgeType, TopicPartition
from moldau.net.port import Network
from moldau.net.sockets import SocketNetwork
from moldau.tasks import TaskSupervisor
from moldau.wire.apis import SHARE_ACKNOWLEDGE, SHARE_FETCH, SHARE_GROUP_HEARTBEAT, Api
from moldau.wire.shape import Values, millis

if TYPE_CHECKING:
    from kio.schema.share_acknowledge.v2.response import ShareAcknowledgeResponse
    from kio.schema.share_fetch.v2.response import PartitionData, ShareFetchResponse


_log = logging.getLogger("moldau.queue")

OnAcknowledged: TypeAlias = Callable[[Exception | None], None]
"""Called on the loop: with what went wrong, or None."""

OnUnacknowledged: TypeAlias = Callable[[InFlightRecord, Exception], None]


class ShareConsumer:
    """One queue without its face."""

    def __init__(
        self,
        bootstrap: str,
        settings: ShareConsumerSettings,
        *,
        on_unacknowledged: OnUnacknowledged,
        network: Network | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        options = settings.options
        self.options = options
        self.clock: Clock = clock or SystemClock()
        self._on_unacknowledged = on_unacknowledged
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None  # once somebody has come
        self._is_woken = False
        self._is_over = False
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._left: asyncio.Future[None] | None = None
        self._acknowledging: dict[InFlightRecord, OnAcknowledged] = {}
        self._renewing: dict[InFlightRecord, list[OnAcknowledged]] = {}
        self._armed: dict[object, Timer] = {}
        self._tasks = TaskSupervisor(self._on_task_failure)
        network = network or SocketNetwork(self.clock)
        client = client_settings(options, timeout_ms=options.default_api_timeout_ms)
        self._client = ClusterClient(
            bootstrap, client, network=network, clock=self.clock, random=random
        )
        self._pool = ConnectionPool(
            parse_bootstrap(bootstrap), network, self.clock, client.connection
        )
        self._machine = ShareConsumerMachine(
            settings,
            backoff=client.backoff,
            chance=self._client.random.random,
            now=self.clock.monotonic(),
        )
        self._turns = _ShareTurns(self)
        self._requests = ShareRequests(
            self._client,
            self._pool,
            network,
            self._tasks,
            self._turns,
            group_id=settings.group_id,
            member_id=make_member_id(self._client.random),
            options=options,
            on_left=self._finish_leaving,
        )

    @property
    def is_closed(self) -> bool:
        return self._machine.is_closed

    # Turns

    def begin_turn(self) -> ShareConsumerMachine:
        self._lock.acquire()
        self._machine.begin_turn(self.clock.monotonic(), self._client.metadata.current)
        return self._machine

    def end_turn(self) -> None:
        """Do what the machine wants done."""
        try:
            instructions, wakes_program = self._machine.end_turn()
        finally:
            self._lock.release()
        for instruction in instructions:
            self._perform(instruction)
        if wakes_program:
            self._wake_waiters()

    def _perform(self, instruction: ShareInstruction) -> None:
        match instruction:
            case (
                SendShareFetch()
                | SendShareAcknowledge()
                | SendShareHeartbeat()
                | SendShareLeave()
                | Refresh()
            ):
                self._requests.perform(instruction)
            case FinishAcknowledgement():
                self._finish(instruction)
            case WriteLog(is_warning, message):
                _log.log(logging.WARNING if is_warning else logging.INFO, "%s", message)
            case ArmShareTimer(timer, seconds):
                self._arm_timer(timer, seconds)
            case _ as never:
                assert_never(never)

    def _arm_timer(self, timer: ShareTimer, seconds: float) -> None:
        key = object()

        def fire() -> None:
            del self._armed[key]
            with self._turns as machine:
                machine.timer_fired(timer)

        self._armed[key] = self.clock.call_later(seconds, fire)

    def _wake(self) -> None:
        """From any thread: have the loop take a turn."""
        loop = self._loop
        if loop is None or self._is_woken:
            return
        self._is_woken = True
        try:
            loop.call_soon_threadsafe(self._take_turn)
        except RuntimeError:  # the loop is closed, and everything with it
            self._is_over = True

    def _take_turn(self) -> None:
        self._is_woken = False
        if not self._is_over:
            with self._turns:
                pass

    # Taking

    def take_ready_records(self, limit: int) -> list[InFlightRecord]:
        """Records that are there already. From any thread."""
        with self._lock:
            taken = self._machine.take_ready_records(limit, self.clock.monotonic())
            must_wake = bool(taken) and self._machine.is_idle_with_work
        if must_wake:
            self._wake()
        return taken

    async def take_records(self, limit: int, timeout_seconds: float | None) -> list[InFlightRecord]:
        """Records, waited for if there are none; nothing when none come in time."""
        self._loop = asyncio.get_running_loop()
        seconds = math.inf if timeout_seconds is None else timeout_seconds
        deadline = self.clock.monotonic() + seconds
        while True:
            self._require_open()
            taken = self.take_ready_records(limit)
            left = deadline - self.clock.monotonic()
            if taken or left <= 0:
                return taken
            with self._turns as machine:
                machine.raise_failures()
                machine.start()
                machine.wait_for_records(self.clock.monotonic())
            try:
                await self._wait_for_turn(left)
            finally:
                with self._lock:
                    self._machine.stop_waiting()
                    is_more = self._machine.has_ready
                if is_more:
                    self._wake_waiters(1)  # whoever was woken may have been cancelled

    async def _wait_for_turn(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        timer: Timer | None = None
        if seconds != math.inf:
            timer = self.clock.call_later(seconds, lambda: _wake_waiter(waiter))
        self._waiters.append(waiter)
        with self._lock:
            is_ready = self._machine.has_ready  # since this one looked
        if is_ready:
            _wake_waiter(waiter)
        try:
            await waiter
        finally:
            if timer is not None:
                timer.cancel()
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _wake_waiters(self, count: int | None = None) -> None:
        left = len(self._waiters) if count is None else count
        while self._waiters and left:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                left -= 1

    # What became of records

    def acknowledge_record(
        self, record: InFlightRecord, kind: AcknowledgeType, done: OnAcknowledged | None
    ) -> None:
        """Tell the broker. From any thread; `done` is called when it knows, or cannot know."""
        with self._lock:
            if done is not None:
                record.is_watched = True
                self._acknowledging[record] = done
            try:
                self._machine.acknowledge_record(record, kind)
            except BaseException:
                self._acknowledging.pop(record, None)
                raise
            must_wake = self._machine.is_idle_with_work
        if must_wake:
            self._wake()

    def renew_lock(self, record: InFlightRecord, done: OnAcknowledged) -> None:
        """Have the lock begin anew. From any thread."""
        with self._lock:
            self._machine.renew_lock(record)
            self._renewing.setdefault(record, []).append(done)
            must_wake = self._machine.is_idle_with_work
        if must_wake:
            self._wake()

    def _finish(self, instruction: FinishAcknowledgement) -> None:
        record, is_renewal, failure = instruction
        with self._lock:
            if is_renewal:
                calls = self._renewing.pop(record, [])
            else:
                done = self._acknowledging.pop(record, None)
                calls = [] if done is None else [done]
        for call in calls:
            call(failure)
        is_heard = bool(calls) or record.kind in (None, AcknowledgeType.RELEASE)
        if failure is not None and not is_heard:
            self._on_unacknowledged(record, failure)

    # Ends

    async def close(self, timeout_seconds: float) -> None:
        """Release what was not finished, tell everything, leave the group, end everything."""
        if self.is_closed:
            return
        self._loop = asyncio.get_running_loop()
        self._left = self._loop.create_future()
        with self._turns as machine:
            machine.leave()
        self._wake_waiters()
        try:
            await finish_within(self._wait_until_left(), self.clock, timeout_seconds)
        except TimeoutError:
            _log.warning("leaving the share group took longer than %g seconds", timeout_seconds)
        finally:
            await self._end()

    async def _wait_until_left(self) -> None:
        if self._left is not None:
            await self._left

    def _finish_leaving(self) -> None:
        if self._left is not None and not self._left.done():
            self._left.set_result(None)

    async def _end(self) -> None:
        self._is_over = True
        for armed in self._armed.values():
            armed.cancel()
        await self._tasks.close()
        with self._lock:
            untold = self._machine.give_up()
        for instruction in untold:
            self._finish(instruction)
        with self._lock:
            calls = [*self._acknowledging.values()]
            calls += [one for some in self._renewing.values() for one in some]
            self._acknowledging.clear()
            self._renewing.clear()
        for call in calls:
            call(ClosedClientError("the queue is closed"))
        await self._requests.close()
        await self._pool.close()
        await self._client.close()

    def _require_open(self) -> None:
        if self.is_closed:
            raise ClosedClientError("the queue is closed")

    def _on_task_failure(self, name: str, error: BaseException) -> None:
        _log.error("the task %r of the queue has failed", name, exc_info=error)
        failure = error if isinstance(error, Exception) else ClientError(str(error))
        with self._turns as machine:
            machine.raise_later(failure)

    def on_fork(self) -> None:
        """In a child process: the thread and the membership are the parent's alone."""
        self._lock = threading.Lock()
        self._machine.is_closed = True
        self._loop = None


class _ShareTurns:
    """`with turns as machine:` an event happens; afterwards the shell does what the machine wants.

    Nothing may be awaited inside.
    """

    __slots__ = ("_share_consumer",)

    def __init__(self, share_consumer: ShareConsumer) -> None:
        self._share_consumer = share_consumer

    def __enter__(self) -> ShareConsumerMachine:
        return self._share_consumer.begin_turn()

    def __exit__(self, *_: object) -> None:
        self._share_consumer.end_turn()


def _wake_waiter(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


# The requests: heartbeats to the group's coordinator, share fetches and acknowledgements to the
# leaders of partitions, metadata. Heartbeats have a connection of their own, and so have the share
# sessions: a broker ends a session with its connection, and releases the records.


_FIRST_WITH_RENEWALS: Final = 2
_DROPPABLE: Final = frozenset({"share_acquire_mode", "is_renew_ack"})
_UNSUPPORTED: Final = (
    "this broker does not serve share groups (Kafka does from 4.2 on, with the feature "
    "share.version=1): read the topic with a Consumer, or upgrade the broker"
)

ShareTurns: TypeAlias = AbstractContextManager[ShareConsumerMachine]
"""`with turns as machine:` an event happens to the machine; what it wants done is done then."""

_Rows = dict[UUID, list[dict[str, object]]]


class ShareRequests:
    """The requests of one queue's client."""

    def __init__(
        self,
        client: ClusterClient,
        pool: ConnectionPool,
        network: Network,
        tasks: TaskSupervisor,
        turns: ShareTurns,
        *,
        group_id: str,
        member_id: str,
        options: QueueOptions,
        on_left: Callable[[], None],
    ) -> None:
        self._client = client
        self._pool = pool
        self._tasks = tasks
        self._turns = turns
        self._group_id = group_id
        self._member_id = member_id
        self._options = options
        self._on_left = on_left
        self._coordinator = CoordinatorConnection(client, group_id, own_network=network)
        self._heartbeat: asyncio.Task[None] | None = None
        self._outages = PartitionOutages()
        self._watched: dict[int, BrokerConnection] = {}  # those of share sessions, while open

    async def close(self) -> None:
        await self._coordinator.close()

    def perform(
        self,
        asked: SendShareFetch
        | SendShareAcknowledge
        | SendShareHeartbeat
        | SendShareLeave
        | Refresh,
    ) -> None:
        member = f"member of {self._group_id}"
        match asked:
            case SendShareFetch(broker_id):
                self._tasks.spawn(f"share fetch from broker {broker_id}", self._exchange(asked))
            case SendShareAcknowledge(broker_id):
                self._tasks.spawn(f"acknowledge to broker {broker_id}", self._exchange(asked))
            case SendShareHeartbeat():
                self._heartbeat = self._tasks.spawn(member, self._send_member_heartbeat(asked))
            case SendShareLeave():
                if self._heartbeat is not None:
                    self._heartbeat.cancel()  # its answer means nothing any more
                self._tasks.spawn(member, self._leave(asked))
            case Refresh():
                self._tasks.spawn("metadata of a queue", self._refresh(asked))
            case _ as never:
                assert_never(never)

    # Membership

    async def _send_member_heartbeat(self, asked: SendShareHeartbeat) -> None:
        values = {
            "group_id": self._group_id,
            "member_id": self._member_id,
            "member_epoch": asked.epoch,
            "rack_id": asked.rack,
            "subscribed_topic_names": None if asked.topics is None else sorted(asked.topics),
        }
        try:
            answer = await self._send_heartbeat(values)
        except (KafkaError, ClientError) as error:
            await self._coordinator.note_failure(error)
            with self._turns as machine:
                machine.membership.heartbeat_failed(asked.beat, error)
        else:
            with self._turns as machine:
                machine.membership.heartbeat_answered(asked.beat, answer)

    async def _leave(self, asked: SendShareLeave) -> None:
        if asked.is_told:
            values = {
                "group_id": self._group_id,
                "member_id": self._member_id,
                "member_epoch": SHARE_LEAVING_EPOCH,
            }
            with contextlib.suppress(KafkaError, ClientError):  # the session will time out
                await self._send_heartbeat(values)
        self._on_left()

    async def _send_heartbeat(self, values: Values) -> HeartbeatAnswer:
        return await self._coordinator.send_heartbeat(SHARE_GROUP_HEARTBEAT, values, _UNSUPPORTED)

    # Records

    async def _exchange(self, asked: SendShareFetch | SendShareAcknowledge) -> None:
        try:
            if isinstance(asked, SendShareFetch):
                answer = await self._fetch(asked)
            else:
                answer = await self._acknowledge(asked)
        except (KafkaError, ClientError) as error:
            with self._turns as machine:
                machine.failed(asked, error)
        else:
            self._report_refusals(answer)
            with self._turns as machine:
                machine.answered(asked, answer)

    async def _fetch(self, asked: SendShareFetch) -> ShareAnswer:
        options = self._options
        rows = _acknowledgement_rows(asked.acknowledged, asked.added)
        forgotten: defaultdict[UUID, list[int]] = defaultdict(list)
        for topic_id, index in asked.forgotten:
            forgotten[topic_id].append(index)
        values = {
            "group_id": self._group_id,
            "member_id": self._member_id,
            "share_session_epoch": asked.session_epoch,
            "max_wait": asked.max_wait_ms,
            "min_bytes": options.fetch_min_bytes,
            "max_bytes": options.fetch_max_bytes,
            "max_records": asked.max_records,
            "batch_size": asked.max_records,
            "share_acquire_mode": asked.mode.value,
            "is_renew_ack": False,
            "topics": [{"topic_id": one, "partitions": some} for one, some in rows.items()],
            "forgotten_topics_data": [
                {"topic_id": one, "partitions": some} for one, some in forgotten.items()
            ],
        }
        connection = await self._connect(asked.broker_id)
        version = self._choose_version(connection, SHARE_FETCH)
        found = await self._call(
            connection, SHARE_FETCH, version, values, extra_seconds=asked.max_wait_ms / 1000
        )
        answer = cast("ShareFetchResponse", found)
        self._coordinator.require_success(answer.error_code, answer.error_message)
        return ShareAnswer(
            partitions=[
                _read_partition((topic.topic_id, row.partition_index), row)
                for topic in answer.responses
                if topic.topic_id is not None
                for row in topic.partitions
            ],
            lock_ms=millis(answer.acquisition_lock_timeout),
            can_renew=version >= _FIRST_WITH_RENEWALS,
        )

    async def _acknowledge(self, asked: SendShareAcknowledge) -> ShareAnswer:
        rows = _acknowledgement_rows(asked.acknowledged)
        values = {
            "group_id": self._group_id,
            "member_id": self._member_id,
            "share_session_epoch": asked.session_epoch,
            "is_renew_ack": asked.has_renewals,
            "topics": [{"topic_id": one, "partitions": some} for one, some in rows.items()],
        }
        connection = await self._connect(asked.broker_id)
        version = self._choose_version(connection, SHARE_ACKNOWLEDGE)
        found = await self._call(connection, SHARE_ACKNOWLEDGE, version, values)
        answer = cast("ShareAcknowledgeResponse", found)
        self._coordinator.require_success(answer.error_code, answer.error_message)
        lock = getattr(answer, "acquisition_lock_timeout", None)  # from version 2 on
        return ShareAnswer(
            partitions=[
                SharePartitionAnswer(
                    (topic.topic_id, row.partition_index),
                    acknowledge_failure=find_error(row.error_code, row.error_message, ""),
                )
                for topic in answer.responses
                if topic.topic_id is not None
                for row in topic.partitions
            ],
            lock_ms=None if lock is None else millis(lock),
            can_renew=version >= _FIRST_WITH_RENEWALS,
        )

    async def _call(
        self,
        connection: BrokerConnection,
        api: Api,
        version: int,
        values: Values,
        *,
        extra_seconds: float = 0.0,
    ) -> object:
        try:
            return await connection.call(
                api, values, _DROPPABLE, version=version, extra_seconds=extra_seconds
            )
        except MalformedFrameError:
            await connection.close()
            raise

    async def _connect(self, broker_id: int) -> BrokerConnection:
        brokers = self._client.metadata.current.brokers
        self._pool.learn_brokers({one.id: one.address for one in brokers.values()})
        connection = await self._pool.to_broker(broker_id)
        if self._watched.get(broker_id) is not connection:
            self._watched[broker_id] = connection
            self._tasks.spawn(f"end of broker {broker_id}", self._watch(broker_id, connection))
        return connection

    async def _watch(self, broker_id: int, connection: BrokerConnection) -> None:
        """A session ends with its connection, and records are released that wait here."""
        failure = await connection.wait_until_over()
        if self._watched.get(broker_id) is connection:
            del self._watched[broker_id]
            with self._turns as machine:
                machine.disconnected(broker_id, failure)

    def _choose_version(self, connection: BrokerConnection, api: Api) -> int:
        try:
            return connection.choose_version(api)
        except UnsupportedByBrokerError as error:
            raise UnsupportedByBrokerError(_UNSUPPORTED) from error

    def _report_refusals(self, answer: ShareAnswer) -> None:
        if not self._outages and all(row.failure is None for row in answer.partitions):
            return
        now = self._client.clock.monotonic()
        topics = self._client.metadata.current.topics.values()
        names = {topic.topic_id: topic.name for topic in topics}
        for row in answer.partitions:
            topic_id, index = row.partition
            partition = TopicPartition(names.get(topic_id, str(topic_id)), index)
            if row.failure is None:
                self._outages.on_success(partition, now)
            elif row.failure.code.retriable:  # other errors are the program's
                self._outages.on_refusal(partition, row.failure, now)

    # Metadata

    async def _refresh(self, asked: Refresh) -> None:
        try:
            await self._client.metadata.refresh(asked.topics)
        except (KafkaError, ClientError) as error:
            with self._turns as machine:
                machine.metadata.refresh_failed(error)
        else:
            with self._turns as machine:
                machine.refreshed()


def _acknowledgement_rows(
    acknowledged: AcknowledgedRanges, added: Iterable[TopicIdPartition] = ()
) -> _Rows:
    """Rows of partitions by topic: those with something to acknowledge, and those to be added."""
    rows: defaultdict[UUID, list[dict[str, object]]] = defaultdict(list)
    for topic_id, index in dict.fromkeys((*acknowledged, *added)):
        ranges = acknowledged.get((topic_id, index), ())
        rows[topic_id].append(
            {
                "partition_index": index,
                "acknowledgement_batches": [
                    {
                        "first_offset": one.first_offset,
                        "last_offset": one.last_offset,
                        "acknowledge_types": (one.kind.value,),
                    }
                    for one in ranges
                ],
            }
        )
    return rows


def _read_partition(partition: TopicIdPartition, row: PartitionData) -> SharePartitionAnswer:
    acknowledge_code = read_code(row.acknowledge_error_code)
    return SharePartitionAnswer(
        partition=partition,
        failure=find_error(row.error_code, row.error_message, ""),
        acknowledge_failure=find_error(acknowledge_code, row.acknowledge_error_message, ""),
        records=memoryview(row.records or b""),
        acquired=[
            AcquiredOffsets(one.first_offset, one.last_offset, one.delivery_count)
            for one in row.acquired_records
        ],
    )
