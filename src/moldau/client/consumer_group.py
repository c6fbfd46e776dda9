"""A consumer's side of its group: joining, committing as a member, and leaving in good order.

The protocol is `group_membership`'s, handing partitions over `partition_owner`'s; this knows in
which order they take their leave. A shell of one loop, which is the consumer's.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from moldau.client.cluster_client import ClusterClient
from moldau.client.consumer_commits import CommitMode, Commits
from moldau.client.consumer_topics import ConsumerTopics
from moldau.client.coordinator_link import CoordinatorLink
from moldau.client.group_membership import GroupMembership, MembershipSettings
from moldau.client.group_offsets import GroupOffsets, Identity
from moldau.client.news import News
from moldau.client.partition_owner import PartitionOwner
from moldau.client.rules.assignors import Assignor
from moldau.client.rules.offset_positions import PartitionTable
from moldau.client.user_calls import RunCall, UserCalls
from moldau.clock import Clock
from moldau.config.client_consumer_options import ConsumerOptions
from moldau.net.port import Network
from moldau.tasks import TaskSupervisor


class ConsumerGroup:
    """The group of one consumer. Partitions assigned by hand commit here without being a member."""

    def __init__(
        self,
        group_id: str,
        options: ConsumerOptions,
        *,
        client: ClusterClient,
        network: Network,
        clock: Clock,
        tasks: TaskSupervisor,
        table: PartitionTable,
        topics: ConsumerTopics,
        owner: PartitionOwner,
        calls: UserCalls,
        news: News,
        announce: Callable[[], None],
        commit_mode: CommitMode,
        assignors: Sequence[Assignor],
    ) -> None:
        self._table = table
        self._topics = topics
        self._owner = owner
        self._calls = calls
        self._news = news
        self._announce = announce
        self._tasks = tasks
        self._longest_call_seconds = options.max_poll_interval_ms / 1000
        self._link = CoordinatorLink(client, group_id, own_network=network)
        self._membership = GroupMembership(
            client, self._link, assignors, _membership_settings(options), owner, tasks
        )
        self.offsets = GroupOffsets(
            client,
            CoordinatorLink(client, group_id),
            read_committed=options.isolation_level == "read_committed",
        )
        self.commits = Commits(
            self.offsets,
            self._identity,
            lambda: table.partitions,
            clock,
            tasks,
            mode=commit_mode,
            interval_seconds=options.auto_commit_interval_ms / 1000,
            timeout_seconds=options.default_api_timeout_ms / 1000,
        )

    # Joining

    def maybe_join(self) -> None:
        if self._topics.is_ready and not self._membership.is_running:
            self._membership.start()

    def maybe_rejoin(self, reason: str) -> None:
        """Ask for another assignment; before the first one, joining asks for it anyway."""
        if self._membership.is_running:
            self._membership.request_join(reason)

    def on_metadata(self, has_changed: bool) -> None:
        if has_changed:
            self._membership.request_join("the topics that match the subscription have changed")
        elif self._membership.leads and self._topics.has_other_partitions:
            self._membership.request_join("the partitions of the topics have changed")

    # Committing

    def commit_if_due(self) -> None:
        if self.commits.is_due:
            self.commits.commit_soon(self._table.settled_positions)

    def _identity(self) -> Identity | None:
        """As whom to commit; None for a member that the group has lost."""
        is_to_be_member = not self._topics.subscription.is_empty
        return None if self._membership.is_lost and is_to_be_member else self._membership.identity

    # Leaving

    async def leave(self, reason: str, run_call: RunCall) -> None:
        """Commit, give everything up and leave, as far as the consumer is a member."""
        if self._membership.is_running:
            with self._owner.leaving():
                await self._make_calls_during(self._give_everything_up(), run_call)
                was_stable = self._membership.is_stable
                await self._membership.stop()
            if not was_stable:
                await self._link.close()  # a join may be under way; others would queue behind it
            await self._membership.leave(reason)
        elif self.commits.is_automatic:
            await self.commits.try_commit(self._table.settled_positions)

    async def close(self) -> None:
        await self._link.close()

    async def _give_everything_up(self) -> None:
        """As a member still: in the middle of a rebalance the coordinator takes no commits, so
        that the rebalance has to go on for them."""
        if self._membership.is_lost:
            await self._owner.lose()
        else:
            await self._owner.give_up(self._table.partitions)

    async def _make_calls_during(self, work: Coroutine[Any, Any, None], run_call: RunCall) -> None:
        """Do work that has the program's functions called, while the program waits for it."""
        task = self._tasks.spawn("giving up", work)
        task.add_done_callback(lambda _: self._announce())
        while not task.done():
            seen = self._news.count
            await self._calls.make(run_call)
            if not task.done():
                await self._news.wait_for_more(seen, self._longest_call_seconds)


def _membership_settings(options: ConsumerOptions) -> MembershipSettings:
    return MembershipSettings(
        session_timeout_ms=options.session_timeout_ms,
        heartbeat_interval_ms=options.heartbeat_interval_ms,
        max_poll_interval_ms=options.max_poll_interval_ms,
        instance_id=options.group_instance_id,
        rack=options.client_rack or None,
    )
