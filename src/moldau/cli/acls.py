"""`moldau acls`: lists, adds and removes who may do what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from moldau.cli.options import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    flag,
    option,
    with_option_groups,
)
from moldau.cli.output import ask, note, print_document, print_table
from moldau.cli.session import end_with, with_admin
from moldau.client.admin.client import AsyncAdmin
from moldau.errors import KafkaError
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
)

# Options are named as those of kafka-acls.sh where they mean the same.


Topics = Annotated[
    list[str] | None, option("NAME", "A topic; repeat for more, * for all.", "--topic")
]
Groups = Annotated[
    list[str] | None, option("ID", "A group; repeat for more, * for all.", "--group")
]
TransactionalIds = Annotated[
    list[str] | None, option("ID", "A transactional id; repeat for more.", "--transactional-id")
]
Users = Annotated[
    list[str] | None, option("NAME", "A user as a resource, for tokens.", "--user-principal")
]
Tokens = Annotated[
    list[str] | None, option("ID", "A delegation token; repeat for more.", "--delegation-token")
]
Cluster = Annotated[bool, flag("--cluster", "The cluster itself.")]
Pattern = Annotated[
    str | None,
    option(
        "TYPE",
        "literal or prefixed; where bindings are looked for also match and any.",
        "--resource-pattern-type",
        default="literal; any to list",
    ),
]
Operations = Annotated[
    list[str] | None, option("OPERATION", "read, write, ...; repeat for more.", "--operation")
]
Producer = Annotated[
    bool, flag("--producer", "What a producer needs: write, describe and create of the topics.")
]
Consumer = Annotated[
    bool,
    flag("--consumer", "What a consumer needs: read and describe of the topics and the group."),
]
Idempotent = Annotated[
    bool, flag("--idempotent", "With --producer: idempotent writes, for old brokers.")
]
Allowed = Annotated[
    list[str] | None,
    option("User:NAME", "Who may; repeat for more, User:* for all.", "--allow-principal"),
]
Denied = Annotated[
    list[str] | None, option("User:NAME", "Who may not; repeat for more.", "--deny-principal")
]
AllowedHosts = Annotated[
    list[str] | None, option("ADDRESS", "From where; repeat for more.", "--allow-host")
]
DeniedHosts = Annotated[
    list[str] | None, option("ADDRESS", "From where not; repeat for more.", "--deny-host")
]

Resources = dict["AclResourceType", Sequence[str]]


@dataclass(frozen=True, slots=True)
class BindingOptions:
    """Who may do what, as `add` and `remove` are told."""

    allow_principal: Allowed = None
    allow_host: AllowedHosts = None
    deny_principal: Denied = None
    deny_host: DeniedHosts = None
    operation: Operations = None
    producer: Producer = False
    consumer: Consumer = False
    idempotent: Idempotent = False
    topic: Topics = None
    group: Groups = None
    cluster: Cluster = False
    transactional_id: TransactionalIds = None
    delegation_token: Tokens = None
    user: Users = None
    pattern: Pattern = None

    def resources(self) -> Resources:
        return read_resources(
            self.topic,
            self.group,
            self.transactional_id,
            self.user,
            self.delegation_token,
            cluster=self.cluster,
        )

    def bindings(self, pattern_type: PatternType) -> list[AclBinding]:
        """Every principal from every host for every operation on every resource."""
        return plan_bindings(
            self.resources(),
            pattern_type,
            self.operation or (),
            allowed=(self.allow_principal or (), self.allow_host or ("*",)),
            denied=(self.deny_principal or (), self.deny_host or ("*",)),
            producer=self.producer,
            consumer=self.consumer,
            idempotent=self.idempotent,
        )


def read_resources(
    topics: Sequence[str] | None,
    groups: Sequence[str] | None,
    transactional_ids: Sequence[str] | None,
    users: Sequence[str] | None,
    tokens: Sequence[str] | None,
    *,
    cluster: bool,
) -> Resources:
    """The names by their types, of those that were given."""
    given = {
        AclResourceType.TOPIC: topics or (),
        AclResourceType.GROUP: groups or (),
        AclResourceType.CLUSTER: (CLUSTER_NAME,) if cluster else (),
        AclResourceType.TRANSACTIONAL_ID: transactional_ids or (),
        AclResourceType.USER: users or (),
        AclResourceType.DELEGATION_TOKEN: tokens or (),
    }
    return {kind: tuple(names) for kind, names in given.items() if names}


def read_pattern_type(text: str | None, *, is_filter: bool, default: str) -> PatternType:
    try:
        found = PatternType.parse(text or default)
    except ValueError as fault:
        raise typer.BadParameter(str(fault), param_hint="--resource-pattern-type") from None
    filters = (PatternType.ANY, PatternType.MATCH) if is_filter else ()
    if found not in (*PatternType.choices(), *filters):
        raise typer.BadParameter(
            f"{text} is for looking, not for adding; use literal or prefixed",
            param_hint="--resource-pattern-type",
        )
    return found


def read_operations(texts: Sequence[str]) -> tuple[AclOperation, ...]:
    try:
        found = tuple(AclOperation.parse(text) for text in texts)
    except ValueError as fault:
        raise typer.BadParameter(str(fault), param_hint="--operation") from None
    if any(one not in AclOperation.choices() for one in found):
        raise typer.BadParameter("name the operations, or All", param_hint="--operation")
    return found


def convenient_operations(
    *, producer: bool, consumer: bool, idempotent: bool, resources: Resources
) -> dict[AclResourceType, tuple[AclOperation, ...]]:
    """What --producer and --consumer stand for, as in kafka-acls.sh."""
    meant: dict[AclResourceType, tuple[AclOperation, ...]] = {}
    if (producer or consumer) and AclResourceType.TOPIC not in resources:
        raise typer.BadParameter("--producer and --consumer need a --topic", param_hint="--topic")
    if consumer and AclResourceType.GROUP not in resources:
        raise typer.BadParameter("--consumer needs a --group", param_hint="--group")
    if producer:
        meant[AclResourceType.TOPIC] = (
            AclOperation.WRITE,
            AclOperation.DESCRIBE,
            AclOperation.CREATE,
        )
        meant[AclResourceType.TRANSACTIONAL_ID] = (AclOperation.WRITE, AclOperation.DESCRIBE)
        if idempotent:
            resources[AclResourceType.CLUSTER] = (CLUSTER_NAME,)
            meant[AclResourceType.CLUSTER] = (AclOperation.IDEMPOTENT_WRITE,)
    if consumer:
        topic = meant.get(AclResourceType.TOPIC, ())
        more = (AclOperation.READ, AclOperation.DESCRIBE)
        meant[AclResourceType.TOPIC] = tuple(dict.fromkeys((*topic, *more)))
        meant[AclResourceType.GROUP] = (AclOperation.READ,)
    return meant


def check_operations(resource_type: AclResourceType, operations: Sequence[AclOperation]) -> None:
    """Refuse what cannot be done to such a resource, as Kafka's tool does."""
    known = OPERATIONS[resource_type] | {AclOperation.ALL}
    for one in operations:
        if one not in known:
            names = ", ".join(sorted(operation.label for operation in known))
            raise typer.BadParameter(
                f"{one.label} is nothing that is done to a {resource_type.label}; there are "
                f"{names}",
                param_hint="--operation",
            )


