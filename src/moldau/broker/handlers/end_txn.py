"""EndTxn, versions 0 to 5: a producer commits or aborts its transaction.

Answered when the decision is committed, and mostly carried out; late markers follow by themselves.
v1 throttle after the answer; v2 PRODUCER_FENCED; v3 flexible; v4 TRANSACTION_ABORTABLE; v5
transaction version 2 (KIP-890): the answer names the producer id and the raised epoch for the next
transaction.
"""

from __future__ import annotations

from kio.schema.end_txn.v5 import EndTxnRequest

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.authorization import require_transactional_id
from moldau.broker.coordinator_requests import error_for
from moldau.coordinators.transactions.rules.transaction_metadata import IdAndEpoch
from moldau.coordinators.transactions.rules.transactions import EndTransaction, TransactionAnswer
from moldau.errors import ErrorCode, KafkaError
from moldau.model import AclOperation
from moldau.wire.apis import END_TXN

API = serves(END_TXN, droppable=("producer_id", "producer_epoch"))

_FIRST_OF_VERSION_2 = 5


async def handle(request: EndTxnRequest, context: RequestContext) -> Values:
    event = EndTransaction(
        transactional_id=request.transactional_id,
        producer=IdAndEpoch(request.producer_id, request.producer_epoch),
        commit=request.committed,
        version=2 if context.version >= _FIRST_OF_VERSION_2 else 0,
    )
    try:
        if request.transactional_id:
            require_transactional_id(context, AclOperation.WRITE, request.transactional_id)
            answer = await context.services.transactions.end_transaction(event)
        else:
            answer = TransactionAnswer(ErrorCode.invalid_request)
    except KafkaError as error:
        answer = TransactionAnswer(error.code)
    producer_id, producer_epoch = answer.producer
    return {
        "error_code": error_for(answer.error, context.version),
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
    }
