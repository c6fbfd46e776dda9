"""`moldau users list`."""

from __future__ import annotations

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap


def list_users(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """List the users that the cluster keeps, and how they may log in.

    Those who stand in the brokers' settings (sasl.jaas.config), as the first user of `moldau secure
    init`, are not among them: no broker tells who they are.
    """
    from moldau.cli.output import Column, note, print_document, print_table
    from moldau.cli.session import with_admin

    found = with_admin(bootstrap, lambda admin: admin.describe_scram_credentials())
    rows = [
        (user, one.mechanism, str(one.iterations))
        for user, credentials in found.items()
        for one in credentials
    ]
    if as_json:
        names = ("user", "mechanism", "iterations")
        print_document([dict(zip(names, row, strict=True)) for row in rows])
    elif rows:
        print_table((Column("user"), Column("mechanism"), Column("iterations", True)), rows)
        note("users in the brokers' settings (sasl.jaas.config) are not listed")
    else:
        note(
            "the cluster keeps no users; make one with `moldau users set NAME`. Users in the "
            "brokers' settings (sasl.jaas.config) are not listed"
        )
