"""UpdateFeatures, versions 0 to 2 (KIP-584).

The levels in force are those of the brokers' release (`broker.features`): to ask for them succeeds
and changes nothing, every other level is refused with a message. So nothing here depends on who
may downgrade (v0 `allow_downgrade`, v1 `upgrade_type`) or on `validate_only` (v1).

v2 has one error for the whole request instead of one for each feature.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.broker.api import serves
from moldau.broker.authorization import find_cluster_refusal
from moldau.broker.features import find_update_fault
from moldau.broker.request_context import RequestContext
from moldau.errors import ErrorCode
from moldau.model.acls import AclOperation
from moldau.wire.apis import UPDATE_FEATURES

if TYPE_CHECKING:
    from kio.schema.update_features.v2 import UpdateFeaturesRequest

API = serves(UPDATE_FEATURES, droppable=("results",))

_FIRST_WITH_ONE_ERROR = 2


def handle(request: UpdateFeaturesRequest, context: RequestContext) -> dict[str, object]:
    denied = find_cluster_refusal(context, AclOperation.ALTER)
    if denied is not None:
        return {
            "throttle_time": 0,
            "error_code": denied.code,
            "error_message": str(denied),
            "results": [],
        }
    faults = {
        update.feature: find_update_fault(update.feature, update.max_version_level)
        for update in request.feature_updates
    }
    has_one_error = context.version >= _FIRST_WITH_ONE_ERROR
    first = next((fault for fault in faults.values() if fault is not None), None)
    whole = first if has_one_error else None
    return {
        "throttle_time": 0,
        "error_code": ErrorCode.none if whole is None else whole.code,
        "error_message": None if whole is None else whole.message,
        "results": [
            {
                "feature": name,
                "error_code": ErrorCode.none if fault is None else fault.code,
                "error_message": None if fault is None else fault.message,
            }
            for name, fault in faults.items()
        ],
    }
