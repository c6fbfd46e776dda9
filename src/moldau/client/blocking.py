"""The blocking faces of the client, safe from any thread.

`Admin` has the methods of `AsyncAdmin`, each waiting for its answer on a loop of its own thread.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import Self

from moldau.client.admin import DEFAULT_TIMEOUT_MS, AsyncAdmin
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
from moldau.client.cluster_client import ClientSettings
from moldau.client.group_values import (
    GroupDescription,
    GroupListing,
    GroupOffset,
    PartitionLag,
)
from moldau.client.loop_thread import LoopThread
from moldau.client.rules.cluster_metadata import Broker, TopicMetadata
from moldau.errors import KafkaError
from moldau.model import TopicPartition


class Admin:
    """Administers one cluster. `with` closes it; so does `close`."""

    def __init__(self, bootstrap: str, settings: ClientSettings | None = None) -> None:
        self._loop = LoopThread("moldau-admin")
        self._admin = AsyncAdmin(bootstrap, settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End connections and thread; a second call does nothing."""
        if self._loop.is_open:
            self._loop.run(self._admin.close())
            self._loop.close()

    def create_topics(
        self,
        topics: Sequence[NewTopic],
        *,
        validate_only: bool = False,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> Mapping[str, CreatedTopic | KafkaError]:
        """Make topics; with `validate_only` say what would happen."""
        return self._loop.run(
            self._admin.create_topics(topics, validate_only=validate_only, timeout_ms=timeout_ms)
        )

    def delete_topics(
        self, names: Collection[str], *, timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> Mapping[str, KafkaError | None]:
        """Delete topics with all their records."""
        return self._loop.run(self._admin.delete_topics(names, timeout_ms=timeout_ms))

    def list_topics(self) -> Mapping[str, TopicMetadata]:
        """Every topic by name, internal ones included."""
        return self._loop.run(self._admin.list_topics())

    def describe_topics(self, names: Collection[str]) -> Mapping[str, TopicMetadata | KafkaError]:
        """Partitions, leaders and replicas of these topics."""
        return self._loop.run(self._admin.describe_topics(names))

    def describe_eligible_leaders(
        self, names: Collection[str]
    ) -> Mapping[TopicPartition, EligibleLeaders]:
        """Who may lead the partitions of these topics although it is not in sync (KIP-966)."""
        return self._loop.run(self._admin.describe_eligible_leaders(names))

    def create_partitions(
        self,
        totals: Mapping[str, int],
        *,
        validate_only: bool = False,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> Mapping[str, KafkaError | None]:
        """Grow topics to these numbers of partitions."""
        return self._loop.run(
            self._admin.create_partitions(
                totals, validate_only=validate_only, timeout_ms=timeout_ms
            )
        )

    def describe_configs(
        self,
        resources: Collection[ConfigResource],
        *,
        names: Collection[str] | None = None,
        with_documentation: bool = False,
    ) -> Described:
        """The settings of topics and brokers, or of those the named ones."""
        return self._loop.run(
            self._admin.describe_configs(
                resources, names=names, with_documentation=with_documentation
            )
        )

    def alter_configs(
        self,
        changes: Mapping[ConfigResource, Sequence[ConfigChange]],
        *,
        validate_only: bool = False,
    ) -> Mapping[ConfigResource, KafkaError | None]:
        """Change single settings; what is not named stays."""
        return self._loop.run(self._admin.alter_configs(changes, validate_only=validate_only))

    def list_offsets(
        self,
        wanted: Mapping[TopicPartition, int],
        *,
        read_committed: bool = False,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> Mapping[TopicPartition, ListedOffset | KafkaError]:
        """Offsets by `OffsetSpec`, or by a time in milliseconds: the first record at or after."""
        return self._loop.run(
            self._admin.list_offsets(wanted, read_committed=read_committed, timeout_ms=timeout_ms)
        )

    def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> Mapping[TopicPartition, int | KafkaError]:
        """Delete what precedes an offset (-1: everything); answers with the new log start."""
        return self._loop.run(self._admin.delete_records(before, timeout_ms=timeout_ms))

    def describe_cluster(self) -> ClusterDescription:
        return self._loop.run(self._admin.describe_cluster())

    def describe_log_dirs(
        self, broker_ids: Collection[int] | None = None
    ) -> Mapping[int, tuple[LogDirDescription | KafkaError, ...]]:
        """Log directories and their replicas, of these brokers or of all."""
        return self._loop.run(self._admin.describe_log_dirs(broker_ids))

    def elect_leaders(
        self,
        partitions: Collection[TopicPartition] | None = None,
        *,
        election_type: ElectionType = ElectionType.PREFERRED,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> Mapping[TopicPartition, KafkaError | None]:
        """Elect preferred leaders, or unclean ones, for these partitions or all that need it."""
        return self._loop.run(
            self._admin.elect_leaders(
                partitions, election_type=election_type, timeout_ms=timeout_ms
            )
        )

    def alter_partition_reassignments(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        *,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> Mapping[TopicPartition, KafkaError | None]:
        """Move partitions to these brokers, the preferred leader first; None cancels a move."""
        return self._loop.run(
            self._admin.alter_partition_reassignments(targets, timeout_ms=timeout_ms)
        )

    def list_partition_reassignments(
        self,
        partitions: Collection[TopicPartition] | None = None,
        *,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> Mapping[TopicPartition, Reassignment]:
        """Those of these partitions, or of all, that are being moved."""
        return self._loop.run(
            self._admin.list_partition_reassignments(partitions, timeout_ms=timeout_ms)
        )

    def list_groups(
        self, *, states: Collection[str] = (), types: Collection[str] = ()
    ) -> Mapping[str, GroupListing]:
        """Groups by name: all of them, or those in one of the states and of one of the types."""
        return self._loop.run(self._admin.list_groups(states=states, types=types))

    def describe_groups(
        self, group_ids: Collection[str]
    ) -> Mapping[str, GroupDescription | KafkaError]:
        """State, coordinator and members of these groups, and what each member reads."""
        return self._loop.run(self._admin.describe_groups(group_ids))

    def delete_groups(self, group_ids: Collection[str]) -> Mapping[str, KafkaError | None]:
        """Forget groups that have no members, and how far they have read."""
        return self._loop.run(self._admin.delete_groups(group_ids))

    def find_coordinator(self, group_id: str) -> Broker:
        """The broker that looks after a group, whether or not there is such a group."""
        return self._loop.run(self._admin.find_coordinator(group_id))

    def list_group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None
    ) -> Mapping[TopicPartition, GroupOffset | KafkaError]:
        """How far a group has read these partitions, or all; those without a commit are missing."""
        return self._loop.run(self._admin.list_group_offsets(group_id, partitions))

    def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int | GroupOffset]
    ) -> Mapping[TopicPartition, KafkaError | None]:
        """Set where a group goes on reading. Refused while it has members."""
        return self._loop.run(self._admin.alter_group_offsets(group_id, offsets))

    def delete_group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, KafkaError | None]:
        """Forget how far a group has read. Refused for topics that its members read."""
        return self._loop.run(self._admin.delete_group_offsets(group_id, partitions))

    def measure_lag(
        self, positions: Mapping[TopicPartition, int | None]
    ) -> Mapping[TopicPartition, PartitionLag | KafkaError]:
        """How far positions, of a group or of anybody, are behind the ends of their partitions."""
        return self._loop.run(self._admin.measure_lag(positions))
