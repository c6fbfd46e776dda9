"""InitializeShareGroupState, version 0: the coordinator of a share group begins states (KIP-932).

For brokers: the share coordinator answers. A state that is there in the same epoch stays as it is,
so that the request may come twice; in a later one it begins anew, at the start offset that is
given. An earlier epoch is FENCED_STATE_EPOCH.
"""

from __future__ import annotations

from kio.schema.initialize_share_group_state.v0 import InitializeShareGroupStateRequest

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.coordinator_requests import answer_state_request
from moldau.coordinators.shares.rules.share_states import InitializeState
from moldau.wire.apis import INITIALIZE_SHARE_GROUP_STATE

API = serves(INITIALIZE_SHARE_GROUP_STATE)


async def handle(request: InitializeShareGroupStateRequest, context: RequestContext) -> Values:
    return await answer_state_request(InitializeState, request, context)
