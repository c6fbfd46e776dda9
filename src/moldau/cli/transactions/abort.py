"""`moldau transactions abort`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap

if TYPE_CHECKING:
    from moldau.client.admin import AsyncAdmin
    from moldau.client.transaction_values import ActiveProducer
    from moldau.model import TopicPartition


def abort(
    topic: Annotated[str, typer.Option(metavar="NAME", help="The topic.", show_default=False)],
    partition: Annotated[int, typer.Option(metavar="N", help="The partition.", show_default=False)],
    start_offset: Annotated[
        int,
        typer.Option(
            metavar="OFFSET",
            help="Where the transaction begins, as find-hanging shows it.",
            show_default=False,
        ),
    ],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Abort a hanging transaction in one partition.

    For what `moldau transactions find-hanging` has found. What it wrote stays invisible to readers
    of committed records, and they go on. A transaction that its coordinator will end must not be
    aborted in this way: it would be torn.
    """
    from moldau.cli.output import print_document
    from moldau.cli.session import with_admin
    from moldau.model import TopicPartition

    key = TopicPartition(topic, partition)
    aborted = with_admin(bootstrap, lambda admin: _abort(admin, key, start_offset))
    if as_json:
        print_document(
            {
                "topic": topic,
                "partition": partition,
                "start_offset": start_offset,
                "producer_id": aborted.producer_id,
                "producer_epoch": aborted.producer_epoch,
            }
        )
    else:
        typer.echo(f"aborted the transaction of producer {aborted.producer_id} in {key}")


async def _abort(admin: AsyncAdmin, key: TopicPartition, start_offset: int) -> ActiveProducer:
    from moldau.errors import ConfigurationError, KafkaError

    producers = (await admin.describe_producers([key]))[key]
    if isinstance(producers, KafkaError):
        raise producers
    for one in producers:
        if one.transaction_start_offset == start_offset:
            await admin.abort_transaction(
                key,
                producer_id=one.producer_id,
                producer_epoch=one.producer_epoch,
                coordinator_epoch=0 if one.coordinator_epoch is None else one.coordinator_epoch,
            )
            return one
    raise ConfigurationError(
        f"no transaction is open in {key} that begins at offset {start_offset}; "
        "`moldau transactions find-hanging` shows which hang"
    )
