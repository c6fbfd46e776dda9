"""`moldau transactions find-hanging`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap

if TYPE_CHECKING:
    from moldau.client.admin import AsyncAdmin
    from moldau.client.transaction_values import HangingTransaction
    from moldau.model import TopicPartition


def find_hanging(
    topic: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this topic.", show_default="all")
    ] = None,
    partition: Annotated[
        int | None, typer.Option(metavar="N", help="Only this partition.", show_default="all")
    ] = None,
    older_than: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="What was written to later is left alone: longer than any transaction may take.",
        ),
    ] = "15m",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Find transactions that are open in a partition and that no coordinator will end.

    Readers of committed records wait for them for ever; `moldau transactions abort` ends one.
    """
    from moldau.cli.durations import parse_duration_ms
    from moldau.cli.output import Column, note, print_document, print_table
    from moldau.cli.session import with_admin

    if partition is not None and topic is None:
        raise typer.BadParameter("--partition needs --topic")
    older_than_ms = parse_duration_ms(older_than)
    found = with_admin(bootstrap, lambda admin: _find(admin, topic, partition, older_than_ms))
    if as_json:
        print_document([_document(one) for one in found])
    elif found:
        columns = (
            Column("topic"),
            Column("partition", True),
            Column("start offset", True),
            Column("producer id", True),
            Column("epoch", True),
            Column("coordinator epoch", True),
            Column("transactional id"),
        )
        print_table(columns, [tuple(map(str, _document(one).values())) for one in found])
        note("end one: moldau transactions abort --topic T --partition N --start-offset O")
    else:
        note("no transaction hangs")


def _document(one: HangingTransaction) -> dict[str, object]:
    return {
        "topic": one.partition.topic,
        "partition": one.partition.partition,
        "start_offset": one.producer.transaction_start_offset,
        "producer_id": one.producer.producer_id,
        "producer_epoch": one.producer.producer_epoch,
        "coordinator_epoch": one.producer.coordinator_epoch,
        "transactional_id": one.transactional_id,
    }


async def _find(
    admin: AsyncAdmin, topic: str | None, partition: int | None, older_than_ms: int
) -> Sequence[HangingTransaction]:
    from moldau.clock import MachineClock

    partitions = await _partitions(admin, topic, partition)
    return await admin.find_hanging_transactions(
        partitions, older_than_ms=older_than_ms, now_ms=MachineClock().now_ms()
    )


async def _partitions(
    admin: AsyncAdmin, topic: str | None, partition: int | None
) -> list[TopicPartition]:
    from moldau.errors import KafkaError
    from moldau.model import TopicPartition

    if topic is not None and partition is not None:
        return [TopicPartition(topic, partition)]
    names = [topic] if topic is not None else list(await admin.list_topics())
    found = []
    for name, described in (await admin.describe_topics(names)).items():
        if isinstance(described, KafkaError):
            raise described
        found += [TopicPartition(name, one.index) for one in described.partitions]
    return found
