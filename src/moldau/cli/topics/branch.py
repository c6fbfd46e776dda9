"""`moldau topics branch`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, parse_settings

if TYPE_CHECKING:
    from moldau.client.admin import AsyncAdmin


def branch(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A topic that is there.", show_default=False)
    ],
    target: Annotated[
        str, typer.Argument(metavar="NEW", help="The topic to be made.", show_default=False)
    ],
    config: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="A setting in which it differs from the source; repeat for more.",
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Make a topic with all that is in another one, without copying it.

    Closed segments are linked, so that both topics share them until one deletes or compacts them;
    what is written from then on is each one's own. For replaying real data in a test. Both topics
    serve meanwhile. It is for clusters of Moldau.

    \b
    For example:
    moldau topics branch orders orders-trial --config retention.ms=-1
    """
    from moldau.cli.output import print_document
    from moldau.cli.session import with_admin

    settings = parse_settings(config or (), "--config")
    before, starts, ends = with_admin(
        bootstrap, lambda admin: _branch(admin, source, target, settings)
    )
    behind = {number: end for number, end in before.items() if ends[number] < end}
    if as_json:
        partitions = [
            {"partition": number, "start_offset": starts[number], "end_offset": ends[number]}
            for number in sorted(ends)
        ]
        print_document({"topic": target, "branch_of": source, "partitions": partitions})
    else:
        count = "1 partition" if len(ends) == 1 else f"{len(ends)} partitions"
        offsets = sum(ends[number] - starts[number] for number in ends)
        typer.echo(f"{target} has {count} and {offsets:,} offsets of {source}")
    for number, end in sorted(behind.items()):
        typer.echo(
            f"partition {number} ends at {ends[number]}, and {source} ended at {end} when it was "
            f"asked for: a leader was lost meanwhile. Delete {target} and branch again",
            err=True,
        )
    if behind:
        raise typer.Exit(1)


async def _branch(
    admin: AsyncAdmin, source: str, target: str, settings: Mapping[str, str]
) -> tuple[dict[int, int], dict[int, int], dict[int, int]]:
    """Where the source ended before, and where the branch starts and ends, by partition."""
    from moldau.client.admin_values import NewTopic, OffsetSpec
    from moldau.errors import InvalidConfigError, KafkaError, UnknownTopicError
    from moldau.model.topic_names import BRANCH_OF

    found = await admin.describe_topics([source])
    topic = found[source]
    if isinstance(topic, KafkaError):
        raise topic
    numbers = [row.index for row in topic.partitions]
    if not numbers:
        raise UnknownTopicError(f"there is no topic {source!r}")
    before = await _offsets(admin, source, numbers, OffsetSpec.LATEST)
    new = NewTopic(name=target, configs={**settings, BRANCH_OF: source})
    answer = (await admin.create_topics([new]))[target]
    if isinstance(answer, InvalidConfigError) and BRANCH_OF in str(answer):
        raise InvalidConfigError(
            "these brokers make no branches: that is for clusters of Moldau, and Kafka has none"
        )
    if isinstance(answer, KafkaError):
        raise answer
    starts = await _offsets(admin, target, numbers, OffsetSpec.EARLIEST)
    return before, starts, await _offsets(admin, target, numbers, OffsetSpec.LATEST)


async def _offsets(admin: AsyncAdmin, topic: str, numbers: list[int], spec: int) -> dict[int, int]:
    from moldau.errors import KafkaError
    from moldau.model import TopicPartition

    wanted = {TopicPartition(topic, number): int(spec) for number in numbers}
    found = {}
    for key, listed in (await admin.list_offsets(wanted, read_committed=True)).items():
        if isinstance(listed, KafkaError):
            raise listed
        found[key.partition] = listed.offset
    return found
