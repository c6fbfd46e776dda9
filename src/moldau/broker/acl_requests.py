"""What the handlers of access control lists share: from the numbers of a request to its meaning.

A rule, except that without an authorizer there are no lists to be asked for.
"""

from __future__ import annotations

from typing import Protocol

from moldau.broker.authorization import require_cluster
from moldau.broker.request_context import RequestContext
from moldau.errors import InvalidRequestError, SecurityDisabledError
from moldau.model import (
    CLUSTER_NAME,
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    Principal,
    ResourcePattern,
)


class FilterRow(Protocol):
    """A filter as DescribeAcls and DeleteAcls have it."""

    @property
    def resource_type_filter(self) -> int: ...
    @property
    def resource_name_filter(self) -> str | None: ...
    @property
    def pattern_type_filter(self) -> int: ...
    @property
    def principal_filter(self) -> str | None: ...
    @property
    def host_filter(self) -> str | None: ...
    @property
    def operation(self) -> int: ...
    @property
    def permission_type(self) -> int: ...


class BindingRow(Protocol):
    """A binding as CreateAcls has it."""

    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...
    @property
    def resource_pattern_type(self) -> int: ...
    @property
    def principal(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def operation(self) -> int: ...
    @property
    def permission_type(self) -> int: ...


def authorize_acls(context: RequestContext, operation: AclOperation) -> None:
    """DESCRIBE to see lists, ALTER to change them; of the cluster, as in Kafka."""
    if context.services.authorizer is None:
        raise SecurityDisabledError(
            "no authorizer is configured: set authorizer.class.name on every broker"
        )
    require_cluster(context, operation)


def read_filter(row: FilterRow) -> AclFilter:
    found = AclFilter(
        AclResourceType(row.resource_type_filter),
        row.resource_name_filter,
        PatternType(row.pattern_type_filter),
        row.principal_filter,
        row.host_filter,
        AclOperation(row.operation),
        AclPermission(row.permission_type),
    )
    if (
        found.resource_type is AclResourceType.UNKNOWN
        or found.pattern_type is PatternType.UNKNOWN
        or found.operation is AclOperation.UNKNOWN
        or found.permission is AclPermission.UNKNOWN
    ):
        raise InvalidRequestError("the filter names something that this broker does not know")
    return found


def read_binding(row: BindingRow) -> AclBinding:
    resource_type = AclResourceType(row.resource_type)
    pattern_type = PatternType(row.resource_pattern_type)
    operation, permission = AclOperation(row.operation), AclPermission(row.permission_type)
    if (
        resource_type not in AclResourceType.choices()
        or pattern_type not in PatternType.choices()
        or operation not in AclOperation.choices()
        or permission not in AclPermission.choices()
    ):
        raise InvalidRequestError(
            "a binding needs a resource type, LITERAL or PREFIXED, an operation, and ALLOW or DENY"
        )
    if not row.resource_name:
        raise InvalidRequestError("the name of the resource is empty")
    if resource_type is AclResourceType.CLUSTER and row.resource_name != CLUSTER_NAME:
        raise InvalidRequestError(f"the only name of the cluster is {CLUSTER_NAME}")
    if not row.host:
        raise InvalidRequestError("the host is empty; * stands for every host")
    try:
        Principal.parse(row.principal)
    except ValueError as fault:
        raise InvalidRequestError(f"the principal {fault}") from None
    return AclBinding(
        ResourcePattern(resource_type, row.resource_name, pattern_type),
        AclEntry(row.principal, permission, operation, row.host),
    )
