"""Requests about access control lists. A part of `AsyncAdmin`.

Any broker answers. Bindings and filters are those of `moldau.model`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

from kio.schema.errors import ErrorCode

from moldau.client.admin_part import AdminPart
from moldau.client.broker_errors import error_for, find_error
from moldau.errors import KafkaError
from moldau.model import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    ResourcePattern,
)
from moldau.wire.apis import CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS, DESCRIBE_CLUSTER

if TYPE_CHECKING:
    from kio.schema.create_acls.v3.response import CreateAclsResponse
    from kio.schema.delete_acls.v3.response import DeleteAclsMatchingAcl, DeleteAclsResponse
    from kio.schema.describe_acls.v3.response import DescribeAclsResource, DescribeAclsResponse
    from kio.schema.describe_cluster.v2 import DescribeClusterResponse

EVERYTHING: Final = AclFilter()
_BROKERS = 1  # whom a description of the cluster names
_LISTS = "the access control lists"


class AclAdmin(AdminPart):
    """What `AsyncAdmin` does with access control lists."""

    async def describe_acls(self, wanted: AclFilter = EVERYTHING) -> tuple[AclBinding, ...]:
        """The bindings that a filter means; all of them without one."""
        connection = await self._client.pool.to_any()
        answer = await connection.call(DESCRIBE_ACLS, _filter_values(wanted))
        found = cast("DescribeAclsResponse", answer)
        if found.error_code is not ErrorCode.none:
            raise error_for(found.error_code, found.error_message, _LISTS)
        return tuple(binding for row in found.resources for binding in _read_resource(row))

    async def find_cluster_operations(self) -> frozenset[AclOperation]:
        """What this client may do with the cluster as a whole, users and quotas included."""
        values = {
            "include_cluster_authorized_operations": True,
            "endpoint_type": _BROKERS,
            "include_fenced_brokers": False,
        }
        droppable = frozenset({"endpoint_type", "include_fenced_brokers"})
        connection = await self._client.pool.to_any()
        answer = await connection.call(DESCRIBE_CLUSTER, values, droppable)
        found = cast("DescribeClusterResponse", answer)
        if found.error_code is not ErrorCode.none:
            raise error_for(found.error_code, found.error_message, "the cluster")
        bits = max(0, found.cluster_authorized_operations)
        return frozenset(one for one in AclOperation if bits >> one.value & 1)

    async def create_acls(
        self, bindings: Sequence[AclBinding]
    ) -> Mapping[AclBinding, KafkaError | None]:
        """Add bindings; one that is there already stays."""
        connection = await self._client.pool.to_any()
        values = {"creations": [_binding_values(binding) for binding in bindings]}
        answer = await connection.call(CREATE_ACLS, values)
        results = cast("CreateAclsResponse", answer).results
        return {
            binding: find_error(row.error_code, row.error_message, str(binding))
            for binding, row in zip(bindings, results, strict=True)
        }

    async def delete_acls(
        self, filters: Sequence[AclFilter]
    ) -> Mapping[AclFilter, tuple[AclBinding, ...] | KafkaError]:
        """Take out the bindings that filters mean; each filter with those that it found."""
        connection = await self._client.pool.to_any()
        values = {"filters": [_filter_values(wanted) for wanted in filters]}
        answer = await connection.call(DELETE_ACLS, values)
        deleted: dict[AclFilter, tuple[AclBinding, ...] | KafkaError] = {}
        rows = cast("DeleteAclsResponse", answer).filter_results
        for wanted, row in zip(filters, rows, strict=True):
            error = find_error(row.error_code, row.error_message, _LISTS)
            for one in row.matching_acls:
                failed = find_error(one.error_code, one.error_message, str(_read_matching(one)))
                error = error or failed
            found = tuple(map(_read_matching, row.matching_acls))
            deleted[wanted] = found if error is None else error
        return deleted


def _filter_values(wanted: AclFilter) -> dict[str, object]:
    return {
        "resource_type_filter": wanted.resource_type.value,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern_type.value,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation.value,
        "permission_type": wanted.permission.value,
    }


def _binding_values(binding: AclBinding) -> dict[str, object]:
    (resource_type, name, pattern_type), (principal, permission, operation, host) = binding
    return {
        "resource_type": resource_type.value,
        "resource_name": name,
        "resource_pattern_type": pattern_type.value,
        "principal": principal,
        "host": host,
        "operation": operation.value,
        "permission_type": permission.value,
    }


def _read_resource(row: DescribeAclsResource) -> list[AclBinding]:
    pattern = ResourcePattern(
        AclResourceType(row.resource_type), row.resource_name, PatternType(row.pattern_type)
    )
    return [
        AclBinding(
            pattern,
            AclEntry(
                one.principal,
                AclPermission(one.permission_type),
                AclOperation(one.operation),
                one.host,
            ),
        )
        for one in row.acls
    ]


def _read_matching(row: DeleteAclsMatchingAcl) -> AclBinding:
    return AclBinding(
        ResourcePattern(
            AclResourceType(row.resource_type), row.resource_name, PatternType(row.pattern_type)
        ),
        AclEntry(
            row.principal,
            AclPermission(row.permission_type),
            AclOperation(row.operation),
            row.host,
        ),
    )
