"""`moldau acls remove`."""

from __future__ import annotations

from typing import Annotated

import typer

from moldau.cli.acls.binding_options import BindingOptions
from moldau.cli.option_groups import with_option_groups
from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap


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
    from moldau.cli.acls.binding_options import print_bindings, read_pattern_type
    from moldau.cli.acls.plan import filter_of
    from moldau.cli.output import ask, note
    from moldau.cli.session import end_with, with_admin
    from moldau.errors import KafkaError
    from moldau.model.acls import AclFilter

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
