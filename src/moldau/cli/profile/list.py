"""`moldau profile list`."""

from __future__ import annotations

from moldau.cli.options import AsJson


def list_profiles(as_json: AsJson = False) -> None:
    """List the profiles; a star marks the one in use."""
    from moldau.cli import profiles
    from moldau.cli.output import Column, note, print_document, print_table

    found, in_use = profiles.list_profiles(), profiles.name_in_use()
    if as_json:
        print_document(
            [
                {
                    "profile": one.name,
                    "in_use": one.name == in_use,
                    "bootstrap": one.bootstrap,
                    "path": str(one.path),
                }
                for one in found
            ]
        )
    elif found:
        columns = Column(""), Column("profile"), Column("bootstrap"), Column("security")
        rows = [
            (
                "*" if one.name == in_use else "",
                one.name,
                one.bootstrap or "-",
                one.settings.get("security.protocol")
                or one.settings.get(profiles.COMMAND_CONFIG, "-"),
            )
            for one in found
        ]
        print_table(columns, rows)
    else:
        note("there are no profiles; make one with `moldau profile create NAME --bootstrap ...`")
