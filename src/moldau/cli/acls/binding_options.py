"""The options by which the `moldau acls` commands say what bindings they are about.

Named as those of kafka-acls.sh where they mean the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from moldau.model.acls import AclBinding, AclOperation, AclResourceType, PatternType

Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="NAME", help="A topic; repeat for more, * for all."),
]
Groups = Annotated[
    list[str] | None,
    typer.Option("--group", metavar="ID", help="A group; repeat for more, * for all."),
]
TransactionalIds = Annotated[
    list[str] | None,
    typer.Option("--transactional-id", metavar="ID", help="A transactional id; repeat for more."),
]
Users = Annotated[
    list[str] | None,
    typer.Option("--user-principal", metavar="NAME", help="A user as a resource, for tokens."),
]
Tokens = Annotated[
    list[str] | None,
    typer.Option("--delegation-token", metavar="ID", help="A delegation token; repeat for more."),
]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Pattern = Annotated[
    str | None,
    typer.Option(
        "--resource-pattern-type",
        metavar="TYPE",
        help="literal or prefixed; where bindings are looked for also match and any.",
        show_default="literal; any to list",
    ),
]
Operations = Annotated[
    list[str] | None,
    typer.Option("--operation", metavar="OPERATION", help="read, write, ...; repeat for more."),
]
Producer = Annotated[
    bool,
    typer.Option(
        "--producer", help="What a producer needs: write, describe and create of the topics."
    ),
]
Consumer = Annotated[
    bool,
    typer.Option(
        "--consumer", help="What a consumer needs: read and describe of the topics and the group."
    ),
]
Idempotent = Annotated[
    bool,
    typer.Option("--idempotent", help="With --producer: idempotent writes, for old brokers."),
]
Allowed = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-principal", metavar="User:NAME", help="Who may; repeat for more, User:* for all."
    ),
]
Denied = Annotated[
    list[str] | None,
    typer.Option("--deny-principal", metavar="User:NAME", help="Who may not; repeat for more."),
]
AllowedHosts = Annotated[
    list[str] | None,
    typer.Option("--allow-host", metavar="ADDRESS", help="From where; repeat for more."),
]
DeniedHosts = Annotated[
    list[str] | None,
    typer.Option("--deny-host", metavar="ADDRESS", help="From where not; repeat for more."),
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
        from moldau.cli.acls.plan import plan_bindings

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
    from moldau.model.acls import CLUSTER_NAME, AclResourceType

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
    from moldau.model.acls import PatternType

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
    from moldau.model.acls import AclOperation

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
    from moldau.model.acls import CLUSTER_NAME, AclOperation, AclResourceType

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
    from moldau.model.acls import OPERATIONS, AclOperation

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
    from moldau.cli.output import Column, print_document, print_table

    if as_json:
        print_document([binding_document(one) for one in bindings])
        return
    titles = "resource", "name", "pattern", "principal", "permission", "operation", "host"
    print_table(
        [Column(title) for title in titles],
        [[str(cell) for cell in binding_document(one).values()] for one in bindings],
    )
