"""`moldau topics create`."""

from __future__ import annotations

from typing import Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, parse_settings
from moldau.model.uuid_text import format_uuid


def create(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The topic's name.", show_default=False)
    ],
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="How many partitions.", show_default="the broker's own"
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="How many copies of each.", show_default="the broker's own"
        ),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A setting of the topic; repeat for more."),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed when the topic is there already.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Create a topic."""
    from moldau.cli.output import print_document
    from moldau.cli.session import with_admin
    from moldau.client.admin_values import BROKER_DEFAULT, NewTopic
    from moldau.errors import KafkaError, TopicExistsError

    topic = NewTopic(
        name=name,
        partitions=partitions or BROKER_DEFAULT,
        replication_factor=replication_factor or BROKER_DEFAULT,
        configs=parse_settings(config or (), "--config"),
    )
    answer = with_admin(bootstrap, lambda admin: admin.create_topics([topic]))[name]
    existed = isinstance(answer, TopicExistsError) and if_not_exists
    if isinstance(answer, KafkaError) and not existed:
        raise answer
    if as_json:
        document: dict[str, object] = {"topic": name, "created": not existed}
        if not isinstance(answer, KafkaError):
            document["topic_id"] = format_uuid(answer.topic_id) if answer.topic_id else None
            document["partitions"] = answer.partitions
            document["replication_factor"] = answer.replication_factor
        print_document(document)
    elif isinstance(answer, KafkaError):
        typer.echo(f"topic {name} exists already")
    else:
        typer.echo(f"created topic {name}{_size(answer.partitions, answer.replication_factor)}")


def _size(partitions: int, replication_factor: int) -> str:
    if partitions < 1:  # an old broker does not say
        return ""
    count = "1 partition" if partitions == 1 else f"{partitions} partitions"
    return f" with {count}, replication factor {replication_factor}"
