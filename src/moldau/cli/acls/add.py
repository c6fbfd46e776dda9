"""`moldau acls add`."""

from __future__ import annotations

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


def add(
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
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Allow or deny somebody to do something. Without --operation it is everything."""
    from moldau.cli.acls.binding_options import print_bindings, read_pattern_type, read_resources
    from moldau.cli.acls.plan import plan_bindings
    from moldau.cli.session import end_with, with_admin

    resources = read_resources(
        topic, group, transactional_id, user, delegation_token, cluster=cluster
    )
    if not allow_principal and not deny_principal:
        raise typer.BadParameter(
            "name who with --allow-principal or --deny-principal", param_hint="--allow-principal"
        )
    bindings = plan_bindings(
        resources,
        read_pattern_type(pattern, is_filter=False, default="literal"),
        operation or (),
        allowed=(allow_principal or (), allow_host or ("*",)),
        denied=(deny_principal or (), deny_host or ("*",)),
        producer=producer,
        consumer=consumer,
        idempotent=idempotent,
    )
    answers = with_admin(bootstrap, lambda admin: admin.create_acls(bindings))
    added = [binding for binding in bindings if answers[binding] is None]
    if added or as_json:
        print_bindings(added, as_json=as_json)
    end_with({str(error): error for error in answers.values() if error is not None}.values())
