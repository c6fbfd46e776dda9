"""TxnOffsetCommit, versions 0 to 5: how far a group has read, as part of a transaction.

The offsets are pending until the transaction ends: its commit makes them the group's, an abort
drops them (TXP-5). Answered when the in-sync replicas have them. The first ones of a transaction
are taken when the transaction coordinator has confirmed it (`broker.transaction_verifier`).

v1 throttle time; v2 leader epochs; v3 flexible, member and generation (KIP-447); v4 the producer
can be told TRANSACTION_ABORTABLE; v5 the group's partition is added to the transaction with this
(KIP-890).
"""

from __future__ import annotations

from functools import partial
from typing import Final

from kio.schema.txn_offset_commit.v5 import TxnOffsetCommitRequest

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.authorization import may_group, may_transactional_id
from moldau.broker.offset_rows import OffsetRows
from moldau.broker.transaction_verifier import Question, find_refusal
from moldau.coordinators.groups.rules.events import CommitTransactionOffsets, PartitionsAnswer
from moldau.coordinators.runtime.shard import wait_for_answer
from moldau.errors import (
    CoordinatorLoadInProgressError,
    ErrorCode,
    InvalidProducerIdMappingError,
    KafkaError,
)
from moldau.model import AclOperation
from moldau.storage.rules.producer_state import MUST_BE_OPEN, NOT_REQUIRED
from moldau.wire.apis import TXN_OFFSET_COMMIT

API = serves(TXN_OFFSET_COMMIT)

_FIRST_THAT_KNOWS_LOADING: Final = 2
_FIRST_WITH_ABORTABLE: Final = 4
_FIRST_ADDING: Final = 5


async def handle(request: TxnOffsetCommitRequest, context: RequestContext) -> Values:
    commit = OffsetRows(request.topics, context, translate=partial(_translate, context.version))
    if not may_transactional_id(context, AclOperation.WRITE, request.transactional_id):
        return commit.refuse(ErrorCode.transactional_id_authorization_failed)
    if not may_group(context, AclOperation.READ, request.group_id):
        return commit.refuse(ErrorCode.group_authorization_failed)
    if not commit.offsets:
        return commit.shape(PartitionsAnswer())
    try:
        if request.producer_id < 0:
            raise InvalidProducerIdMappingError("offsets in a transaction need a producer id")
        verification = await _verify(request, context)
        answer = await _submit(request, commit, verification, context)
    except KafkaError as error:
        answer = PartitionsAnswer(error=error.code)
    return commit.shape(answer)


def _translate(version: int, code: ErrorCode) -> ErrorCode:
    is_loading = code is ErrorCode.coordinator_load_in_progress
    if is_loading and version < _FIRST_THAT_KNOWS_LOADING:
        return ErrorCode.coordinator_not_available  # as Kafka: old clients fail on it
    return code


async def _verify(request: TxnOffsetCommitRequest, context: RequestContext) -> int:
    """What the offsets are to be logged with, when the transaction coordinator has confirmed it."""
    services, adds = context.services, context.version >= _FIRST_ADDING
    if not (adds or services.options.transaction_partition_verification_enable):
        return NOT_REQUIRED
    group_id, producer_id = request.group_id, request.producer_id
    topic_partition, verification = await services.groups.begin_verification(
        group_id, producer_id, request.producer_epoch, bumps_epochs=adds
    )
    if verification <= MUST_BE_OPEN:
        return verification
    question = Question(
        request.transactional_id,
        producer_id,
        request.producer_epoch,
        frozenset((topic_partition,)),
        adds,
    )
    codes = await services.transaction_verifier.ask(question)
    knows_abortable = context.version >= _FIRST_WITH_ABORTABLE
    refusal = find_refusal(codes[topic_partition], knows_abortable=knows_abortable)
    if refusal is None:
        return verification
    services.groups.end_verification(group_id, producer_id, verification)
    if refusal.code is ErrorCode.not_enough_replicas:
        raise CoordinatorLoadInProgressError(str(refusal))  # it passes: the client asks again
    raise refusal


async def _submit(
    request: TxnOffsetCommitRequest, commit: OffsetRows, verification: int, context: RequestContext
) -> PartitionsAnswer:
    groups = context.services.groups
    event = CommitTransactionOffsets(
        group_id=request.group_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        verification=verification,
        generation=getattr(request, "generation_id", -1),
        member_id=getattr(request, "member_id", ""),
        instance_id=getattr(request, "group_instance_id", None),
        offsets=tuple(commit.offsets),
    )
    answer = groups.submit(event)
    return await wait_for_answer(answer)