def binding_document(binding: AclBinding) -> dict[str, object]:
    pattern, entry = binding
    return {
        "resource_type": pattern.type.label,
        "name": pattern.name,
        "pattern_type": pattern.pattern_type.label,
        "principal": entry.principal,
        "permission": entry.permission.label,
        "operation": entry.operation.label,
        "host": entry.host,
    }


def print_bindings(bindings: Sequence[AclBinding], *, as_json: bool) -> None:
    if as_json:
        print_document([binding_document(one) for one in bindings])
        return
    titles = "resource", "name", "pattern", "principal", "permission", "operation", "host"
    print_table(
        titles,
        [[str(cell) for cell in binding_document(one).values()] for one in bindings],
    )


def list_acls(
    topic: Topics = None,
    group: Groups = None,
    cluster: Cluster = False,
    transactional_id: TransactionalIds = None,
    delegation_token: Tokens = None,
    user: Users = None,
    pattern: Pattern = None,
    principal: Annotated[
        list[str] | None,
        option("User:NAME", "Only entries of this one; repeat for more.", "--principal"),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List who may do what. With `--resource-pattern-type match` all that holds for a resource."""
    resources = read_resources(
        topic, group, transactional_id, user, delegation_token, cluster=cluster
    )
    pattern_type = read_pattern_type(pattern, is_filter=True, default="any")
    filters = [
        AclFilter(kind, name, pattern_type, principal=who)
        for who in principal or (None,)
        for kind, names in resources.items()
        for name in names
    ] or [AclFilter(pattern_type=pattern_type, principal=who) for who in principal or (None,)]

    async def work(admin: AsyncAdmin) -> list[AclBinding]:
        found = [binding for one in filters for binding in await admin.describe_acls(one)]
        return sorted(set(found))

    bindings = with_admin(bootstrap, work)
    if bindings or as_json:
        print_bindings(bindings, as_json=as_json)
    else:
        note("there are no such entries; `moldau acls add` makes some")


@with_option_groups
def add(
    options: BindingOptions, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False
) -> None:
    """Allow or deny somebody to do something. Without --operation it is everything."""
    if not options.allow_principal and not options.deny_principal:
        raise typer.BadParameter(
            "name who with --allow-principal or --deny-principal", param_hint="--allow-principal"
        )
    bindings = options.bindings(
        read_pattern_type(options.pattern, is_filter=False, default="literal")
    )
    answers = with_admin(bootstrap, lambda admin: admin.create_acls(bindings))
    added = [binding for binding in bindings if answers[binding] is None]
    if added or as_json:
        print_bindings(added, as_json=as_json)
    end_with({str(error): error for error in answers.values() if error is not None}.values())


@with_option_groups
def remove(
    options: BindingOptions,
    force: Annotated[
        bool,
        typer.Option(
            "--force", "--yes", "-y", help="Do not ask before all entries of a resource go."
        ),
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Take entries out again: the same options that added them, or a resource for all of its."""
    resources = options.resources()
    if not resources:
        raise typer.BadParameter("name a resource", param_hint="--topic")
    pattern_type = read_pattern_type(options.pattern, is_filter=True, default="literal")
    if options.allow_principal or options.deny_principal:
        filters = [filter_of(binding) for binding in options.bindings(pattern_type)]
    else:
        filters = [
            AclFilter(kind, name, pattern_type)
            for kind, names in resources.items()
            for name in names
        ]
        if not force:
            named = ", ".join(f"{one.resource_type.label}:{one.name}" for one in filters)
            ask(f"Remove all entries of {named}?")
    answers = with_admin(bootstrap, lambda admin: admin.delete_acls(filters))
    errors = [answer for answer in answers.values() if isinstance(answer, KafkaError)]
    removed = sorted(
        {one for found in answers.values() if not isinstance(found, KafkaError) for one in found}
    )
    if removed or as_json:
        print_bindings(removed, as_json=as_json)
    elif not errors:
        note("there were no such entries; `moldau acls list` shows what is there")
    end_with({str(error): error for error in errors}.values())


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
