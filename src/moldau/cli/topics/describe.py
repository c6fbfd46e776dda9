"""`moldau topics describe`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from moldau.model.uuid_text import format_uuid

if TYPE_CHECKING:
    from moldau.cli.topics.description import TopicDescription


def describe(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME...", help="The topics.", show_default="all but internal ones"),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show partitions, leaders, replicas, offsets, and settings that are not the default."""
    from moldau.cli.output import note, print_document
    from moldau.cli.session import end_with, with_admin
    from moldau.cli.topics.description import describe_all
    from moldau.errors import KafkaError

    answers = with_admin(bootstrap, lambda admin: describe_all(admin, names or None))
    topics = [one for one in answers if not isinstance(one, KafkaError)]
    if as_json:
        print_document([topic.to_document() for topic in topics])
    else:
        for number, topic in enumerate(topics):
            if number:
                typer.echo()
            _print(topic)
        if not answers:
            note("there are no topics; make one with `moldau topics create NAME`")
    end_with(one for one in answers if isinstance(one, KafkaError))


def _print(topic: TopicDescription) -> None:
    from moldau.cli.output import Column, print_table
    from moldau.config.suspension import SUSPENDED

    typer.secho(topic.name, bold=True)
    if topic.topic_id is not None:
        typer.echo(f"  id      {format_uuid(topic.topic_id)}")
    for number, (name, value) in enumerate(topic.configs.items()):
        typer.echo(f"  {'' if number else 'config':<8}{name}={value}")
    if topic.configs.get(SUSPENDED) == "true":
        typer.echo(
            "  note    nothing in it is deleted or compacted until its settings are confirmed:"
        )
        typer.echo(
            f"          `moldau configs alter --topic {topic.name}` with --set retention.ms=..."
        )
        typer.echo("          or cleanup.policy=..., or --unset cleanup.suspended for the defaults")
    with_eligible = topic.has_eligible
    columns = (
        Column("partition", True),
        Column("leader", True),
        Column("replicas"),
        Column("in sync"),
        *((Column("eligible"), Column("last known")) if with_eligible else ()),
        Column("earliest", True),
        Column("latest", True),
    )
    rows = [partition.to_row(with_eligible=with_eligible) for partition in topic.partitions]
    print_table(columns, rows, indent=2)
