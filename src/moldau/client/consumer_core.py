"""What both faces of the consumer have inside, put together.

`AsyncConsumer` runs it on its user's loop, `Consumer` on a loop in a thread of its own.

The program comes in through `come_in`, whenever it wants records and there are none at hand, or
when something waits for it (`attention`). In between it owns what it was given, and nothing changes
for it: a rebalance waits at the door (`partition_owner`). Everything here belongs to one loop;
faces in other threads read `attention`, and touch deliveries of readers that do not rest.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Coroutine, Mapping, Sequence
from typing import Any

from moldau import __version__
from moldau.client.cluster_client import ClientSettings, ClusterClient
from moldau.client.connection_pool import ConnectionPool
from moldau.client.connections import ConnectionSettings
from moldau.client.consumer_commits import CommitMode, Commits
from moldau.client.consumer_positions import PositionKeeper
from moldau.client.consumer_readers import Reader, Readers
from moldau.client.consumer_topics import ConsumerTopics
from moldau.client.coordinator_link import CoordinatorLink
from moldau.client.fetcher import Fetcher, FetcherSettings
from moldau.client.group_membership import GroupMembership, MembershipSettings
from moldau.client.group_offsets import GroupOffsets, Identity
from moldau.client.group_values import GroupOffset
from moldau.client.news import News, finish_within
from moldau.client.partition_owner import Listeners, PartitionOwner
from moldau.client.rules.addresses import parse_bootstrap
from moldau.client.rules.assignors import Assignor
from moldau.client.rules.backoff import Backoff
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
    ) -> None:
        self.options = options
        self.clock: Clock = clock or SystemClock()
        self.attention = True  # something waits for the program to come in
        self.is_closed = False
        self._has_begun = False
        self._failures: list[Exception] = []  # to be raised by the program's next call
        self._last_failures: list[Exception] = []  # of its listeners, since it closes
        self._fatal: MoldauError | None = None  # to be raised by every call
        self._void: set[TopicPartition] = set()  # what was fetched of them does not count
        self._news = News(self.clock)
        self._tasks = TaskSupervisor(self._on_task_failure)
        network = network or SocketNetwork(self.clock)
        settings = _client_settings(options)
        self.client = ClusterClient(bootstrap, settings, network=network, clock=self.clock)
        self._fetch_pool = ConnectionPool(
            parse_bootstrap(bootstrap), network, self.clock, settings.connection
        )
        self.table = PartitionTable(options.auto_offset_reset, has_group=group_id is not None)
        self.readers = Readers(decoding, self.clock.monotonic())
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
            _fetcher_settings(options),
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
        self._link: CoordinatorLink | None = None
        self._membership: GroupMembership | None = None
        self._offsets: GroupOffsets | None = None
        if group_id is not None:
            self._set_up_group(group_id, network, commit_mode, assignors)
        self._positions = PositionKeeper(
            self.client,
            self.table,
            self._offsets,
            read_committed=self.reads_committed,
            timeout_seconds=options.default_api_timeout_ms / 1000,
            on_found=self._on_positions,
            on_void=self._make_void,
            on_failure=self._raise_later,
        )

    def _set_up_group(
        self, group_id: str, network: Network, mode: CommitMode, assignors: Sequence[Assignor]
    ) -> None:
        options = self.options
        self._link = CoordinatorLink(self.client, group_id, own_network=network)
        self._offsets = GroupOffsets(
            self.client,
            CoordinatorLink(self.client, group_id),
            read_committed=self.reads_committed,
        )
        self._membership = GroupMembership(
            self.client,
            self._link,
            assignors,
            MembershipSettings(
                session_timeout_ms=options.session_timeout_ms,
                heartbeat_interval_ms=options.heartbeat_interval_ms,
                max_poll_interval_ms=options.max_poll_interval_ms,
                instance_id=options.group_instance_id,
                rack=options.client_rack or None,
            ),
            self._owner,
            self._tasks,
        )
        self._owner.commits = Commits(
            self._offsets,
            self._identity,
            lambda: self.table.partitions,
            self.clock,
            self._tasks,
            mode=mode,
            interval_seconds=options.auto_commit_interval_ms / 1000,
            timeout_seconds=options.default_api_timeout_ms / 1000,
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
        if self._membership is not None and self._membership.is_running:
            self._membership.request_join("the subscription has changed")

    async def unsubscribe(self, run_call: RunCall) -> None:
        """Give everything up and leave the group."""
        self.require_outside()
        self._settle_all(has_failed=False)
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
        self._settle_all(has_failed=False)
        for state in self.table:
            if state.position is not None:
                self.seek(state.partition, state.position)
        self._fetcher.is_shared = count > 1
        return self.readers.split(count, self.clock.monotonic())

    def retire(self, reader: Reader, *, has_failed: bool) -> None:
        """This reader takes nothing any more; others go on where it was."""
        if reader.is_retired:
            return
        self._settle_reader(reader, has_failed=has_failed and not self.commits_before)
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
        commits = self._owner.commits
        if commits is not None and commits.mode is CommitMode.AFTER:
            self._tasks.spawn("consumer commits", self._remind_of_commits(commits))
        self._topics.keeper.want()

    async def come_in(self, reader: Reader, run_call: RunCall, timeout_seconds: float) -> None:
        """The program has dealt with all that this reader gave it, and wants more.

        Over when there is something to take, or time is up. Raises what the program has to know.
        """
        deadline = self.clock.monotonic() + timeout_seconds
        self._require_open(reader)
        self.begin()
        self._settle(reader)
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
        self._clear_void()
        self._maybe_join()
        await self._calls.make(run_call)
        self._require_open(reader)
        self._raise_failures()
        self._handle_failed_partitions()
        commits = self._owner.commits
        if commits is not None and commits.is_due:
            commits.commit_soon(self._settled_positions())
        if any(state.need is not Need.READY for state in self.table):
            self._positions.want()
        if not reader.delivery.has_more:
            reader.delivery.add(self._fetcher.take(reader.partitions))

    def _settle(self, reader: Reader) -> None:
        moved = reader.delivery.settle()
        self.table.advance({p: at for p, at in moved.items() if p not in self._void})

    def _settle_all(self, *, has_failed: bool) -> None:
        """The program is here, and has dealt with what it was given, perhaps but for the last."""
        for reader in self.readers:
            self._settle_reader(reader, has_failed=has_failed)

    def _settle_reader(self, reader: Reader, *, has_failed: bool) -> None:
        failed = reader.delivery.find_failed() if has_failed else {}
        self._settle(reader)
        self.table.advance({p: at for p, at in failed.items() if p not in self._void})
        reader.rest()

    def _clear_void(self) -> None:
        if self._void:
            self.readers.drop_chunks(self._void)
            self._void.clear()

    def _maybe_join(self) -> None:
        membership = self._membership
        if membership is None or membership.is_running or self._fatal is not None:
            return
        if self._topics.is_ready:
            membership.start()

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
            or self._void
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

    def position(self, partition: TopicPartition) -> Position | None:
        """What the program is given next."""
        state = self.table.require(partition)
        for reader in self.readers:
            given = reader.delivery.position(partition)
            if given is not None and partition not in self._void:
                return given
        return state.position

    def given_positions(self) -> dict[TopicPartition, Position]:
        """Behind all that the program was given."""
        found = {state.partition: self.position(state.partition) for state in self.table}
        return {partition: at for partition, at in found.items() if at is not None}

    def _settled_positions(self) -> dict[TopicPartition, Position]:
        """Behind all that the program has dealt with for sure."""
        return {state.partition: state.position for state in self.table if state.position}

    async def wait_for_position(
        self, partition: TopicPartition, timeout_seconds: float
    ) -> Position:
        """The position, looked up first if it has to be."""
        self.begin()
        deadline = self.clock.monotonic() + timeout_seconds
        while (found := self.position(partition)) is None:
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
        position = self.position(partition)
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
        self.readers.drop_chunks(partitions)
        self._fetcher.forget(partitions)
        self._void.difference_update(partitions)
        self._fetcher.wake()

    def _make_void(self, partition: TopicPartition) -> None:
        """As `_moved`, from the background: deliveries are cleared when the program is in."""
        self._void.add(partition)
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
        """`given_positions`, to be committed."""
        return {
            partition: GroupOffset(offset=position.offset, leader_epoch=position.leader_epoch)
            for partition, position in self.given_positions().items()
        }

    async def committed(
        self, partitions: Collection[TopicPartition], timeout_seconds: float
    ) -> Mapping[TopicPartition, GroupOffset | None]:
        if self._offsets is None:
            raise ConfigurationError("a consumer without a group has no committed offsets")
        return await self._offsets.committed(partitions, timeout_seconds)

    @property
    def commits_before(self) -> bool:
        commits = self._owner.commits
        return commits is not None and commits.mode is CommitMode.BEFORE

    async def commit_before_giving(self, positions: Mapping[TopicPartition, Position]) -> None:
        """At most once: what is about to be given counts as dealt with."""
        await self._require_commits().commit_positions(positions)

    async def commit_given(self) -> None:
        """As `commit_before_giving`, of all that was taken."""
        await self.commit_before_giving(self.given_positions())

    def _require_commits(self) -> Commits:
        if self._owner.commits is None:
            raise ConfigurationError("a consumer without a group cannot commit")
        return self._owner.commits

    def _identity(self) -> Identity | None:
        """As whom to commit; None for a member that the group has lost."""
        if self._membership is None:
            return Identity()
        is_to_be_member = not self._topics.subscription.is_empty
        return None if self._membership.is_lost and is_to_be_member else self._membership.identity

    # Topics

    def _on_metadata(self, has_changed: bool) -> None:
        membership = self._membership
        if membership is None:
            if not self._topics.subscription.is_empty:
                self._read_everything()
        elif has_changed:
            membership.request_join("the topics that match the subscription have changed")
        elif membership.leads and self._topics.has_other_partitions:
            membership.request_join("the partitions of the topics have changed")
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
        self._settle_all(has_failed=has_failed and not self.commits_before)
        self.is_closed = True
        self._announce()
        try:
            leaving = self._leave("the consumer was closed", run_call)
            if not await finish_within(leaving, self.clock, timeout_seconds):
                _log.warning("leaving the group took longer than %g seconds", timeout_seconds)
        finally:
            self._fetcher.close()
            await self._tasks.close()
            if self._link is not None:
                await self._link.close()
            await self._fetch_pool.close()
            await self.client.close()
        if self._last_failures and not has_failed:  # else that is what the program hears of
            raise self._last_failures[0]

    async def _leave(self, reason: str, run_call: RunCall) -> None:
        """Commit, give everything up and leave the group, as far as there is one."""
        membership, commits = self._membership, self._owner.commits
        if membership is not None and membership.is_running:
            with self._owner.leaving():
                await self._make_calls_during(self._give_everything_up(membership), run_call)
                was_stable = membership.is_stable
                await membership.stop()
            if not was_stable and self._link is not None:
                await self._link.close()  # a join may be under way; others would queue behind it
            await membership.leave(reason)
        elif commits is not None and commits.is_automatic:
            await commits.try_commit(self._settled_positions())

    async def _give_everything_up(self, membership: GroupMembership) -> None:
        """As a member still: in the middle of a rebalance the coordinator takes no commits, so
        that the rebalance has to go on for them."""
        if membership.is_lost:
            await self._owner.lose()
        else:
            await self._owner.give_up(self.table.partitions)

    async def _make_calls_during(self, work: Coroutine[Any, Any, None], run_call: RunCall) -> None:
        """Do work that has the program's functions called, while the program waits for it."""
        task = self._tasks.spawn("giving up", work)
        task.add_done_callback(lambda _: self._announce())
        while not task.done():
            seen = self._news.count
            await self._calls.make(run_call)
            if not task.done():
                await self._news.wait_for_more(seen, self.options.max_poll_interval_ms / 1000)

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


def _client_settings(options: ConsumerOptions) -> ClientSettings:
    return ClientSettings(
        connection=ConnectionSettings(
            client_id=options.client_id,
            client_version=__version__,
            connect_seconds=options.socket_connection_setup_timeout_ms / 1000,
            request_seconds=options.request_timeout_ms / 1000,
        ),
        patience_seconds=options.default_api_timeout_ms / 1000,
        backoff=Backoff(
            first_seconds=options.retry_backoff_ms / 1000,
            max_seconds=max(options.retry_backoff_max_ms, options.retry_backoff_ms) / 1000,
        ),
    )


def _fetcher_settings(options: ConsumerOptions) -> FetcherSettings:
    return FetcherSettings(
        max_wait_ms=options.fetch_max_wait_ms,
        min_bytes=options.fetch_min_bytes,
        max_bytes=options.fetch_max_bytes,
        partition_max_bytes=options.max_partition_fetch_bytes,
        read_committed=options.isolation_level == "read_committed",
        rack=options.client_rack,
        replica_seconds=options.metadata_max_age_ms / 1000,
    )
