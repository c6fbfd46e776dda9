"""What a client may do: checks of handlers, access control lists in requests, the authorizer.

Every handler asks before it looks (ACL-2), so that a user without a right gets an error and nothing
else (ACL-4). `may_…` answers, `require_…` raises the error whose code Kafka returns. Without an
authorizer both cost one look at an attribute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from moldau.broker.api import RequestContext, ServedApi
from moldau.clock import Clock
from moldau.cluster.acl_writer import AclWriter
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.config.broker_options import BrokerOptions
from moldau.coordination.port import Coordination
from moldau.errors import (
    ClusterAuthorizationError,
    DelegationTokenAuthorizationError,
    ErrorCode,
    GroupAuthorizationError,
    InvalidRequestError,
    KafkaError,
    SecurityDisabledError,
    TopicAuthorizationError,
    TransactionalIdAuthorizationError,
)
from moldau.model import (
    CLUSTER_NAME,
    OPERATIONS,
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    Principal,
    ResourcePattern,
    operation_bits,
)
from moldau.security.audit import AuditLog, write_audit_file
from moldau.security.authorizer import Authorizer
from moldau.security.rules.authorization import AccessPolicy
from moldau.wire.apis import APIS

if TYPE_CHECKING:
    from kio.schema.create_acls.v3.request import AclCreation
    from kio.schema.delete_acls.v3.request import DeleteAclsFilter
    from kio.schema.describe_acls.v3 import DescribeAclsRequest

_TOPIC: Final = AclResourceType.TOPIC
_GROUP: Final = AclResourceType.GROUP
_CLUSTER: Final = AclResourceType.CLUSTER
_USER: Final = AclResourceType.USER
_TRANSACTIONAL_ID: Final = AclResourceType.TRANSACTIONAL_ID


def may_topic(context: RequestContext, operation: AclOperation, topic: str) -> bool:
    return context.services.authorizer is None or _is_allowed(context, operation, _TOPIC, topic)


def may_group(context: RequestContext, operation: AclOperation, group_id: str) -> bool:
    return context.services.authorizer is None or _is_allowed(context, operation, _GROUP, group_id)


def may_cluster(context: RequestContext, operation: AclOperation) -> bool:
    return context.services.authorizer is None or _is_allowed(
        context, operation, _CLUSTER, CLUSTER_NAME
    )


def may_transactional_id(
    context: RequestContext, operation: AclOperation, transactional_id: str
) -> bool:
    return context.services.authorizer is None or _is_allowed(
        context, operation, _TRANSACTIONAL_ID, transactional_id
    )


def require_topic(context: RequestContext, operation: AclOperation, topic: str) -> None:
    if not may_topic(context, operation, topic):
        raise TopicAuthorizationError(refusal(context, operation, _TOPIC, topic))


def require_group(context: RequestContext, operation: AclOperation, group_id: str) -> None:
    if not may_group(context, operation, group_id):
        raise GroupAuthorizationError(refusal(context, operation, _GROUP, group_id))


def require_cluster(context: RequestContext, operation: AclOperation) -> None:
    if not may_cluster(context, operation):
        raise ClusterAuthorizationError(refusal(context, operation, _CLUSTER, CLUSTER_NAME))


def require_transactional_id(
    context: RequestContext, operation: AclOperation, transactional_id: str
) -> None:
    if not may_transactional_id(context, operation, transactional_id):
        message = refusal(context, operation, _TRANSACTIONAL_ID, transactional_id)
        raise TransactionalIdAuthorizationError(message)


def require_user(context: RequestContext, operation: AclOperation, user: str) -> None:
    """Of a principal as a resource: `User:alice`."""
    if context.services.authorizer is not None and not _is_allowed(context, operation, _USER, user):
        raise DelegationTokenAuthorizationError(refusal(context, operation, _USER, user))


def find_cluster_refusal(context: RequestContext, operation: AclOperation) -> KafkaError | None:
    """The error for a client that may not do this to the cluster; None for one that may."""
    if may_cluster(context, operation):
        return None
    return ClusterAuthorizationError(refusal(context, operation, _CLUSTER, CLUSTER_NAME))


def find_refusal(context: RequestContext, api: ServedApi) -> KafkaError | None:
    """The same, for the right that the API declares."""
    operation = api.cluster_operation
    return None if operation is None else find_cluster_refusal(context, operation)


def authorize(context: RequestContext, api: ServedApi) -> None:
    """Raise unless the client has the right on the cluster that the API declares."""
    error = find_refusal(context, api)
    if error is not None:
        raise error


def may_see(
    context: RequestContext,
    resource_type: AclResourceType,
    name: str,
    operation: AclOperation = AclOperation.DESCRIBE,
) -> bool:
    """As the others, for one thing of a list that is made shorter: a client that may not see it has
    not asked for it by name, so that is no denial to be logged."""
    authorizer = context.services.authorizer
    return authorizer is None or authorizer.allows(
        context.principal, context.host, operation, resource_type, name
    )


def topic_filter(context: RequestContext) -> Callable[[str], bool] | None:
    """Tells the topics that a client may know of; None where there is nobody to ask."""
    if context.services.authorizer is None:
        return None
    return lambda name: may_see(context, _TOPIC, name)


def visible_topics(context: RequestContext, names: Iterable[str]) -> Iterable[str]:
    """Those that a client may know of."""
    if context.services.authorizer is None:
        return names
    return [name for name in names if may_see(context, _TOPIC, name)]


def may_write_somewhere(context: RequestContext) -> bool:
    """Whether a client may have a producer id: it may write idempotently, or to any topic at all
    (KIP-679)."""
    authorizer = context.services.authorizer
    if authorizer is None:
        return True
    who = context.principal, context.host
    return authorizer.allows_somewhere(*who, AclOperation.WRITE, _TOPIC) or may_cluster(
        context, AclOperation.IDEMPOTENT_WRITE
    )


def may_create_topic(context: RequestContext, topic: str) -> bool:
    """CREATE of the cluster is enough for every topic; that of the topic is for this one."""
    return (
        context.services.authorizer is None
        or may_see(context, _CLUSTER, CLUSTER_NAME, AclOperation.CREATE)
        or may_topic(context, AclOperation.CREATE, topic)
    )


def _is_allowed(
    context: RequestContext, operation: AclOperation, resource_type: AclResourceType, name: str
) -> bool:
    if may_see(context, resource_type, name, operation):
        return True
    api = APIS.get(context.header.api_key)
    context.services.audit.denied(
        context.principal,
        context.host,
        operation.label,
        f"{resource_type.label}:{name}",
        "" if api is None else api.name,
    )
    return False


def refusal(
    context: RequestContext, operation: AclOperation, resource_type: AclResourceType, name: str
) -> str:
    """Says who lacks what, in the words in which it is granted."""
    return f"{context.principal} lacks {operation.label} on {resource_type.label}:{name}"


def audit_change(
    context: RequestContext, subject: str, error: KafkaError | ErrorCode | None = None
) -> None:
    """Tell the audit log that the client changed something, or tried to. `subject` is what was
    changed, without values that may be secret."""
    code = error.code if isinstance(error, KafkaError) else error
    api = APIS.get(context.header.api_key)
    context.services.audit.changed(
        context.principal,
        context.host,
        "" if api is None else api.name,
        subject,
        None if code in (None, ErrorCode.none) else code.name.upper(),
    )


NOT_ASKED: Final = -(1 << 31)
"""In the place of the bits: the client did not want to know."""


TOPIC_OPERATIONS: Final = operation_bits(OPERATIONS[AclResourceType.TOPIC])
GROUP_OPERATIONS: Final = operation_bits(OPERATIONS[AclResourceType.GROUP])
CLUSTER_OPERATIONS: Final = operation_bits(OPERATIONS[AclResourceType.CLUSTER])


def topic_operations(context: RequestContext, topic: str) -> int:
    """What the client may do, as bits: bit N is the operation with the number N in Kafka's ACLs."""
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


