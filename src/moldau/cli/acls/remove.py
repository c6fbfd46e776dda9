"""`moldau acls remove`."""

from __future__ import annotations

from typing import Annotated

import typer

from moldau.cli.acls.binding_options import (
    Allowed,
    AllowedHosts,
    Cluster,
    Consumer,
    Denied,
    DeniedHosts,
    Groups,
    Idempotent,
    Operations,
    Pattern,
    Producer,
    Tokens,
    Topics,
    TransactionalIds,
    Users,
)
from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap


def remove(
    allow_principal: Allowed = None,
    allow_host: AllowedHosts = None,
    deny_principal: Denied = None,
    deny_host: DeniedHosts = None,
    operation: Operations = None,
    producer: Producer = False,
    consumer: Consumer = False,
    idempotent: Idempotent = False,
    topic: Topics = None,
    group: Groups = None,
    cluster: Cluster = False,
    transactional_id: TransactionalIds = None,
    delegation_token: Tokens = None,
    user: Users = None,
    pattern: Pattern = None,
    force: Annotated[
        bool, typer.Option("--force", help="Do not ask before all entries of a resource go.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Take entries out again: the same options that added them, or a resource for all of its."""
    from moldau.cli.acls.binding_options import print_bindings, read_pattern_type, read_resources
    from moldau.cli.acls.plan import filter_of, plan_bindings
    from moldau.cli.output import note
    from moldau.cli.session import end_with, with_admin
    from moldau.errors import KafkaError
    from moldau.model.acls import AclFilter

    resources = read_resources(
        topic, group, transactional_id, user, delegation_token, cluster=cluster
    )
    if not resources:
        raise typer.BadParameter("name a resource", param_hint="--topic")
    pattern_type = read_pattern_type(pattern, is_filter=True, default="literal")
    if allow_principal or deny_principal:
        bindings = plan_bindings(
            resources,
            pattern_type,
            operation or (),
            allowed=(allow_principal or (), allow_host or ("*",)),
            denied=(deny_principal or (), deny_host or ("*",)),
            producer=producer,
            consumer=consumer,
            idempotent=idempotent,
        )
        filters = [filter_of(binding) for binding in bindings]
    else:
        filters = [
            AclFilter(kind, name, pattern_type)
            for kind, names in resources.items()
            for name in names
        ]
        if not force:
            named = ", ".join(f"{one.resource_type.label}:{one.name}" for one in filters)
            typer.confirm(f"Remove all entries of {named}?", abort=True, err=True)
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
