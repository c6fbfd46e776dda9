"""What the handlers of requests about share states do alike: from the wire to the share coordinator
and back."""

from __future__ import annotations

import asyncio
from typing import Any

from moldau.broker.api import RequestContext
from moldau.broker.authorization import find_cluster_refusal
from moldau.broker.share_state_exchange import events_of, response_values
from moldau.model import AclOperation
from moldau.shares.rules.state_events import StateAnswer, StateEvent


async def answer_state_request(
    kind: type[StateEvent], request: Any, context: RequestContext
) -> dict[str, object]:
    """Begin everything, so that one commit is waited for rather than one after the other. With an
    authorizer it takes CLUSTER_ACTION."""
    rows = events_of(kind, request)
    keys = [key for key, _ in rows]
    refusal = find_cluster_refusal(context, AclOperation.CLUSTER_ACTION)
    if refusal is not None:
        refused = StateAnswer(refusal.code, str(refusal))
        return response_values(kind, keys, [refused] * len(rows))
    answers = await asyncio.gather(*(_answer(event, context) for _, event in rows))
    return response_values(kind, keys, answers)


async def _answer(event: StateEvent | StateAnswer, context: RequestContext) -> StateAnswer:
    if isinstance(event, StateAnswer):
        return event
    return await context.services.share_coordinator.submit(event)
