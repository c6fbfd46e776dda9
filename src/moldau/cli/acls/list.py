"""`moldau acls list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.acls.binding_options import (
    Cluster,
    Groups,
    Pattern,
    Tokens,
    Topics,
    TransactionalIds,
    Users,
)
from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap

if TYPE_CHECKING:
    from moldau.client.admin import AsyncAdmin
    from moldau.model.acls import AclBinding


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
        typer.Option(
            "--principal", metavar="User:NAME", help="Only entries of this one; repeat for more."
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List who may do what. With `--resource-pattern-type match` all that holds for a resource."""
    from moldau.cli.acls.binding_options import (
        print_bindings,
        read_pattern_type,
        read_resources,
    )
    from moldau.cli.output import note
    from moldau.cli.session import with_admin
    from moldau.model.acls import AclFilter

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
