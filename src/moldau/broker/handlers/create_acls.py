"""CreateAcls, versions 1 to 3: adds bindings to the access control lists.

v1 pattern types; v2 flexible; v3 users as resources. One that is there already stays. The answer
leaves when they are stored; brokers hear of them at once, and this one obeys them before it
answers. It takes ALTER of the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.broker.api import RequestContext, serves
from moldau.broker.authorization import audit_change, authorize_acls, read_binding
from moldau.errors import ErrorCode, KafkaError
from moldau.model import AclBinding, AclOperation
from moldau.wire.apis import CREATE_ACLS

if TYPE_CHECKING:
    from kio.schema.create_acls.v3 import CreateAclsRequest

API = serves(CREATE_ACLS, changes_cluster=True)


async def handle(request: CreateAclsRequest, context: RequestContext) -> dict[str, object]:
    read: list[AclBinding | KafkaError] = []
    try:
        authorize_acls(context, AclOperation.ALTER)
    except KafkaError as error:
        read += [error] * len(request.creations)
    else:
        for row in request.creations:
            try:
                read.append(read_binding(row))
            except KafkaError as error:
                read.append(error)
    given = [one for one in read if isinstance(one, AclBinding)]
    outcome = await context.services.acls.add(given) if given else {}
    for binding, failure in outcome.items():
        audit_change(context, str(binding), failure)
    failures = [one if isinstance(one, KafkaError) else outcome[one] for one in read]
    return {
        "throttle_time": 0,
        "results": [
            {
                "error_code": ErrorCode.none if failure is None else failure.code,
                "error_message": None if failure is None else str(failure),
            }
            for failure in failures
        ],
    }
