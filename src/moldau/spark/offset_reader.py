"""What the driver asks the cluster: which partitions there are, and where their logs begin and end.

A shell that blocks; nothing is kept from one question to the next.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from moldau.client.admin.groups import GroupAdmin
from moldau.client.admin.partitions import LogAdmin
from moldau.client.admin.values import ListedOffset, OffsetSpec
from moldau.client.rules.cluster_metadata import ClusterMetadata, TopicMetadata
from moldau.clock import finish_within
from moldau.errors import (
    ClusterAuthorizationError,
    ClusterUnreachableError,
    KafkaError,
    MoldauError,
    NoAnswerError,
    UnknownTopicError,
)
from moldau.model import TopicPartition
from moldau.spark.rules.offsets import (
    Bound,
    NamedBound,
    Offsets,
    SpecificOffsets,
    SpecificTimestamps,
    TopicIds,
    find_timestamps,
    require_every_partition,
    resolve_group_offsets,
    resolve_offsets,
    resolve_timestamps,
)
from moldau.spark.worker import WorkerClient, open_client

if TYPE_CHECKING:
    from moldau.spark.options import SourceOptions

T = TypeVar("T")

_COMMIT_SECONDS: Final = 5.0
"""A query does not wait longer for its group than that."""


class FoundPartitions(NamedTuple):
    """The partitions of a query in order, and the ids of their topics."""

    partitions: list[TopicPartition]
    topic_ids: TopicIds


class OffsetReader:
    """The topics of one query."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    @property
    def _client(self) -> WorkerClient:
        return open_client(self._options)

    def require_partitions(self) -> FoundPartitions:
        """The partitions to read; raises UnknownTopicError when one that was named is not there."""
        for topic in self._options.subscribe or ():
            self._client.run(self._client.cluster.wait_until_topic_is_ready(topic))
        found = self.find_partitions(wait_for_cluster=False)
        for partition in self._options.assign or ():
            self._client.cluster.metadata.current.require_partition(partition)
        return found

    def find_partitions(self, *, wait_for_cluster: bool = True) -> FoundPartitions:
        """The partitions to read that are there now; of topics that are gone there are none.

        In the middle of a query it is worth waiting for a cluster that does not answer; at its
        beginning the address is likely wrong.
        """
        metadata = self._refresh_metadata(wait_for_cluster=wait_for_cluster)
        if self._options.assign is not None:
            found = [one for one in sorted(self._options.assign) if _exists(metadata, one)]
        else:
            found = sorted(
                TopicPartition(topic.name, row.index)
                for topic in metadata.topics.values()
                if self._is_wanted(topic)
                for row in topic.partitions
            )
        ids = {name: metadata.topics[name].topic_id for name in {one.topic for one in found}}
        return FoundPartitions(found, {name: one for name, one in ids.items() if one is not None})

    def find_earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the logs begin; partitions that are gone are missing."""
        return self._list_offsets(dict.fromkeys(partitions, int(OffsetSpec.EARLIEST)))

    def find_latest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where what may be read ends; partitions that are gone are missing."""
        return self._list_offsets(dict.fromkeys(partitions, int(OffsetSpec.LATEST)))

    def find_at_times(self, times_ms: Offsets) -> dict[TopicPartition, int]:
        """The first record that is not older; partitions in which all is older are missing."""
        found = self._list_offsets(times_ms)
        return {partition: offset for partition, offset in found.items() if offset >= 0}

    def resolve_bound(
        self, bound: Bound, partitions: Collection[TopicPartition], called: str
    ) -> dict[TopicPartition, int]:
        """The offsets that a bound means; `called` is the option that it comes from."""
        if bound is NamedBound.EARLIEST:
            return self.find_earliest(partitions)
        if bound is NamedBound.GROUP:
            return resolve_group_offsets(
                self._find_committed(partitions), self.find_earliest(partitions)
            )
        latest = self.find_latest(partitions)
        if isinstance(bound, SpecificOffsets):
            require_every_partition(bound.offsets.keys(), partitions, called)
            return resolve_offsets(bound, self.find_earliest(partitions), latest)
        if isinstance(bound, SpecificTimestamps):
            found = self.find_at_times(find_timestamps(bound, partitions, called))
            return resolve_timestamps(found, latest, bound, called)
        return latest

    def commit_offsets(self, offsets: Offsets) -> None:
        """Commit progress to the query's group; raises the first error, and soon."""
        group_id = self._options.group_id
        if group_id is None or not offsets:
            return
        work = GroupAdmin(self._client.cluster).alter_group_offsets(group_id, dict(offsets))
        try:
            answers = self._client.run(
                finish_within(work, self._client.cluster.clock, _COMMIT_SECONDS)
            )
        except TimeoutError:
            raise NoAnswerError(f"no commit for {group_id!r} in {_COMMIT_SECONDS:g} s") from None
        for error in answers.values():
            if error is not None:
                raise error

    def bytes_per_offset(self, earliest: Offsets, latest: Offsets) -> dict[TopicPartition, float]:
        """The mean size of what an offset stands for, as stored, by the sizes on disk."""
        try:
            cluster = self._client.cluster
            asked = cluster.retry(LogAdmin(cluster).describe_log_dirs, wait_for_cluster=True)
            described = self._wait_for(asked, "for the sizes of logs")
        except ClusterAuthorizationError:  # who may read may not know how much there is
            return dict.fromkeys(latest, 0.0)
        sizes: dict[TopicPartition, int] = {}
        for folder in (one for folders in described.values() for one in folders):
            if not isinstance(folder, KafkaError):
                for one in folder.replicas:
                    sizes[one.partition] = max(sizes.get(one.partition, 0), one.size_bytes)
        return {
            one: sizes.get(one, 0) / max(latest[one] - earliest.get(one, 0), 1) for one in latest
        }

    def _is_wanted(self, topic: TopicMetadata) -> bool:
        pattern = self._options.subscribe_pattern
        if pattern is None:
            return topic.name in (self._options.subscribe or ())
        return not topic.is_internal and pattern.fullmatch(topic.name) is not None

    def _refresh_metadata(self, *, wait_for_cluster: bool) -> ClusterMetadata:
        """Asks anew; a topic that is named and missing is simply not in the answer."""
        cluster = self._client.cluster
        topics: Collection[str] | None = None
        if self._options.subscribe is not None:
            topics = self._options.subscribe
        elif self._options.assign is not None:
            topics = {one.topic for one in self._options.assign}

        async def ask() -> ClusterMetadata:
            metadata = await cluster.metadata.refresh(topics)
            for name in topics or ():
                error = metadata.topics[name].error if name in metadata.topics else None
                if error is not None and not isinstance(error, UnknownTopicError):
                    raise error
            return metadata

        if not wait_for_cluster:
            return self._client.run(cluster.retry(ask))
        return self._wait_for(cluster.retry(ask, wait_for_cluster=True), "which partitions exist")

    def _find_committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        group_id = self._options.group_id or ""
        work = GroupAdmin(self._client.cluster).list_group_offsets(group_id, partitions)
        found: dict[TopicPartition, int] = {}
        for partition, answer in self._client.run(work).items():
            if isinstance(answer, KafkaError):
                raise answer
            found[partition] = answer.offset
        return found

    def _list_offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        if not wanted:
            return {}
        cluster = self._client.cluster
        admin = LogAdmin(cluster)

        async def ask() -> Mapping[TopicPartition, ListedOffset | KafkaError]:
            return await admin.list_offsets(wanted, read_committed=self._options.read_committed)

        work = cluster.retry(ask, may_go_on=_is_cluster_away)
        found: dict[TopicPartition, int] = {}
        for partition, answer in self._wait_for(work, "for offsets").items():
            if isinstance(answer, UnknownTopicError):
                continue
            if isinstance(answer, KafkaError):
                raise answer
            found[partition] = answer.offset
        return found

    def _wait_for(self, work: Coroutine[Any, Any, T], question: str) -> T:
        """Run work that waits while no broker answers, as Spark's own source does; raises
        ClusterUnreachableError after `default.api.timeout.ms`."""
        try:
            return self._client.run(work)
        except ClusterUnreachableError as error:
            seconds = self._client.cluster.settings.timeout_seconds
            raise ClusterUnreachableError(
                f"the query asked {question}, and no broker answered for {seconds:g} s: {error}. "
                "Start a broker or correct kafka.bootstrap.servers, then start the query again: it "
                "continues where it was. kafka.default.api.timeout.ms is how long a query waits"
            ) from error


def _is_cluster_away(error: MoldauError, attempt: int, waited: float) -> bool:
    return isinstance(error, ClusterUnreachableError)


def _exists(metadata: ClusterMetadata, partition: TopicPartition) -> bool:
    topic = metadata.topics.get(partition.topic)
    return topic is not None and 0 <= partition.partition < len(topic.partitions)
