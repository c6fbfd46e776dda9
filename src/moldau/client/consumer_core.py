"""What both faces of the consumer have inside, put together.

`AsyncConsumer` runs it on its user's loop, `Consumer` on a loop in a thread of its own.

The program comes in through `come_in`, whenever it wants records and there are none at hand, or
when something waits for it (`attention`). In between it owns what it was given, and nothing changes
for it: a rebalance waits at the door (`partition_owner`). Everything here belongs to one loop;
faces in other threads read `attention`, and touch deliveries of readers that do not rest.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from random import Random

from moldau.client.cluster_client import ClusterClient
from moldau.client.connection_pool import ConnectionPool
from moldau.client.consumer_commits import CommitMode, Commits
from moldau.client.consumer_group import ConsumerGroup
from moldau.client.consumer_positions import PositionKeeper
from moldau.client.consumer_progress import Progress
from moldau.client.consumer_readers import Reader, Readers
from moldau.client.consumer_topics import ConsumerTopics
from moldau.client.fetcher import Fetcher, FetcherSettings
from moldau.client.group_values import GroupOffset
from moldau.client.news import News, finish_within
from moldau.client.option_settings import client_settings
from moldau.client.partition_owner import Listeners, PartitionOwner
from moldau.client.rules.addresses import parse_bootstrap
from moldau.client.rules.assignors import Assignor
from moldau.client.rules.delivery import Decoding, Position
from moldau.client.rules.offset_positions import Need, PartitionTable
from moldau.client.rules.subscription import Subscription
from moldau.client.user_calls import RunCall, UserCalls
from moldau.clock import Clock, SystemClock
from moldau.config.client_consumer_options import ConsumerOptions
from moldau.errors import (
    ClientError,
    ClosedClientError,
    ClusterUnreachableError,
    ConfigurationError,
    KafkaError,
    MoldauError,
    OffsetOutOfRangeError,
    OperationTimeoutError,
)
from moldau.model import TopicPartition
from moldau.net.port import Network
from moldau.net.sockets import SocketNetwork
from moldau.tasks import TaskSupervisor

_log = logging.getLogger(__name__)

_SHORTEST_REMINDER_SECONDS = 0.01


class ConsumerCore:
    """One consumer without its face."""

    def __init__(
        self,
        bootstrap: str,
        options: ConsumerOptions,
        *,
        group_id: str | None,
        commit_mode: CommitMode,
        assignors: Sequence[Assignor],
        listeners: Listeners,
        decoding: Decoding,
        network: Network | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        self.options = options
        self.clock: Clock = clock or SystemClock()
        self.attention = True  # something waits for the program to come in
        self.is_closed = False
        self._has_begun = False
        self._failures: list[Exception] = []  # to be raised by the program's next call
        self._last_failures: list[Exception] = []  # of its listeners, since it closes
        self._fatal: MoldauError | None = None  # to be raised by every call
        self._news = News(self.clock)
        self._tasks = TaskSupervisor(self._on_task_failure)
        network = network or SocketNetwork(self.clock)
        settings = client_settings(options, patience_ms=options.default_api_timeout_ms)
        self.client = ClusterClient(
            bootstrap, settings, network=network, clock=self.clock, random=random
        )
        self._fetch_pool = ConnectionPool(
            parse_bootstrap(bootstrap), network, self.clock, settings.connection
        )
        self.table = PartitionTable(options.auto_offset_reset, has_group=group_id is not None)
        self.readers = Readers(decoding, self.clock.monotonic())
        self._progress = Progress(self.table, self.readers)
        self._calls = UserCalls(self._announce, self._on_listener_failure)
        self._topics = ConsumerTopics(
            self.client,
            self.table,
            options,
            on_fresh=self._on_metadata,
            on_failure=self._on_metadata_failure,
        )
        self._fetcher = Fetcher(
            self.client,
            self._fetch_pool,
            self.table,
            FetcherSettings.of(options),
            self._tasks,
            on_news=self._announce,
            want_metadata=self._topics.keeper.want,
        )
        self._owner = PartitionOwner(
            self.table,
            self.readers,
            self._fetcher,
            self._topics,
            self._calls,
            listeners,
            self.clock,
            announce=self._announce,
            on_coming=self._on_coming,
            on_failure=self._fail,
        )
        self._group: ConsumerGroup | None = None
        if group_id is not None:
            self._group = ConsumerGroup(
                group_id,
                options,
                client=self.client,
                network=network,
                clock=self.clock,
                tasks=self._tasks,
                table=self.table,
                topics=self._topics,
                owner=self._owner,
                calls=self._calls,
                news=self._news,
                announce=self._announce,
                commit_mode=commit_mode,
                assignors=assignors,
            )
            self._owner.commits = self._group.commits
        self._positions = PositionKeeper(
            self.client,
            self.table,
            None if self._group is None else self._group.offsets,
            read_committed=self.reads_committed,
            timeout_seconds=options.default_api_timeout_ms / 1000,
            on_found=self._on_positions,
            on_void=self._make_void,
            on_failure=self._raise_later,
        )

    @property
    def reads_committed(self) -> bool:
        return self.options.isolation_level == "read_committed"

    # What the program wants to read

    @property
    def topics(self) -> frozenset[str]:
        return self._topics.names

    def subscribe(self, subscription: Subscription) -> None:
        if self._topics.subscription.is_empty and len(self.table):
            raise ConfigurationError("partitions are assigned by hand; unsubscribe first")
        self._topics.subscribe(subscription)
        if not subscription.is_pattern:
            self._owner.set_aside(
                one for one in self.table.partitions if one.topic not in subscription.names
            )
            self.attention = True
        if self._group is not None:
            self._group.maybe_rejoin("the subscription has changed")

    async def unsubscribe(self, run_call: RunCall) -> None:
        """Give everything up and leave the group."""
        self.require_outside()
        self._progress.settle_all(has_failed=False)
        self._topics.subscribe(Subscription())
        await self._leave("the consumer has unsubscribed", run_call)
        self._owner.release(self.table.partitions)

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these, without the group having a say."""
        if not self._topics.subscription.is_empty:
            raise ConfigurationError("topics are subscribed to; unsubscribe first")
        wanted = frozenset(TopicPartition(*one) for one in partitions)
        self._owner.release(self.table.partitions - wanted)
        self._owner.adopt(wanted - self.table.partitions)
        self._topics.keeper.want()
        self.attention = True

    def split_readers(self, count: int) -> Sequence[Reader]:
        """Have several readers; what the one before was given counts as dealt with."""
        self._progress.settle_all(has_failed=False)
        for state in self.table:
            if state.position is not None:
                self.seek(state.partition, state.position)
        self._fetcher.is_shared = count > 1
        return self.readers.split(count, self.clock.monotonic())

    def retire(self, reader: Reader, *, has_failed: bool) -> None:
        """This reader takes nothing any more; others go on where it was."""
        if reader.is_retired:
            return
        self._progress.settle_at_rest(reader, has_failed=has_failed and not self.commits_before)
        left = sorted(reader.partitions)
        self.readers.retire(reader)
        self._owner.welcome(reader)
        for partition in left:
            state = self.table.find(partition)
            if state is not None and state.position is not None:
                self.seek(partition, state.position)
        self._announce()

    # The program comes in

    def begin(self) -> None:
        if self._has_begun:
            return
        self._has_begun = True
        self._tasks.spawn("consumer metadata", self._topics.keeper.run())
        self._tasks.spawn("consumer positions", self._positions.run())
        if self._group is not None and self._group.commits.mode is CommitMode.AFTER:
            self._tasks.spawn("consumer commits", self._remind_of_commits(self._group.commits))
        self._topics.keeper.want()

    async def come_in(self, reader: Reader, run_call: RunCall, timeout_seconds: float) -> None:
        """The program has dealt with all that this reader gave it, and wants more.

        Over when there is something to take, or time is up. Raises what the program has to know.
        """
        deadline = self.clock.monotonic() + timeout_seconds
        self._require_open(reader)
        self.begin()
        self._progress.settle(reader)
        reader.rest()
        self._owner.welcome(reader)
        try:
            while True:
                seen = self._news.count
                await self._attend_to(reader, run_call)
                left = deadline - self.clock.monotonic()
                if reader.delivery.has_more or left <= 0:
                    return
                await self._news.wait_for_more(seen, left)
        finally:
            self._update_attention()
            if not self.is_closed and not reader.is_retired:  # else nothing is given any more
                reader.go_on(self.clock.monotonic())

    async def _attend_to(self, reader: Reader, run_call: RunCall) -> None:
        """All that has waited for the program to come in, and then new records for it."""
        self._progress.clear_void()
        if self._group is not None and self._fatal is None:
            self._group.maybe_join()
        await self._calls.make(run_call)
        self._require_open(reader)
        self._raise_failures()
        self._handle_failed_partitions()
        if self._group is not None:
            self._group.commit_if_due()
        if any(state.need is not Need.READY for state in self.table):
            self._positions.want()
        if not reader.delivery.has_more:
            reader.delivery.add(self._fetcher.take(reader.partitions))

    def _raise_failures(self) -> None:
        if self._fatal is not None:
            raise self._fatal
        if self._failures:
            raise self._failures.pop(0)

    def _handle_failed_partitions(self) -> None:
        for state in self.table:
            failure = state.failure
            if failure is None or not state.is_read_up:
                continue
            if isinstance(failure, OffsetOutOfRangeError):
                self.table.lose_offset(state.partition, state.epoch, state.fetch_offset)
                self._fetcher.forget((state.partition,))
            else:
                state.failure = None
                self._fetcher.wake()
                raise failure

    def _update_attention(self) -> None:
        self.attention = bool(
            self._owner.is_handing_over
            or len(self._calls)
            or self._failures
            or self._fatal is not None
            or self._progress.has_void
            or self.is_closed
            or any(state.failure is not None for state in self.table)
        )

    def _announce(self) -> None:
        """Something has happened that the program may wait for."""
        self._update_attention()
        self._news.announce()

    async def _remind_of_commits(self, commits: Commits) -> None:
        """Have the program come in now and then, though it has records enough."""
        while True:
            await self.clock.sleep(max(commits.interval_seconds, _SHORTEST_REMINDER_SECONDS))
            self.attention = True

    # Positions

    async def wait_for_position(
        self, partition: TopicPartition, timeout_seconds: float
    ) -> Position:
        """The position, looked up first if it has to be."""
        self.begin()
        deadline = self.clock.monotonic() + timeout_seconds
        while (found := self._progress.position(partition)) is None:
            left = deadline - self.clock.monotonic()
            if left <= 0:
                raise OperationTimeoutError(
                    f"where to begin in {partition} was not found out within "
                    f"{timeout_seconds:g} seconds"
                )
            self._require_open()
            self._raise_failures()
            seen = self._news.count
            self._positions.want()
            await self._news.wait_for_more(seen, left)
        return found

    def seek(self, partition: TopicPartition, position: Position) -> None:
        self.table.seek(partition, position)
        self._moved((partition,))

    def reset(self, partition: TopicPartition, timestamp: int) -> None:
        """Move to the offset of a time, or EARLIEST or LATEST, when it is looked up."""
        self.table.request_reset(partition, timestamp)
        self._moved((partition,))

    def pause(self, partitions: Collection[TopicPartition], *, is_paused: bool) -> None:
        for partition in partitions:
            self.table.require(partition).is_paused = is_paused
        for reader in self.readers:
            reader.delivery.pause(self.table.paused)
        self._fetcher.wake()
        self._announce()
        self.attention = True  # ends an iteration over what is paused

    def lag(self, partition: TopicPartition) -> int | None:
        state = self.table.require(partition)
        position = self._progress.position(partition)
        end = state.last_stable_offset if self.reads_committed else state.high_watermark
        return None if position is None or end < 0 else max(end - position.offset, 0)

    async def find_offsets(
        self, wanted: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        """By timestamp, or EARLIEST or LATEST."""
        found = await self._positions.find_offsets(
            {TopicPartition(*partition): timestamp for partition, timestamp in wanted.items()}
        )
        return {partition: position.offset for partition, position in found.items()}

    def _moved(self, partitions: Collection[TopicPartition]) -> None:
        """What was fetched of these does not count any more."""
        self.attention = True  # ends an iteration over it
        self._progress.start_over(partitions)
        self._fetcher.forget(partitions)
        self._fetcher.wake()

    def _make_void(self, partition: TopicPartition) -> None:
        """As `_moved`, from the background: deliveries are cleared when the program is in."""
        self._progress.make_void(partition)
        self._fetcher.forget((partition,))
        self._announce()

    def _on_positions(self) -> None:
        self._fetcher.wake()
        self._announce()

    def _on_coming(self) -> None:
        self._positions.want()
        self._announce()

    # Commits

    async def commit(
        self, offsets: Mapping[TopicPartition, GroupOffset] | None, timeout_seconds: float | None
    ) -> None:
        wanted = self.given_offsets() if offsets is None else offsets
        await self._require_commits().commit(wanted, timeout_seconds)
        # What the program commits it has dealt with: nothing may commit less later.
        self.table.advance_at_least(
            {p: Position(at.offset, at.leader_epoch) for p, at in wanted.items()}
        )

    def given_offsets(self) -> dict[TopicPartition, GroupOffset]:
        """Behind all that the program was given."""
        return self._progress.given_offsets()

    async def committed(
        self, partitions: Collection[TopicPartition], timeout_seconds: float
    ) -> Mapping[TopicPartition, GroupOffset | None]:
        if self._group is None:
            raise ConfigurationError("a consumer without a group has no committed offsets")
        return await self._group.offsets.committed(partitions, timeout_seconds)

    @property
    def commits_before(self) -> bool:
        return self._group is not None and self._group.commits.mode is CommitMode.BEFORE

    async def commit_before_giving(self, positions: Mapping[TopicPartition, Position]) -> None:
        """At most once: what is about to be given counts as dealt with."""
        await self._require_commits().commit_positions(positions)

    async def commit_given(self) -> None:
        """As `commit_before_giving`, of all that was taken."""
        await self.commit_before_giving(self._progress.given_positions())

    def _require_commits(self) -> Commits:
        if self._group is None:
            raise ConfigurationError("a consumer without a group cannot commit")
        return self._group.commits

    # Topics

    def _on_metadata(self, has_changed: bool) -> None:
        if self._group is not None:
            self._group.on_metadata(has_changed)
        elif not self._topics.subscription.is_empty:
            self._read_everything()
        self._fetcher.wake()
        self._announce()

    def _read_everything(self) -> None:
        """Without a group, a subscription means all partitions."""
        wanted = self._topics.find_all_partitions()
        gone = self.table.partitions - wanted
        self.table.remove(gone)
        for partition in gone:
            self._make_void(partition)
        self._owner.adopt(wanted - self.table.partitions)

    def _on_metadata_failure(self, error: KafkaError | ClientError) -> None:
        # At the beginning the address is likely wrong; later a cluster is worth waiting for.
        if isinstance(error, ClusterUnreachableError) and not self._topics.keeper.is_known:
            self._raise_later(error)

    # Ends

    async def close(self, timeout_seconds: float, *, has_failed: bool, run_call: RunCall) -> None:
        """Commit what was dealt with, give the partitions up, leave, and end everything."""
        if self.is_closed:
            return
        self.require_outside()
        # At most once, what was given is not given again, whatever became of it.
        self._progress.settle_all(has_failed=has_failed and not self.commits_before)
        self.is_closed = True
        self._announce()
        try:
            leaving = self._leave("the consumer was closed", run_call)
            if not await finish_within(leaving, self.clock, timeout_seconds):
                _log.warning("leaving the group took longer than %g seconds", timeout_seconds)
        finally:
            self._fetcher.close()
            await self._tasks.close()
            if self._group is not None:
                await self._group.close()
            await self._fetch_pool.close()
            await self.client.close()
        if self._last_failures and not has_failed:  # else that is what the program hears of
            raise self._last_failures[0]

    async def _leave(self, reason: str, run_call: RunCall) -> None:
        if self._group is not None:
            await self._group.leave(reason, run_call)

    def require_outside(self) -> None:
        """Raises ConfigurationError when the program asks out of a function for rebalances."""
        self._calls.require_outside()

    def _require_open(self, reader: Reader | None = None) -> None:
        if self.is_closed:
            raise ClosedClientError("the consumer is closed")
        if reader is not None and reader.is_retired:
            raise ClosedClientError("the stream is closed")

    def _raise_later(self, error: Exception) -> None:
        """Have the program's next call raise it."""
        self._failures.append(error)
        self._announce()

    def _on_listener_failure(self, error: Exception) -> None:
        if self.is_closed:
            _log.warning("a function for rebalances has failed: %r", error)
            self._last_failures.append(error)
        else:
            self._raise_later(error)

    def _fail(self, error: KafkaError | ClientError) -> None:
        self._fatal = error
        self._announce()

    def _on_task_failure(self, name: str, error: BaseException) -> None:
        _log.error("the task %r of the consumer has failed", name, exc_info=error)
        self._raise_later(error if isinstance(error, Exception) else ClientError(str(error)))
