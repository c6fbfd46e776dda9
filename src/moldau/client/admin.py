"""Administration: topics, settings, offsets, disks and groups of a cluster.

Methods for many things at once answer for each of them: with what was asked for, or with the error
as a value. A failure of the whole request is raised. The blocking face is `blocking.Admin`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import Self

from moldau.client import (
    admin_configs,
    admin_group_offsets,
    admin_groups,
    admin_leadership,
    admin_logs,
    admin_topics,
    coordinators,
)
from moldau.client.admin_configs import Described
from moldau.client.admin_values import (
    ClusterDescription,
    ConfigChange,
    ConfigResource,
    CreatedTopic,
    ElectionType,
    EligibleLeaders,
    ListedOffset,
    LogDirDescription,
    NewTopic,
    Reassignment,
)
from moldau.client.cluster_client import ClientSettings, ClusterClient
from moldau.client.group_values import (
    GroupDescription,
    GroupListing,
    GroupOffset,
    PartitionLag,
)
from moldau.client.rules.cluster_metadata import Broker, TopicMetadata
from moldau.clock import Clock
from moldau.errors import KafkaError
from moldau.model import TopicPartition
from moldau.net.port import Network

DEFAULT_TIMEOUT_MS = 30_000


class AsyncAdmin:
    """Administers one cluster; used by the tasks of one loop. `async with` closes it."""

    def __init__(
        self,
        bootstrap: str,
        settings: ClientSettings | None = None,
        *,
        network: Network | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._client = ClusterClient(bootstrap, settings, network=network, clock=clock)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._client.close()

    async def create_topics(
        self,
        topics: Sequence[NewTopic],
        *,
        validate_only: bool = False,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> Mapping[str, CreatedTopic | KafkaError]:
        """Make topics; with `validate_only` say what would happen."""
        return await admin_topics.create_topics(
            self._client, topics, validate_only=validate_only, timeout_ms=timeout_ms
        )

    async def delete_topics(
        self, names: Collection[str], *, timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> Mapping[str, KafkaError | None]:
        """Delete topics with all their records."""
        return await admin_topics.delete_topics(self._client, names, timeout_ms=timeout_ms)

    async def list_topics(self) -> Mapping[str, TopicMetadata]:
        """Every topic by name, internal ones included."""
        return (await self._client.metadata.refresh()).topics

    async def describe_topics(
        self, names: Collection[str]
    ) -> Mapping[str, TopicMetadata | KafkaError]:
        """Partitions, leaders and replicas of these topics."""
        return await admin_topics.describe_topics(self._client, names)

    async def describe_eligible_leaders(
        self, names: Collection[str]
    ) -> Mapping[TopicPartition, EligibleLeaders]:
        """Who may lead the partitions of these topics although it is not in sync (KIP-966)."""
        return await admin_topics.describe_eligible_leaders(self._client, names)

    async def create_partitions(
        self,
        totals: Mapping[str, int],
        *,
        validate_only: bool = False,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> Mapping[str, KafkaError | None]:
        """Grow topics to these numbers of partitions."""
        return await admin_topics.create_partitions(
            self._client, totals, validate_only=validate_only, timeout_ms=timeout_ms
        )

    async def describe_configs(
        self,
        resources: Collection[ConfigResource],
        *,
        names: Collection[str] | None = None,
        with_documentation: bool = False,
    ) -> Described:
        """The settings of topics and brokers, or of those the named ones."""
        return await admin_configs.describe_configs(
            self._client, resources, names=names, with_documentation=with_documentation
        )

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Sequence[ConfigChange]],
        *,
        validate_only: bool = False,
    ) -> Mapping[ConfigResource, KafkaError | None]:
        """Change single settings; what is not named stays."""
        return await admin_configs.alter_configs(self._client, changes, validate_only=validate_only)

    async def list_offsets(
        self,
        wanted: Mapping[TopicPartition, int],
        *,
        read_committed: bool = False,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> Mapping[TopicPartition, ListedOffset | KafkaError]:
        """Offsets by `OffsetSpec`, or by a time in milliseconds: the first record at or after."""
        return await admin_logs.list_offsets(
            self._client, wanted, read_committed=read_committed, timeout_ms=timeout_ms
        )

    async def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> Mapping[TopicPartition, int | KafkaError]:
        """Delete what precedes an offset (-1: everything); answers with the new log start."""
        return await admin_logs.delete_records(self._client, before, timeout_ms=timeout_ms)

    async def describe_cluster(self) -> ClusterDescription:
        found = await self._client.metadata.refresh(())
        return ClusterDescription(
            cluster_id=found.cluster_id,
            controller_id=found.controller_id,
            brokers=tuple(found.brokers[broker_id] for broker_id in sorted(found.brokers)),
        )

    async def describe_log_dirs(
        self, broker_ids: Collection[int] | None = None
    ) -> Mapping[int, tuple[LogDirDescription | KafkaError, ...]]:
        """Log directories and their replicas, of these brokers or of all."""
        return await admin_logs.describe_log_dirs(self._client, broker_ids)

    async def elect_leaders(
        self,
        partitions: Collection[TopicPartition] | None = None,
        *,
        election_type: ElectionType = ElectionType.PREFERRED,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> Mapping[TopicPartition, KafkaError | None]:
        """Elect leaders for these partitions, or for all that need it.

        Preferred: the first replica leads again, if it is in sync. Unclean: where nobody leads,
        any living replica does, and what it lacks is lost.
        """
        return await admin_leadership.elect_leaders(
            self._client, partitions, election_type=election_type, timeout_ms=timeout_ms
        )

    async def alter_partition_reassignments(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        *,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> Mapping[TopicPartition, KafkaError | None]:
        """Move partitions to these brokers, the preferred leader first; None cancels a move."""
        return await admin_leadership.alter_partition_reassignments(
            self._client, targets, timeout_ms=timeout_ms
        )

    async def list_partition_reassignments(
        self,
        partitions: Collection[TopicPartition] | None = None,
        *,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> Mapping[TopicPartition, Reassignment]:
        """Those of these partitions, or of all, that are being moved."""
        return await admin_leadership.list_partition_reassignments(
            self._client, partitions, timeout_ms=timeout_ms
        )

    async def list_groups(
        self, *, states: Collection[str] = (), types: Collection[str] = ()
    ) -> Mapping[str, GroupListing]:
        """Groups by name: all of them, or those in one of the states and of one of the types."""
        return await admin_groups.list_groups(self._client, states=states, types=types)

    async def describe_groups(
        self, group_ids: Collection[str]
    ) -> Mapping[str, GroupDescription | KafkaError]:
        """State, coordinator and members of these groups, and what each member reads."""
        return await admin_groups.describe_groups(self._client, group_ids)

    async def delete_groups(self, group_ids: Collection[str]) -> Mapping[str, KafkaError | None]:
        """Forget groups that have no members, and how far they have read."""
        return await admin_groups.delete_groups(self._client, group_ids)

    async def find_coordinator(self, group_id: str) -> Broker:
        """The broker that looks after a group, whether or not there is such a group."""
        return await coordinators.find_coordinator(self._client, group_id)

    async def list_group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None
    ) -> Mapping[TopicPartition, GroupOffset | KafkaError]:
        """How far a group has read these partitions, or all; those without a commit are missing."""
        return await admin_group_offsets.list_group_offsets(self._client, group_id, partitions)

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int | GroupOffset]
    ) -> Mapping[TopicPartition, KafkaError | None]:
        """Set where a group goes on reading. Refused while it has members."""
        return await admin_group_offsets.alter_group_offsets(self._client, group_id, offsets)

    async def delete_group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, KafkaError | None]:
        """Forget how far a group has read. Refused for topics that its members read."""
        return await admin_group_offsets.delete_group_offsets(self._client, group_id, partitions)

    async def measure_lag(
        self, positions: Mapping[TopicPartition, int | None]
    ) -> Mapping[TopicPartition, PartitionLag | KafkaError]:
        """How far positions, of a group or of anybody, are behind the ends of their partitions."""
        # Imported here: it brings the codecs of records, which nothing else of this has a use for.
        from moldau.client.lag import measure_lag

        return await measure_lag(self._client, positions)
