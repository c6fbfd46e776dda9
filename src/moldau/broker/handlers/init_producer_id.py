"""InitProducerId, versions 0 to 6.

Gives an idempotent producer its id. Ids come from blocks of 1,000 that the cluster hands out, so
that no two brokers ever give the same one. With a transactional id the transaction coordinator
answers: a producer is the only one with its epoch, and whatever another one left open is aborted.

v1 sends the throttle time after the answer; v2 is flexible; v3 lets a producer raise its epoch and
go on (KIP-360); v4 PRODUCER_FENCED; v5 transactions of KIP-890; v6 two-phase commit (KIP-939): a
producer whose transactions do not time out, and one that completes what another has prepared.

Differences from Kafka: it has the fields of v6 and refuses `keep_prepared_txn`; here it is served
where `transaction.two.phase.commit.enable` is set.
"""

from __future__ import annotations

from kio.schema.init_producer_id.v6 import InitProducerIdRequest

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.authorization import may_transactional_id, may_write_somewhere
from moldau.coordinators.transactions.rules.transaction_metadata import NO_TIMEOUT_MS, IdAndEpoch
from moldau.coordinators.transactions.rules.transactions import InitProducer, TransactionAnswer
from moldau.errors import ErrorCode, KafkaError
from moldau.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, AclOperation
from moldau.wire.apis import INIT_PRODUCER_ID
from moldau.wire.shape import millis

API = serves(INIT_PRODUCER_ID, droppable=("ongoing_txn_producer_id", "ongoing_txn_producer_epoch"))

_FIRST_EPOCH = 0
_FIRST_WITH_FENCED = 4


async def handle(request: InitProducerIdRequest, context: RequestContext) -> Values:
    if request.transactional_id is not None:
        return await _init_transactional(request, context)
    if not may_write_somewhere(context):
        return _values(ErrorCode.cluster_authorization_failed)
    # A producer without transactions that asks again simply gets a new identity, as in Kafka:
    # an epoch bump would need state that outlives the broker.
    producer_id = await context.services.producer_ids.next_producer_id()
    return _values(ErrorCode.none, producer_id, _FIRST_EPOCH)


async def _init_transactional(request: InitProducerIdRequest, context: RequestContext) -> Values:
    try:
        error = _find_fault(request, context)
        if error is not None:
            return _values(error)
        answer = await _ask_coordinator(request, context)
    except KafkaError as refusal:
        return _values(refusal.code)
    error = answer.error
    if context.version < _FIRST_WITH_FENCED and error is ErrorCode.producer_fenced:
        error = ErrorCode.invalid_producer_epoch
    return _values(error, *answer.producer, *answer.prepared)


def _find_fault(request: InitProducerIdRequest, context: RequestContext) -> ErrorCode | None:
    options = context.services.options
    two_phases = getattr(request, "enable2_pc", False)
    keeps = getattr(request, "keep_prepared_txn", False)
    if not request.transactional_id or (keeps and not two_phases):
        return ErrorCode.invalid_request
    needed = [AclOperation.WRITE, *([AclOperation.TWO_PHASE_COMMIT] if two_phases else [])]
    if not all(may_transactional_id(context, one, request.transactional_id) for one in needed):
        return ErrorCode.transactional_id_authorization_failed
    if two_phases and not options.transaction_two_phase_commit_enable:
        return ErrorCode.transactional_id_authorization_failed
    timeout_ms = millis(request.transaction_timeout)
    if not two_phases and not 0 < timeout_ms <= options.transaction_max_timeout_ms:
        return ErrorCode.invalid_transaction_timeout
    has_id = getattr(request, "producer_id", NO_PRODUCER_ID) != NO_PRODUCER_ID
    has_epoch = getattr(request, "producer_epoch", NO_PRODUCER_EPOCH) != NO_PRODUCER_EPOCH
    return ErrorCode.invalid_request if has_id != has_epoch else None


async def _ask_coordinator(
    request: InitProducerIdRequest, context: RequestContext
) -> TransactionAnswer:
    two_phases = getattr(request, "enable2_pc", False)
    former_id = getattr(request, "producer_id", NO_PRODUCER_ID)
    expected = None
    if former_id != NO_PRODUCER_ID:
        expected = IdAndEpoch(former_id, request.producer_epoch)
    event = InitProducer(
        transactional_id=request.transactional_id or "",
        timeout_ms=NO_TIMEOUT_MS if two_phases else millis(request.transaction_timeout),
        expected=expected,
        keeps_prepared=getattr(request, "keep_prepared_txn", False),
    )
    return await context.services.transactions.init_producer(event)


def _values(
    error: ErrorCode,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    prepared_id: int = NO_PRODUCER_ID,
    prepared_epoch: int = NO_PRODUCER_EPOCH,
) -> Values:
    return {
        "error_code": error,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "ongoing_txn_producer_id": prepared_id,
        "ongoing_txn_producer_epoch": prepared_epoch,
    }
