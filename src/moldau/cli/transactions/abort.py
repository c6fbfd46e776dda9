"""`moldau transactions abort`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap

if TYPE_CHECKING:
    from moldau.client.admin import AsyncAdmin
    from moldau.client.transaction_values import ActiveProducer, TransactionDescription
    from moldau.model import TopicPartition


def abort(
    transactional_id: Annotated[
        str | None,
        typer.Argument(
            metavar="[TRANSACTIONAL-ID]",
            help="Whose open transaction to abort, in all of its partitions.",
            show_default=False,
        ),
    ] = None,
    topic: Annotated[
        str | None, typer.Option(metavar="NAME", help="The topic.", show_default=False)
    ] = None,
    partition: Annotated[
        int | None, typer.Option(metavar="N", help="The partition.", show_default=False)
    ] = None,
    start_offset: Annotated[
        int | None,
        typer.Option(
            metavar="OFFSET",
            help="Where the transaction begins, as find-hanging shows it.",
            show_default=False,
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Abort an open transaction by its id, or a hanging one in one partition.

    With an id its coordinator aborts it: one of two phases, say, that nobody will complete. Its
    producer, if there still is one, cannot go on with it. What hangs has no coordinator that would
    end it: it is aborted by topic, partition and start offset, as `moldau transactions
    find-hanging` has found it. What was written stays invisible to readers of committed records,
    and they go on. A transaction that its coordinator will end must not be aborted in this second
    way: it would be torn.
    """
    place = (topic, partition, start_offset)
    if transactional_id is not None and place == (None, None, None):
        _abort_by_id(transactional_id, bootstrap, as_json)
    elif (
        transactional_id is None
        and topic is not None
        and partition is not None
        and start_offset is not None
    ):
        _abort_in_partition(topic, partition, start_offset, bootstrap, as_json)
    else:
        raise typer.BadParameter(
            "give a transactional id, or all of --topic, --partition and --start-offset"
        )


def _abort_by_id(transactional_id: str, bootstrap: str, as_json: bool) -> None:
    from moldau.cli.output import print_document
    from moldau.cli.session import with_admin

    aborted = with_admin(bootstrap, lambda admin: _end(admin, transactional_id))
    if as_json:
        print_document(
            {
                "transactional_id": transactional_id,
                "producer_id": aborted.producer_id,
                "producer_epoch": aborted.producer_epoch,
                "partitions": sorted(map(str, aborted.partitions)),
            }
        )
    else:
        typer.echo(
            f"aborted the transaction of {transactional_id} in {len(aborted.partitions)} partitions"
        )


async def _end(admin: AsyncAdmin, transactional_id: str) -> TransactionDescription:
    from moldau.client.transaction_values import ONGOING, PreparedTransaction
    from moldau.errors import ConfigurationError, KafkaError

    found = (await admin.describe_transactions([transactional_id]))[transactional_id]
    if isinstance(found, KafkaError):
        raise found
    if found.state != ONGOING:
        raise ConfigurationError(f"{transactional_id} has no open transaction: it is {found.state}")
    prepared = PreparedTransaction(
        transactional_id=transactional_id,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
    )
    failure = (await admin.complete_transactions([prepared], commit=False))[transactional_id]
    if failure is not None:
        raise failure
    return found


def _abort_in_partition(
    topic: str, partition: int, start_offset: int, bootstrap: str, as_json: bool
) -> None:
    from moldau.cli.output import print_document
    from moldau.cli.session import with_admin
    from moldau.model import TopicPartition

    key = TopicPartition(topic, partition)
    aborted = with_admin(bootstrap, lambda admin: _mark(admin, key, start_offset))
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


async def _mark(admin: AsyncAdmin, key: TopicPartition, start_offset: int) -> ActiveProducer:
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
