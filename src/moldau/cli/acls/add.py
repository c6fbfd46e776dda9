"""`moldau acls add`."""

from __future__ import annotations

import typer

from moldau.cli.acls.binding_options import BindingOptions
from moldau.cli.option_groups import with_option_groups
from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap


@with_option_groups
def add(
    options: BindingOptions, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False
) -> None:
    """Allow or deny somebody to do something. Without --operation it is everything."""
    from moldau.cli.acls.binding_options import print_bindings, read_pattern_type
    from moldau.cli.session import end_with, with_admin

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
