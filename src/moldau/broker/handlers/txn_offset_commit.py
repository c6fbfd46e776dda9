"""TxnOffsetCommit, versions 0 to 5: how far a group has read, as part of a transaction.

The offsets are pending until the transaction ends: its commit makes them the group's, an abort
drops them (TXP-5). Answered when the in-sync replicas have them. The first ones of a transaction
are taken when the transaction coordinator has confirmed it (`broker.transaction_verifier`).

v1 throttle time; v2 leader epochs; v3 flexible, member and generation (KIP-447); v4 the producer
can be told TRANSACTION_ABORTABLE; v5 the group's partition is added to the transaction with this
(KIP-890).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from moldau.broker.api import serves
from moldau.broker.authorization import may_group, may_topic, may_transactional_id
from moldau.broker.request_context import RequestContext
from moldau.broker.transaction_verifier import Question, find_refusal
from moldau.errors import (
    CoordinatorLoadInProgressError,
    ErrorCode,
    InvalidProducerIdMappingError,
    KafkaError,
)
from moldau.groups.rules.answers import PartitionsAnswer
from moldau.groups.rules.events import CommitTransactionOffsets
from moldau.groups.rules.records import CommittedOffset
from moldau.model.acls import AclOperation
from moldau.shards.state_shard import wait_for_answer
from moldau.storage.rules.transaction_verification import MUST_BE_OPEN, NOT_REQUIRED
from moldau.wire.apis import TXN_OFFSET_COMMIT

if TYPE_CHECKING:
    from kio.schema.txn_offset_commit.v5 import TxnOffsetCommitRequest
    from kio.schema.txn_offset_commit.v5.request import TxnOffsetCommitRequestPartition

API = serves(TXN_OFFSET_COMMIT)

_FIRST_THAT_KNOWS_LOADING: Final = 2
_FIRST_WITH_ABORTABLE: Final = 4
_FIRST_ADDING: Final = 5


class _Commit:
    """The answer in the making: a code for each partition, in the order of the request.

    None stands for a partition that the coordinator decides about.
    """

    def __init__(self, request: TxnOffsetCommitRequest, context: RequestContext) -> None:
        topics = context.services.image.topics
        self._version = context.version
        self._now_ms = context.services.clock.now_ms()
        self._codes: list[tuple[str, list[tuple[int, ErrorCode | None]]]] = []
        self.offsets: list[tuple[str, int, CommittedOffset]] = []
        for topic in request.topics:
            state = topics.get(topic.name)
            is_denied = not may_topic(context, AclOperation.READ, topic.name)
            codes: list[tuple[int, ErrorCode | None]] = []
            self._codes.append((topic.name, codes))
            for wanted in topic.partitions:
                number = wanted.partition_index
                if is_denied:
                    codes.append((number, ErrorCode.topic_authorization_failed))
                elif state is None or state.find_partition(number) is None:
                    codes.append((number, ErrorCode.unknown_topic_or_partition))
                else:
                    codes.append((number, None))
                    self.offsets.append((topic.name, number, self._committed(wanted)))

    def _committed(self, wanted: TxnOffsetCommitRequestPartition) -> CommittedOffset:
        return CommittedOffset(
            wanted.committed_offset,
            getattr(wanted, "committed_leader_epoch", -1),
            wanted.committed_metadata or "",
            self._now_ms,
        )

    def shape(self, answer: PartitionsAnswer) -> dict[str, object]:
        decided = iter(answer.errors)

        def code_of(code: ErrorCode | None) -> ErrorCode:
            if code is None:
                code = next(decided) if answer.error is ErrorCode.none else answer.error
            is_loading = code is ErrorCode.coordinator_load_in_progress
            if is_loading and self._version < _FIRST_THAT_KNOWS_LOADING:
                return ErrorCode.coordinator_not_available  # as Kafka: old clients fail on it
            return code

        return self._values(code_of)

    def refuse(self, error: ErrorCode) -> dict[str, object]:
        """The same for every partition."""
        return self._values(lambda _: error)

    def _values(self, code_of: Callable[[ErrorCode | None], ErrorCode]) -> dict[str, object]:
        return {
            "throttle_time": 0,
            "topics": [
                {
                    "name": name,
                    "partitions": [
                        {"partition_index": number, "error_code": code_of(code)}
                        for number, code in codes
                    ],
                }
                for name, codes in self._codes
            ],
        }


async def handle(request: TxnOffsetCommitRequest, context: RequestContext) -> dict[str, object]:
    commit = _Commit(request, context)
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
    request: TxnOffsetCommitRequest, commit: _Commit, verification: int, context: RequestContext
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
    answer = groups.commit_transaction_offsets(event)
    return await wait_for_answer(answer)
