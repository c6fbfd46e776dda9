"""WriteShareGroupState, versions 0 and 1: the leader of a partition tells what has changed.

For brokers (KIP-932): the share coordinator answers when the change is committed. v1 how many
records are done with (KIP-1226).
"""

from __future__ import annotations

from kio.schema.write_share_group_state.v1 import WriteShareGroupStateRequest

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.coordinator_requests import answer_state_request
from moldau.coordinators.shares.rules.share_states import WriteState
from moldau.wire.apis import WRITE_SHARE_GROUP_STATE

API = serves(WRITE_SHARE_GROUP_STATE)


async def handle(request: WriteShareGroupStateRequest, context: RequestContext) -> Values:
    return await answer_state_request(WriteState, request, context)
