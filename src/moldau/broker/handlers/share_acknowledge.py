"""ShareAcknowledge, versions 1 and 2: what became of records that a member has acquired (KIP-932).

An acknowledgement is answered when the share coordinator has stored it. All of a partition's count,
or none. With epoch -1 the share session is closed, and what is left is released. The delivery is
counted, as in Kafka 4.3: a record that every consumer abandons comes to its end.

v2 renewals (KIP-1222), and how long the locks last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.broker.api import RequestContext, serves
from moldau.broker.share_acknowledging import Acknowledged, acknowledge, require_member
from moldau.broker.topic_metadata import CurrentLeaders
from moldau.errors import ErrorCode, InvalidShareSessionEpochError, KafkaError
from moldau.shares.share_sessions import CLOSING_EPOCH, OPENING_EPOCH
from moldau.wire.apis import SHARE_ACKNOWLEDGE

if TYPE_CHECKING:
    from uuid import UUID

    from kio.schema.share_acknowledge.v2 import ShareAcknowledgeRequest

API = serves(SHARE_ACKNOWLEDGE, droppable=("acquisition_lock_timeout",))

_FIRST_WITH_RENEWALS = 2


async def handle(request: ShareAcknowledgeRequest, context: RequestContext) -> dict[str, object]:
    shares = context.services.shares
    try:
        member = require_member(request.group_id, request.member_id, context)
        if request.share_session_epoch == OPENING_EPOCH:
            raise InvalidShareSessionEpochError("a share session is opened by ShareFetch")
        session = shares.sessions.require(member, request.share_session_epoch)
    except KafkaError as error:
        return _refuse(error)
    may_renew = context.version >= _FIRST_WITH_RENEWALS and request.is_renew_ack
    answers = await acknowledge(member, request.topics, context, may_renew=may_renew)
    if request.share_session_epoch == CLOSING_EPOCH:
        shares.leave(session)
    return _answer(answers, shares.settings_of(member.group_id).lock_ms, context)


def _refuse(error: KafkaError) -> dict[str, object]:
    return {
        "throttle_time": 0,
        "error_code": error.code,
        "error_message": str(error),
        "acquisition_lock_timeout": 0,
        "responses": [],
        "node_endpoints": [],
    }


def _answer(answers: Acknowledged, lock_ms: int, context: RequestContext) -> dict[str, object]:
    leaders = CurrentLeaders(context)
    topics: dict[UUID, list[dict[str, object]]] = {}
    for (topic_id, index), error in answers.items():
        code = ErrorCode.none if error is None else error.code
        leader_id, leader_epoch = leaders.find(topic_id, index, code.value) or (-1, -1)
        topics.setdefault(topic_id, []).append(
            {
                "partition_index": index,
                "error_code": code,
                "error_message": None if error is None else str(error),
                "current_leader": {"leader_id": leader_id, "leader_epoch": leader_epoch},
            }
        )
    return {
        "throttle_time": 0,
        "error_code": ErrorCode.none,
        "error_message": None,
        "acquisition_lock_timeout": lock_ms,
        "responses": [
            {"topic_id": topic_id, "partitions": partitions}
            for topic_id, partitions in topics.items()
        ],
        "node_endpoints": [
            {"node_id": node_id, "host": host, "port": port, "rack": rack}
            for node_id, host, port, rack in leaders.endpoints
        ],
    }
