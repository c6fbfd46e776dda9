"""How handlers ask whether a client may do what it asks for.

Every handler asks before it looks (ACL-2), so that a user without a right gets an error and nothing
else (ACL-4). `may_…` answers, `require_…` raises the error whose code Kafka gives. Without an
authorizer both cost one look at an attribute. What is refused goes to the audit log, except where a
list is only made shorter by what its reader may not see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from moldau.broker.request_context import RequestContext
from moldau.errors import (
    ClusterAuthorizationError,
    DelegationTokenAuthorizationError,
    ErrorCode,
    GroupAuthorizationError,
    KafkaError,
    TopicAuthorizationError,
    TransactionalIdAuthorizationError,
)
from moldau.model import CLUSTER_NAME, AclOperation, AclResourceType
from moldau.wire.apis import APIS

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