def authorize_acls(context: RequestContext, api: ServedApi) -> None:
    """The same, for APIs of access control lists, which need an authorizer."""
    if context.services.authorizer is None:
        raise SecurityDisabledError(
            "no authorizer is configured: set authorizer.class.name on every broker"
        )
    authorize(context, api)


def read_filter(row: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
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


def read_binding(row: AclCreation) -> AclBinding:
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


class AccessControl(NamedTuple):
    """`close` ends the audit file, where there is one."""

    authorizer: Authorizer | None
    acls: AclWriter
    audit: AuditLog
    close: Callable[[], None]


def connect_access_control(
    options: BrokerOptions, clock: Clock, coordination: Coordination, publisher: MetadataPublisher
) -> AccessControl:
    authorizer = None
    if options.authorizer_class_name:
        policy = AccessPolicy(
            super_users=frozenset(options.super_users),
            allows_without_acls=options.allow_everyone_if_no_acl_found,
        )
        authorizer = Authorizer(lambda: publisher.image.acls, policy)
    path = options.audit_log_path
    return AccessControl(
        authorizer,
        AclWriter(coordination, publisher),
        AuditLog(clock),
        _nothing if not path else write_audit_file(path),
    )


def _nothing() -> None:
    """Without an audit file there is none to close."""
