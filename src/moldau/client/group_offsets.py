"""The offsets of a group as one of its members sees them: look up, commit.

Answers for the requests and for trying again while the coordinator moves or loads. Commits of one
consumer follow each other, so that an older one never overwrites a newer one. A shell, used by the
tasks of one loop.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple, cast

from moldau.client.broker_errors import error_for
from moldau.client.cluster_client import ClusterClient
from moldau.client.coordinator_link import CoordinatorLink
from moldau.client.group_values import GroupOffset
from moldau.client.rules.group_errors import Reaction
from moldau.errors import (
    ClientError,
    CommitFailedError,
    ErrorCode,
    KafkaError,
    OperationTimeoutError,
)
from moldau.model import TopicPartition
from moldau.model.protocol_numbers import NO_LEADER_EPOCH, NO_OFFSET
from moldau.wire.apis import OFFSET_COMMIT, OFFSET_FETCH

if TYPE_CHECKING:
    from kio.schema.offset_commit.v9.response import OffsetCommitResponse
    from kio.schema.offset_fetch.v7.response import OffsetFetchResponse as SingleFetchResponse
    from kio.schema.offset_fetch.v9.response import (
        OffsetFetchResponse,
        OffsetFetchResponseGroup,
    )

_FIRST_WITH_SEVERAL_GROUPS = 8
_BROKERS_RETENTION = -1
_FETCH_DROPPABLE = frozenset({"require_stable"})
_COMMIT_DROPPABLE = frozenset({"committed_leader_epoch", "group_instance_id", "retention_time"})


class Identity(NamedTuple):
    """As whom a commit is made; without a generation it is by somebody outside the group."""

    generation_id: int = -1
    member_id: str = ""
    instance_id: str | None = None


Offsets = Mapping[TopicPartition, GroupOffset]
_Work = Callable[[], Awaitable[None]]

_REBALANCES = (Reaction.REJOIN, Reaction.START_OVER)
_REBALANCE_SECONDS = 5.0
"""How long a commit waits for a rebalance to be over."""


class GroupOffsets:
    """Of one group."""

    def __init__(
        self, client: ClusterClient, link: CoordinatorLink, *, read_committed: bool
    ) -> None:
        self._client = client
        self._link = link
        self._read_committed = read_committed
        self._committing = asyncio.Lock()

    async def commit(
        self,
        offsets: Offsets,
        identity: Callable[[], Identity | None],
        is_mine: Callable[[], bool],
        timeout_seconds: float,
    ) -> None:
        """Raises CommitFailedError when the group has gone on without this member.

        A cooperative member keeps partitions through a rebalance: while they are its own
        (`is_mine`), a commit that came in the middle of one is made good when it is over. Without
        an identity, the member has lost its place: nothing is sent, since a coordinator without
        members would take it for a commit from outside, however old it is.
        """
        if not offsets:
            return
        async with self._committing:
            first = self._require(identity())
            deadline = self._client.clock.monotonic() + _REBALANCE_SECONDS

            def may_wait() -> bool:
                now = identity()
                is_member = now is not None and now.member_id == first.member_id
                return is_member and is_mine() and self._client.clock.monotonic() < deadline

            await self._repeat(
                lambda: self._commit(offsets, self._require(identity())),
                "commit",
                timeout_seconds,
                may_wait,
            )

    def _require(self, identity: Identity | None) -> Identity:
        if identity is None:
            raise self._gone("it is no member now")
        return identity

    async def committed(
        self, partitions: Collection[TopicPartition], timeout_seconds: float
    ) -> Mapping[TopicPartition, GroupOffset | None]:
        """What the group has committed for each partition."""
        if not partitions:
            return {}
        found: dict[TopicPartition, GroupOffset | None] = {}

        async def look_up() -> None:
            found.update(await self._fetch(partitions))

        await self._repeat(look_up, "look up committed offsets", timeout_seconds)
        return found

    async def _repeat(
        self,
        work: _Work,
        name: str,
        timeout_seconds: float,
        may_wait: Callable[[], bool] = lambda: False,
    ) -> None:
        """Do it, again while its failure may pass; `may_wait` says whether a rebalance may."""
        clock = self._client.clock
        deadline = clock.monotonic() + timeout_seconds
        attempt = 0
        while True:
            try:
                await work()
                return
            except (KafkaError, ClientError) as error:
                reaction = await self._link.note_failure(error)
                if reaction in _REBALANCES and (_is_forgotten(error) or not may_wait()):
                    raise self._gone(error) from error
                if reaction is Reaction.STOP:
                    raise
                delay = self._client.backoff_seconds(attempt)
                if clock.monotonic() + delay > deadline:
                    raise OperationTimeoutError(
                        f"could not {name} within {timeout_seconds:g} seconds: {error}"
                    ) from error
            await clock.sleep(delay)
            attempt += 1

    def _gone(self, error: KafkaError | ClientError | str) -> CommitFailedError:
        return CommitFailedError(
            f"group {self._link.group_id!r} has rebalanced, or is about to, and this consumer's "
            f"offsets were not committed: {error}. Poll more often, or raise max.poll.interval.ms, "
            "if the work on records takes long"
        )

    async def _commit(self, offsets: Offsets, identity: Identity) -> None:
        topics: defaultdict[str, list[dict[str, object]]] = defaultdict(list)
        for partition, wanted in offsets.items():
            topics[partition.topic].append(_commit_values(partition.partition, wanted))
        values = {
            "group_id": self._link.group_id,
            "generation_id_or_member_epoch": identity.generation_id,
            "member_id": identity.member_id,
            "group_instance_id": identity.instance_id,
            "retention_time": _BROKERS_RETENTION,
            "topics": [{"name": name, "partitions": rows} for name, rows in topics.items()],
        }
        answer = await self._link.call(OFFSET_COMMIT, values, _COMMIT_DROPPABLE)
        for topic in cast("OffsetCommitResponse", answer).topics:
            for row in topic.partitions:
                if row.error_code is not ErrorCode.none:
                    subject = str(TopicPartition(topic.name, row.partition_index))
                    raise error_for(row.error_code, None, subject)

    async def _fetch(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, GroupOffset | None]:
        group = await self._fetch_group(partitions)
        code = getattr(group, "error_code", ErrorCode.none)
        if code is not ErrorCode.none:
            raise error_for(code, None, f"group {self._link.group_id!r}")
        found: dict[TopicPartition, GroupOffset | None] = dict.fromkeys(partitions)
        for topic in group.topics:
            for row in topic.partitions:
                partition = TopicPartition(topic.name, row.partition_index)
                if row.error_code is not ErrorCode.none:
                    raise error_for(row.error_code, None, str(partition))
                if row.committed_offset != NO_OFFSET:
                    found[partition] = GroupOffset(
                        offset=row.committed_offset,
                        leader_epoch=getattr(row, "committed_leader_epoch", NO_LEADER_EPOCH),
                        metadata=row.metadata or "",
                    )
        return found

    async def _fetch_group(
        self, partitions: Collection[TopicPartition]
    ) -> OffsetFetchResponseGroup | SingleFetchResponse:
        indexes: defaultdict[str, list[int]] = defaultdict(list)
        for partition in partitions:
            indexes[partition.topic].append(partition.partition)
        group = {
            "group_id": self._link.group_id,
            "topics": [{"name": n, "partition_indexes": tuple(i)} for n, i in indexes.items()],
        }
        connection = await self._link.connect()
        version = connection.choose_version(OFFSET_FETCH)
        if version < _FIRST_WITH_SEVERAL_GROUPS:
            values = {**group, "require_stable": self._read_committed}
            answer = await connection.call(OFFSET_FETCH, values, _FETCH_DROPPABLE, version=version)
            return cast("SingleFetchResponse", answer)
        values = {"groups": [group], "require_stable": self._read_committed}
        answer = await connection.call(OFFSET_FETCH, values, version=version)
        (found,) = cast("OffsetFetchResponse", answer).groups
        return found


def _is_forgotten(error: KafkaError | ClientError) -> bool:
    return isinstance(error, KafkaError) and error.code is ErrorCode.unknown_member_id


def _commit_values(index: int, wanted: GroupOffset) -> dict[str, object]:
    return {
        "partition_index": index,
        "committed_offset": wanted.offset,
        "committed_leader_epoch": wanted.leader_epoch,
        "committed_metadata": wanted.metadata,
    }
