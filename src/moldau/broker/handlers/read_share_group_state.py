"""ReadShareGroupState, version 0: the leader of a partition takes its state over (KIP-932).

For brokers: the share coordinator answers. From then on leaders of lower epochs are
FENCED_LEADER_EPOCH. A state that was not initialized is INVALID_REQUEST, as Kafka has it.
"""

from __future__ import annotations

from kio.schema.read_share_group_state.v0 import ReadShareGroupStateRequest

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.coordinator_requests import answer_state_request
from moldau.coordinators.shares.rules.share_states import ReadState
from moldau.wire.apis import READ_SHARE_GROUP_STATE

API = serves(READ_SHARE_GROUP_STATE)


async def handle(request: ReadShareGroupStateRequest, context: RequestContext) -> Values:
    return await answer_state_request(ReadState, request, context)
