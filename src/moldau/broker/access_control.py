"""Puts together what decides who may do what. Part of the composition root."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from moldau.clock import Clock
from moldau.cluster.acl_writer import AclWriter
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.config.broker_options import BrokerOptions
from moldau.coordination.port import Coordination
from moldau.security.audit import AuditLog, write_audit_file

if TYPE_CHECKING:
    from moldau.security.authorizer import Authorizer


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
        from moldau.security.authorizer import Authorizer
        from moldau.security.rules.authorization import AccessPolicy

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
