"""DeleteAcls, versions 1 to 3: takes the bindings that filters mean out of the lists.

v1 pattern types; v2 flexible; v3 users as resources. The answer names what was taken out for each
filter, when that is stored. It takes ALTER of the cluster.
"""

from __future__ import annotations

from kio.schema.delete_acls.v3 import DeleteAclsRequest

from moldau.broker.api import RequestContext, Values, error_values, serves
from moldau.broker.authorization import audit_change, authorize_acls, read_filter
from moldau.errors import KafkaError
from moldau.model import AclBinding, AclOperation
from moldau.wire.apis import DELETE_ACLS

API = serves(DELETE_ACLS, needs=AclOperation.ALTER, changes_cluster=True)


async def handle(request: DeleteAclsRequest, context: RequestContext) -> Values:
    acls = context.services.acls
    found: list[list[AclBinding] | KafkaError] = []
    try:
        authorize_acls(context, API)
        await acls.catch_up()
    except KafkaError as error:
        found += [error] * len(request.filters)
    else:
        for row in request.filters:
            try:
                found.append(acls.find(read_filter(row)))
            except KafkaError as error:
                found.append(error)
    matched = dict.fromkeys(
        binding for some in found if not isinstance(some, KafkaError) for binding in some
    )
    outcome = await acls.remove(matched) if matched else {}
    for binding, failure in outcome.items():
        audit_change(context, str(binding), failure)
    return {
        "filter_results": [
            {**error_values(some), "matching_acls": []}
            if isinstance(some, KafkaError)
            else {
                **error_values(None),
                "matching_acls": [_values(binding, outcome[binding]) for binding in some],
            }
            for some in found
        ]
    }


def _values(binding: AclBinding, error: KafkaError | None) -> Values:
    pattern, entry = binding
    return {
        **error_values(error),
        "resource_type": pattern.type.value,
        "resource_name": pattern.name,
        "pattern_type": pattern.pattern_type.value,
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation.value,
        "permission_type": entry.permission.value,
    }
