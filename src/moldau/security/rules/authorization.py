"""Decides who may do what, as Kafka's authorizer does. A rule: values in, values out.

An entry holds for a request when its principal (or `User:*`), its host (or `*`) and its operation
(or ALL) do, and its pattern for the resource: literally, as `*`, or by its prefix. One entry that
forbids outweighs all that allow (ACL-1). READ, WRITE, DELETE and ALTER allow DESCRIBE too, and
ALTER_CONFIGS allows DESCRIBE_CONFIGS; what forbids one of them does not forbid the other. Who is
nowhere allowed is refused, unless no entry at all is about the resource and the broker is
told to let everybody in then. A super user may do everything, whatever the entries say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple

from moldau.model import (
    ANYBODY,
    ANYTHING,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResourceType,
    Acls,
    PatternType,
    Principal,
    ResourcePattern,
)

_IMPLIED_BY: Final[Mapping[AclOperation, frozenset[AclOperation]]] = {
    AclOperation.DESCRIBE: frozenset(
        (
            AclOperation.DESCRIBE,
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.DELETE,
            AclOperation.ALTER,
        )
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset(
        (AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS)
    ),
}


class AccessPolicy(NamedTuple):
    """What the broker's own settings say."""

    super_users: frozenset[Principal] = frozenset()
    allows_without_acls: bool = False
    """`allow.everyone.if.no.acl.found`."""


class Asked(NamedTuple):
    """Who wants to do something, and what. The key under which decisions are kept."""

    principal: Principal
    host: str
    operation: AclOperation
    resource_type: AclResourceType
    name: str


class AclIndex:
    """The entries that are about a resource, found without looking at all of them."""

    __slots__ = ("_literals", "_prefixed")

    def __init__(self, acls: Acls) -> None:
        self._literals: dict[tuple[AclResourceType, str], frozenset[AclEntry]] = {}
        # By type and length of the prefix: there are few lengths, and may be many prefixes.
        self._prefixed: dict[AclResourceType, dict[int, dict[str, frozenset[AclEntry]]]] = {}
        for (kind, name, pattern_type), entries in acls.items():
            if pattern_type is PatternType.LITERAL:
                self._literals[kind, name] = entries
            elif pattern_type is PatternType.PREFIXED:
                lengths = self._prefixed.setdefault(kind, {})
                lengths.setdefault(len(name), {})[name] = entries

    def find(self, kind: AclResourceType, name: str) -> Iterator[frozenset[AclEntry]]:
        """The entries of every pattern that holds for the resource."""
        for literal in {name, ANYTHING}:
            entries = self._literals.get((kind, literal))
            if entries is not None:
                yield entries
        for length, prefixes in self._prefixed.get(kind, {}).items():
            entries = prefixes.get(name[:length])
            if entries is not None:
                yield entries

    def of_type(
        self, kind: AclResourceType
    ) -> Iterator[tuple[ResourcePattern, frozenset[AclEntry]]]:
        for (of, name), entries in self._literals.items():
            if of is kind:
                yield ResourcePattern(kind, name, PatternType.LITERAL), entries
        for prefixes in self._prefixed.get(kind, {}).values():
            for name, entries in prefixes.items():
                yield ResourcePattern(kind, name, PatternType.PREFIXED), entries


def is_allowed(asked: Asked, index: AclIndex, policy: AccessPolicy) -> bool:
    """Whether somebody may do something to one resource."""
    if asked.principal in policy.super_users:
        return True
    found = list(index.find(asked.resource_type, asked.name))
    if not found:
        return policy.allows_without_acls
    principal, host = str(asked.principal), asked.host
    entries = [entry for some in found for entry in some if _is_about(entry, principal, host)]
    if _has(entries, AclPermission.DENY, (asked.operation,)):
        return False
    allowing = _IMPLIED_BY.get(asked.operation, (asked.operation,))
    return _has(entries, AclPermission.ALLOW, allowing)


def is_allowed_somewhere(asked: Asked, index: AclIndex, policy: AccessPolicy) -> bool:
    """Whether there may be a resource of the type to which somebody may do something; the name that
    is asked for does not count.

    Kafka asks this for idempotent producers: who may write to any topic may have a producer id.
    """
    if asked.principal in policy.super_users:
        return True
    allowed, denied = _split_patterns(asked, index)
    if ResourcePattern(asked.resource_type, ANYTHING) in denied:
        return False
    if policy.allows_without_acls:
        return True
    return any(not _is_overridden(pattern, denied) for pattern in allowed)


def _split_patterns(
    asked: Asked, index: AclIndex
) -> tuple[list[ResourcePattern], set[ResourcePattern]]:
    """The patterns under which the operation itself is allowed, and those where it is denied."""
    allowed: list[ResourcePattern] = []
    denied: set[ResourcePattern] = set()
    principal, host = str(asked.principal), asked.host
    for pattern, some in index.of_type(asked.resource_type):
        entries = [entry for entry in some if _is_about(entry, principal, host)]
        if _has(entries, AclPermission.ALLOW, (asked.operation,)):
            allowed.append(pattern)
        if _has(entries, AclPermission.DENY, (asked.operation,)):
            denied.add(pattern)
    return allowed, denied


def _is_overridden(pattern: ResourcePattern, denied: Iterable[ResourcePattern]) -> bool:
    """Whether everything that a pattern allows is denied by one of these."""
    if pattern.pattern_type is PatternType.LITERAL and pattern.name == ANYTHING:
        return False  # a literal or a prefix leaves something of it
    for other in denied:
        if other.pattern_type is PatternType.PREFIXED:
            if pattern.name.startswith(other.name):
                return True
        elif other == pattern:
            return True
    return False


def _is_about(entry: AclEntry, principal: str, host: str) -> bool:
    return entry.principal in (principal, ANYBODY) and _is_host(entry.host, host)


def _is_host(wanted: str, host: str) -> bool:
    """An address of IPv6 has many forms: Java writes all of its zeros."""
    if wanted in (host, ANYTHING):
        return True
    if ":" not in wanted:
        return False
    try:
        return _address(wanted) == _address(host)
    except ValueError:
        return False


def _address(host: str) -> IPv4Address | IPv6Address:
    address = ip_address(host)
    return getattr(address, "ipv4_mapped", None) or address


def _has(
    entries: Iterable[AclEntry], permission: AclPermission, operations: Collection[AclOperation]
) -> bool:
    return any(
        entry.permission is permission
        and (entry.operation in operations or entry.operation is AclOperation.ALL)
        for entry in entries
    )
