"""What a client may do with a topic, a group or the cluster, as the bits that Kafka answers with.

Bit N stands for the operation with the number N in Kafka's ACLs. Without an authorizer everybody
may do all that there is to do.
"""

from __future__ import annotations

from typing import Final

from moldau.broker.authorization import may_see
from moldau.broker.request_context import RequestContext
from moldau.model import (
    CLUSTER_NAME,
    OPERATIONS,
    AclOperation,
    AclResourceType,
    operation_bits,
)

NOT_ASKED: Final = -(1 << 31)
"""In the place of the bits: the client did not want to know."""


TOPIC_OPERATIONS: Final = operation_bits(OPERATIONS[AclResourceType.TOPIC])
GROUP_OPERATIONS: Final = operation_bits(OPERATIONS[AclResourceType.GROUP])
CLUSTER_OPERATIONS: Final = operation_bits(OPERATIONS[AclResourceType.CLUSTER])


def topic_operations(context: RequestContext, topic: str) -> int:
    if context.services.authorizer is None:
        return TOPIC_OPERATIONS
    return _allowed(context, AclResourceType.TOPIC, topic)


def group_operations(context: RequestContext, group_id: str) -> int:
    if context.services.authorizer is None:
        return GROUP_OPERATIONS
    return _allowed(context, AclResourceType.GROUP, group_id)


def cluster_operations(context: RequestContext) -> int:
    """None of them for somebody who may not describe the cluster."""
    if context.services.authorizer is None:
        return CLUSTER_OPERATIONS
    if not may_see(context, AclResourceType.CLUSTER, CLUSTER_NAME, AclOperation.DESCRIBE):
        return 0
    return _allowed(context, AclResourceType.CLUSTER, CLUSTER_NAME)


def _allowed(context: RequestContext, resource_type: AclResourceType, name: str) -> int:
    return operation_bits(
        operation
        for operation in OPERATIONS[resource_type]
        if may_see(context, resource_type, name, operation)
    )
