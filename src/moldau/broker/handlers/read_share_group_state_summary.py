"""ReadShareGroupStateSummary, versions 0 and 1: how far share partitions have come (KIP-932).

For brokers: the share coordinator answers, and fences nobody. v1 how many records are done with
(KIP-1226).
"""

from __future__ import annotations

from kio.schema.read_share_group_state_summary.v1 import ReadShareGroupStateSummaryRequest

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.coordinator_requests import answer_state_request
from moldau.coordinators.shares.rules.share_states import SummarizeState
from moldau.wire.apis import READ_SHARE_GROUP_STATE_SUMMARY

API = serves(READ_SHARE_GROUP_STATE_SUMMARY, droppable=("delivery_complete_count",))


async def handle(request: ReadShareGroupStateSummaryRequest, context: RequestContext) -> Values:
    return await answer_state_request(SummarizeState, request, context)
