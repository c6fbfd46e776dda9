"""Which bindings a command line means. A rule: values in, values out."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from moldau.cli.acls.binding_options import (
    Resources,
    check_operations,
    convenient_operations,
    read_operations,
)
from moldau.model import Principal
from moldau.model.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
)

Who = tuple[Sequence[str], Sequence[str]]
"""Principals and hosts."""


def plan_bindings(
    resources: Resources,
    pattern_type: PatternType,
    operations: Sequence[str],
    *,
    allowed: Who,
    denied: Who,
    producer: bool = False,
    consumer: bool = False,
    idempotent: bool = False,
) -> list[AclBinding]:
    """Every principal from every host for every operation on every resource."""
    if not resources:
        raise typer.BadParameter(
            "name a resource: --topic, --group, --cluster, --transactional-id", param_hint="--topic"
        )
    is_convenient = producer or consumer
    if is_convenient and (operations or denied[0]):
        raise typer.BadParameter(
            "--producer and --consumer say which operations are allowed; give no others",
            param_hint="--operation",
        )
    meant = convenient_operations(
        producer=producer, consumer=consumer, idempotent=idempotent, resources=resources
    )
    named = read_operations(operations) or (AclOperation.ALL,)
    bindings: dict[AclBinding, None] = {}
    for kind, names in resources.items():
        wanted = meant.get(kind, ()) if is_convenient else named
        check_operations(kind, wanted)
        for name in names:
            pattern = ResourcePattern(kind, name, pattern_type)
            for permission, (principals, hosts) in (
                (AclPermission.ALLOW, allowed),
                (AclPermission.DENY, denied),
            ):
                for principal in principals:
                    _check_principal(principal)
                    for host in hosts:
                        for operation in wanted:
                            entry = AclEntry(principal, permission, operation, host)
                            bindings[AclBinding(pattern, entry)] = None
    return list(bindings)


def _check_principal(text: str) -> None:
    try:
        Principal.parse(text)
    except ValueError as fault:
        raise typer.BadParameter(str(fault), param_hint="--allow-principal") from None


def filter_of(binding: AclBinding) -> AclFilter:
    """The filter that means this binding alone."""
    (kind, name, pattern_type), (principal, permission, operation, host) = binding
    return AclFilter(kind, name, pattern_type, principal, host, operation, permission)
