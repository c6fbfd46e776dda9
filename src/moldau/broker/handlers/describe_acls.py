"""DescribeAcls, versions 1 to 3: the access control lists that a filter means.

v1 pattern types; v2 flexible; v3 users as resources. Without an authorizer the answer is
SECURITY_DISABLED. It takes DESCRIBE of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from kio.schema.describe_acls.v3 import DescribeAclsRequest

from moldau.broker.api import (
    RequestContext,
    Slices,
    Values,
    answered_class,
    encode_array,
    error_values,
    serves,
)
from moldau.broker.authorization import authorize_acls, read_filter
from moldau.errors import KafkaError
from moldau.model import AclBinding, AclOperation, ResourcePattern
from moldau.wire.apis import DESCRIBE_ACLS

API = serves(DESCRIBE_ACLS, needs=AclOperation.DESCRIBE)

_PATTERNS_AT_ONCE = 200


async def handle(request: DescribeAclsRequest, context: RequestContext) -> Values:
    try:
        authorize_acls(context, API)
        found = context.services.acls.find(read_filter(request))
    except KafkaError as error:
        return {**error_values(error), "resources": []}
    resource_class = answered_class(API, context.version, "resources")
    rows = (_values(*one) for one in groupby(found, key=lambda binding: binding.pattern))
    return {
        **error_values(None),
        "resources": await encode_array(resource_class, rows, API, Slices(_PATTERNS_AT_ONCE)),
    }


def _values(pattern: ResourcePattern, bindings: Iterable[AclBinding]) -> Values:
    return {
        "resource_type": pattern.type.value,
        "resource_name": pattern.name,
        "pattern_type": pattern.pattern_type.value,
        "acls": [
            {
                "principal": entry.principal,
                "host": entry.host,
                "operation": entry.operation.value,
                "permission_type": entry.permission.value,
            }
            for _, entry in bindings
        ],
    }
