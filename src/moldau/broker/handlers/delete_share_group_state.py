"""DeleteShareGroupState, version 0: the coordinator of a share group ends states (KIP-932).

For brokers: the share coordinator answers. A state that is not there is deleted already.
"""

from __future__ import annotations

from kio.schema.delete_share_group_state.v0 import DeleteShareGroupStateRequest

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.coordinator_requests import answer_state_request
from moldau.coordinators.shares.rules.share_states import DeleteState
from moldau.wire.apis import DELETE_SHARE_GROUP_STATE

API = serves(DELETE_SHARE_GROUP_STATE)


async def handle(request: DeleteShareGroupStateRequest, context: RequestContext) -> Values:
    return await answer_state_request(DeleteState, request, context)
