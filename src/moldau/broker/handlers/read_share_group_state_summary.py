"""ReadShareGroupStateSummary, versions 0 and 1: how far share partitions have come (KIP-932).

For brokers: the share coordinator answers, and fences nobody. v1 how many records are done with
(KIP-1226).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.broker.api import RequestContext, serves
from moldau.broker.coordinator_requests import answer_state_request
from moldau.coordinators.shares.rules.share_states import SummarizeState
from moldau.wire.apis import READ_SHARE_GROUP_STATE_SUMMARY

if TYPE_CHECKING:
    from kio.schema.read_share_group_state_summary.v1 import ReadShareGroupStateSummaryRequest

API = serves(READ_SHARE_GROUP_STATE_SUMMARY, droppable=("delivery_complete_count",))


async def handle(
    request: ReadShareGroupStateSummaryRequest, context: RequestContext
) -> dict[str, object]:
    return await answer_state_request(SummarizeState, request, context)
