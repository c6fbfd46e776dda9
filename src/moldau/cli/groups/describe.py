"""`moldau groups describe`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap

if TYPE_CHECKING:
    from moldau.cli.groups.description import GroupView


def describe(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="GROUP...", help="The groups.", show_default="all"),
    ] = None,
    members: Annotated[
        bool, typer.Option("--members", help="Show members and what each reads.")
    ] = False,
    offsets: Annotated[
        bool,
        typer.Option("--offsets", help="Show offsets and lag; the default without --members."),
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show the state of groups, how far they have read, and how far they are behind.

    Lag is counted in records, and in the age of the oldest record that is still to be read. Of a
    share group that is the oldest record that nobody has accepted or rejected: where it starts.
    """
    from moldau.cli.groups.description import describe_all
    from moldau.cli.output import note, print_document
    from moldau.cli.session import end_with, with_admin
    from moldau.errors import KafkaError

    with_members = members or (as_json and not offsets)
    with_offsets = offsets or not members
    answers = with_admin(
        bootstrap, lambda admin: describe_all(admin, names or None, with_offsets=with_offsets)
    )
    groups = [one for one in answers if not isinstance(one, KafkaError)]
    if as_json:
        print_document([group.to_document(with_members=with_members) for group in groups])
    else:
        for number, group in enumerate(groups):
            if number:
                typer.echo()
            _print(group, with_members=with_members)
        if not answers:
            note("there are no groups; a consumer makes one when it commits or subscribes")
    end_with(one for one in answers if isinstance(one, KafkaError))


def _print(group: GroupView, *, with_members: bool) -> None:
    typer.secho(group.name, bold=True)
    for title, text in group.summary():
        typer.echo(f"  {title:<13}{text}")
    if with_members and group.members:
        _print_members(group)
    if group.partitions:
        _print_offsets(group)
    elif group.partitions is not None:
        typer.echo("  nothing has been committed or assigned")


def _print_members(group: GroupView) -> None:
    from moldau.cli.output import Column, print_table

    columns = (
        Column("member", is_cut=True),
        Column("instance"),
        Column("client"),
        Column("host"),
        Column("reads"),
    )
    print_table(columns, group.member_rows(), indent=2)


def _print_offsets(group: GroupView) -> None:
    from moldau.cli.output import Column, print_table

    if group.is_shared:
        titles = ("partition", "start", "end", "lag", "oldest", "takers")
        shared = (Column("topic"), *(Column(title, True) for title in titles))
        print_table(shared, [row.to_share_row() for row in group.partitions or ()], indent=2)
        typer.echo(f"  {group.totals()}")
        return
    columns = (
        Column("topic"),
        Column("partition", True),
        Column("committed", True),
        Column("end", True),
        Column("lag", True),
        Column("behind", True),
        Column("member", is_cut=True),
        Column("host"),
    )
    print_table(columns, [row.to_row() for row in group.partitions or ()], indent=2)
    typer.echo(f"  {group.totals()}")
