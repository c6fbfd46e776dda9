"""OffsetCommit, versions 2 to 10.

Stores how far a group has read; answered when the in-sync replicas have it.

v2 to v4 a retention time of the commit's own; v3 throttle time; v5 without the retention time
(KIP-211); v6 leader epochs; v7 static members (KIP-345); v8 flexible; v9 the KIP-848 protocol,
GROUP_ID_NOT_FOUND; v10 topic ids.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

from moldau.broker.api import serves
from moldau.broker.authorization import may_group, may_topic
from moldau.broker.group_requests import respond
from moldau.broker.request_context import RequestContext
from moldau.cluster.rules.metadata_image import TopicState
from moldau.errors import ErrorCode
from moldau.groups.rules.answers import PartitionsAnswer
from moldau.groups.rules.events import CommitOffsets
from moldau.groups.rules.records import CommittedOffset
from moldau.model.acls import AclOperation
from moldau.model.protocol_numbers import NO_TIMESTAMP
from moldau.shards.state_shard import Eventually
from moldau.wire.apis import OFFSET_COMMIT
from moldau.wire.shape import millis

if TYPE_CHECKING:
    from kio.schema.offset_commit.v10 import OffsetCommitRequest
    from kio.schema.offset_commit.v10.request import (
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
    )

API = serves(OFFSET_COMMIT, droppable=("throttle_time",))

_FIRST_WITH_GROUP_ID_NOT_FOUND = 9
_FIRST_WITH_TOPIC_IDS = 10
_NO_RETENTION_TIME = -1


class _Commit:
    """The answer in the making: a code for each partition, in the order of the request.

    None stands for a partition that the coordinator decides about.
    """

    def __init__(self, request: OffsetCommitRequest, context: RequestContext) -> None:
        self._uses_ids = context.version >= _FIRST_WITH_TOPIC_IDS
        self._now_ms = context.services.clock.now_ms()
        self._expire_ms = _expire_ms(request, self._now_ms)
        self.topics: list[tuple[object, list[tuple[int, ErrorCode | None]]]] = []
        self.offsets: list[tuple[str, int, CommittedOffset]] = []
        for topic in request.topics:
            self._add_topic(topic, context)

    def _add_topic(self, topic: OffsetCommitRequestTopic, context: RequestContext) -> None:
        key: UUID | str | None = getattr(topic, "topic_id" if self._uses_ids else "name")
        state = _find_topic(key, context)
        name = key if isinstance(key, str) else None if state is None else state.name
        is_denied = name is not None and not may_topic(context, AclOperation.READ, name)
        codes: list[tuple[int, ErrorCode | None]] = []
        self.topics.append((key, codes))
        for wanted in topic.partitions:
            number = wanted.partition_index
            if is_denied:
                codes.append((number, ErrorCode.topic_authorization_failed))
            elif state is None and self._uses_ids:
                codes.append((number, ErrorCode.unknown_topic_id))
            elif state is None or state.find_partition(number) is None:
                codes.append((number, ErrorCode.unknown_topic_or_partition))
            else:
                codes.append((number, None))
                self.offsets.append((state.name, number, self._committed(wanted)))

    def _committed(self, wanted: OffsetCommitRequestPartition) -> CommittedOffset:
        return CommittedOffset(
            wanted.committed_offset,
            getattr(wanted, "committed_leader_epoch", -1),
            wanted.committed_metadata or "",
            self._now_ms,
            self._expire_ms,
        )

    def shape(self, answer: PartitionsAnswer) -> dict[str, object]:
        decided = iter(answer.errors)

        def code_of(code: ErrorCode | None) -> ErrorCode:
            if code is not None:
                return code
            return next(decided) if answer.error is ErrorCode.none else answer.error

        return self._values(code_of)

    def refuse(self, error: ErrorCode) -> dict[str, object]:
        """The same for every partition."""
        return self._values(lambda _: error)

    def _values(self, code_of: Callable[[ErrorCode | None], ErrorCode]) -> dict[str, object]:
        return {
            "throttle_time": 0,
            "topics": [
                {
                    "topic_id" if self._uses_ids else "name": key,
                    "partitions": [
                        {"partition_index": number, "error_code": code_of(code)}
                        for number, code in codes
                    ],
                }
                for key, codes in self.topics
            ],
        }


def handle(request: OffsetCommitRequest, context: RequestContext) -> Eventually[dict[str, object]]:
    commit = _Commit(request, context)
    if not may_group(context, AclOperation.READ, request.group_id):
        return commit.refuse(ErrorCode.group_authorization_failed)
    if not commit.offsets:
        return commit.shape(PartitionsAnswer())
    groups = context.services.groups
    event = CommitOffsets(
        group_id=request.group_id,
        generation=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        offsets=tuple(commit.offsets),
        unknown_group_is_known=context.version >= _FIRST_WITH_GROUP_ID_NOT_FOUND,
    )
    return respond(
        lambda: groups.commit_offsets(event),
        commit.shape,
        lambda error: commit.shape(PartitionsAnswer(error=error)),
    )


def _find_topic(key: UUID | str | None, context: RequestContext) -> TopicState | None:
    image = context.services.image
    if isinstance(key, str):
        return image.topics.get(key)
    return None if key is None else image.topics_by_id.get(key)


def _expire_ms(request: OffsetCommitRequest, now_ms: int) -> int:
    """Old clients may say how long they want the commit to be kept."""
    retention_ms = millis(getattr(request, "retention_time", None))
    return NO_TIMESTAMP if retention_ms == _NO_RETENTION_TIME else now_ms + retention_ms
