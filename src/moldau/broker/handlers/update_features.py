"""UpdateFeatures, versions 0 to 2 (KIP-584).

The levels in force are those of the brokers' release (`broker.control_plane`): a request for them
succeeds and changes nothing, every other level is refused with a message. So nothing here depends
on who may downgrade (v0 `allow_downgrade`, v1 `upgrade_type`) or on `validate_only` (v1).

As in Kafka 4, one update that is refused refuses them all, with an error for the whole request and
none for each feature, in every version; v2 has no place for others any more.
"""

from __future__ import annotations

from kio.schema.update_features.v2 import UpdateFeaturesRequest

from moldau.broker.api import RequestContext, Values, error_values, serves
from moldau.broker.authorization import find_refusal
from moldau.broker.control_plane import find_update_fault
from moldau.errors import ErrorCode
from moldau.model import AclOperation
from moldau.wire.apis import UPDATE_FEATURES

API = serves(UPDATE_FEATURES, needs=AclOperation.ALTER, droppable=("results",))


def handle(request: UpdateFeaturesRequest, context: RequestContext) -> Values:
    denied = find_refusal(context, API)
    if denied is not None:
        return _refuse(denied.code, str(denied))
    faults = (
        find_update_fault(update.feature, update.max_version_level)
        for update in request.feature_updates
    )
    first = next((fault for fault in faults if fault is not None), None)
    if first is not None:
        return _refuse(first.code, f"no feature is updated: {first.message}")
    return {
        **error_values(None),
        "results": [
            {"feature": update.feature, "error_code": ErrorCode.none, "error_message": None}
            for update in request.feature_updates
        ],
    }


def _refuse(code: ErrorCode, message: str) -> Values:
    return {"error_code": code, "error_message": message, "results": []}
