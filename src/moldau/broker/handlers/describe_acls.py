"""DescribeAcls, versions 1 to 3: the access control lists that a filter means.

v1 pattern types; v2 flexible; v3 users as resources. Without an authorizer the answer is
SECURITY_DISABLED. It takes DESCRIBE of the cluster.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from moldau.broker.api import RequestContext, Slices, answered_class, encode_array, serves
from moldau.broker.authorization import authorize_acls, read_filter
from moldau.errors import ErrorCode, KafkaError
from moldau.model import AclBinding, AclOperation, ResourcePattern
from moldau.wire.apis import DESCRIBE_ACLS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kio.schema.describe_acls.v3 import DescribeAclsRequest

API = serves(DESCRIBE_ACLS)

_PATTERNS_AT_ONCE = 200


async def handle(request: DescribeAclsRequest, context: RequestContext) -> dict[str, object]:
    try:
        authorize_acls(context, AclOperation.DESCRIBE)
        found = context.services.acls.find(read_filter(request))
    except KafkaError as error:
        return {
            "throttle_time": 0,
            "error_code": error.code,
            "error_message": str(error),
            "resources": [],
        }
    resource_class = answered_class(API, context.version, "resources")
    rows = (_values(*one) for one in groupby(found, key=lambda binding: binding.pattern))
    return {
        "throttle_time": 0,
        "error_code": ErrorCode.none,
        "error_message": None,
        "resources": await encode_array(resource_class, rows, API, Slices(_PATTERNS_AT_ONCE)),
    }


def _values(pattern: ResourcePattern, bindings: Iterable[AclBinding]) -> dict[str, object]:
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
