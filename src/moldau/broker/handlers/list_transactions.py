"""ListTransactions, versions 0 to 2: the transactional ids that this broker coordinates.

Filtered by state and producer id; v1 adds the shortest time for which a transaction has been open,
v2 a pattern of transactional ids, which is matched by RE2. Names of states that are not known are
given back.
"""

from __future__ import annotations

from collections.abc import Callable

from kio.schema.list_transactions.v2 import ListTransactionsRequest

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.authorization import may_see
from moldau.coordinators.runtime.regular_expressions import compile_regular_expression
from moldau.coordinators.transactions.rules.transaction_metadata import (
    TransactionMetadata,
    TransactionState,
)
from moldau.errors import ErrorCode, KafkaError
from moldau.model import AclResourceType
from moldau.wire.apis import LIST_TRANSACTIONS

API = serves(LIST_TRANSACTIONS)

_NO_DURATION = -1


async def handle(request: ListTransactionsRequest, context: RequestContext) -> Values:
    known = {one.label for one in TransactionState}
    unknown = [one for one in request.state_filters if one not in known]
    try:
        is_wanted = _filter_of(request, context.services.clock.now_ms())
        found = await context.services.transactions.list_transactions()
    except KafkaError as error:
        return _values(error.code, unknown, [])
    listed = [
        one
        for one in found
        if is_wanted(one)
        and may_see(context, AclResourceType.TRANSACTIONAL_ID, one.transactional_id)
    ]
    return _values(ErrorCode.none, unknown, listed)


def _filter_of(
    request: ListTransactionsRequest, now_ms: int
) -> Callable[[TransactionMetadata], bool]:
    states = frozenset(request.state_filters)
    producers = frozenset(request.producer_id_filters)
    shortest_ms = getattr(request, "duration_filter", _NO_DURATION)
    pattern = getattr(request, "transactional_id_pattern", None)
    fits = compile_regular_expression(pattern).fullmatch if pattern else None

    def is_wanted(one: TransactionMetadata) -> bool:
        is_open_long = not one.state.is_idle and now_ms - one.started_ms > shortest_ms
        return (
            (not states or one.state.label in states)
            and (not producers or one.producer_id in producers)
            and (shortest_ms < 0 or is_open_long)
            and (fits is None or fits(one.transactional_id) is not None)
        )

    return is_wanted


def _values(error: ErrorCode, unknown: list[str], found: list[TransactionMetadata]) -> Values:
    return {
        "error_code": error,
        "unknown_state_filters": unknown,
        "transaction_states": [
            {
                "transactional_id": one.transactional_id,
                "producer_id": one.producer_id,
                "transaction_state": one.state.label,
            }
            for one in found
        ],
    }
