"""CreateAcls, versions 1 to 3: adds bindings to the access control lists.

v1 pattern types; v2 flexible; v3 users as resources. One that is there already stays. The answer
leaves when they are stored; brokers hear of them at once, and this one obeys them before it
answers. It takes ALTER of the cluster.
"""

from __future__ import annotations

from kio.schema.create_acls.v3 import CreateAclsRequest

from moldau.broker.api import RequestContext, Values, error_values, serves
from moldau.broker.authorization import audit_change, authorize_acls, read_binding
from moldau.errors import KafkaError
from moldau.model import AclBinding, AclOperation
from moldau.wire.apis import CREATE_ACLS

API = serves(CREATE_ACLS, needs=AclOperation.ALTER, changes_cluster=True)


async def handle(request: CreateAclsRequest, context: RequestContext) -> Values:
    read: list[AclBinding | KafkaError] = []
    try:
        authorize_acls(context, API)
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
    return {"results": [error_values(failure) for failure in failures]}
