"""OffsetCommit, versions 2 to 10.

Stores how far a group has read; answered when the in-sync replicas have it.

v2 to v4 a retention time of the commit's own; v3 throttle time; v5 without the retention time
(KIP-211); v6 leader epochs; v7 static members (KIP-345); v8 flexible; v9 the KIP-848 protocol,
GROUP_ID_NOT_FOUND; v10 topic ids. Members of consumer groups commit in an older epoch what they
have had since (KIP-1251).
"""

from __future__ import annotations

from kio.schema.offset_commit.v10 import OffsetCommitRequest

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.authorization import may_group
from moldau.broker.coordinator_requests import respond
from moldau.broker.offset_rows import OffsetRows
from moldau.coordinators.groups.rules.events import CommitOffsets, PartitionsAnswer
from moldau.coordinators.runtime.shard import Eventually
from moldau.errors import ErrorCode
from moldau.model import NO_TIMESTAMP, AclOperation
from moldau.wire.apis import OFFSET_COMMIT
from moldau.wire.shape import millis

API = serves(OFFSET_COMMIT)

_FIRST_WITH_EPOCHS = 9
_FIRST_WITH_TOPIC_IDS = 10
_NO_RETENTION_TIME = -1


def handle(request: OffsetCommitRequest, context: RequestContext) -> Eventually[Values]:
    commit = OffsetRows(
        request.topics,
        context,
        by_id=context.version >= _FIRST_WITH_TOPIC_IDS,
        expire_ms=_expire_ms(request, context.services.clock.now_ms()),
    )
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
        knows_epochs=context.version >= _FIRST_WITH_EPOCHS,
    )
    return respond(
        lambda: groups.submit(event),
        commit.shape,
        lambda error: commit.shape(PartitionsAnswer(error=error)),
    )


def _expire_ms(request: OffsetCommitRequest, now_ms: int) -> int:
    """Old clients may say how long they want the commit to be kept."""
    retention_ms = millis(getattr(request, "retention_time", None))
    return NO_TIMESTAMP if retention_ms == _NO_RETENTION_TIME else now_ms + retention_ms
