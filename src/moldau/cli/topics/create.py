"""`moldau topics create`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, parse_settings
from moldau.model.uuid_text import format_uuid

if TYPE_CHECKING:
    from moldau.client.admin_values import CreatedTopic
    from moldau.errors import KafkaError


def create(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="The topics' names.", show_default=False)
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
        typer.Option(metavar="KEY=VALUE", help="A setting of the topics; repeat for more."),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed when a topic is there already.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Create topics, all alike.

    \b
    For example:
    moldau topics create clicks orders --partitions 6 --config segment.ms=60000
    """
    from moldau.cli.output import print_document
    from moldau.cli.session import end_with, with_admin
    from moldau.client.admin_values import BROKER_DEFAULT, NewTopic
    from moldau.errors import KafkaError, TopicExistsError

    topics = [
        NewTopic(
            name=name,
            partitions=partitions or BROKER_DEFAULT,
            replication_factor=replication_factor or BROKER_DEFAULT,
            configs=parse_settings(config or (), "--config"),
        )
        for name in dict.fromkeys(names)
    ]
    answers = with_admin(bootstrap, lambda admin: admin.create_topics(topics))
    refused = [
        answer
        for answer in answers.values()
        if isinstance(answer, KafkaError)
        and not (if_not_exists and isinstance(answer, TopicExistsError))
    ]
    done = {
        topic.name: answers[topic.name] for topic in topics if answers[topic.name] not in refused
    }
    if as_json:
        documents = _to_documents(done)
        if done:  # one topic is one object
            print_document(documents if len(topics) > 1 else documents[0])
    else:
        for name, answer in done.items():
            if isinstance(answer, KafkaError):
                typer.echo(f"topic {name} exists already")
            else:
                size = _size(answer.partitions, answer.replication_factor)
                typer.echo(f"created topic {name}{size}")
    end_with(refused)


def _to_documents(done: Mapping[str, CreatedTopic | KafkaError]) -> list[dict[str, object]]:
    from moldau.errors import KafkaError

    documents: list[dict[str, object]] = []
    for name, answer in done.items():
        document: dict[str, object] = {
            "topic": name,
            "created": not isinstance(answer, KafkaError),
        }
        if not isinstance(answer, KafkaError):
            document["topic_id"] = format_uuid(answer.topic_id) if answer.topic_id else None
            document["partitions"] = answer.partitions
            document["replication_factor"] = answer.replication_factor
        documents.append(document)
    return documents


def _size(partitions: int, replication_factor: int) -> str:
    if partitions < 1:  # an old broker does not say
        return ""
    count = "1 partition" if partitions == 1 else f"{partitions} partitions"
    return f" with {count}, replication factor {replication_factor}"
