"""`moldau transactions`: lists, describes and aborts transactions, and finds those that hang."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, argument, option
from moldau.cli.output import note, print_document, print_table
from moldau.cli.session import end_with, with_admin
from moldau.client.admin.client import AsyncAdmin
from moldau.client.admin.values import (
    ONGOING,
    ActiveProducer,
    HangingTransaction,
    TransactionDescription,
)
from moldau.client.producer.rules.transaction_manager import PreparedTransaction
from moldau.clock import MachineClock
from moldau.coordinators.transactions.rules.transaction_metadata import TransactionState
from moldau.errors import ConfigurationError, KafkaError
from moldau.model import TopicPartition
from moldau.ops.formatting import parse_duration_ms


def list_transactions(
    state: Annotated[
        list[str] | None,
        option(
            "STATE",
            "Only those in this state (Ongoing, Empty, ...); repeat for more.",
            default="all",
        ),
    ] = None,
    open_for: Annotated[
        str | None,
        option("DURATION", "Only transactions that have been open for longer, like 90s or 15m."),
    ] = None,
    pattern: Annotated[
        str | None, option("REGEX", "Only transactional ids of this pattern.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List transactional ids, their states and producers."""
    states = _read_states(state or ())
    min_duration_ms = None if open_for is None else parse_duration_ms(open_for)
    found = with_admin(
        bootstrap,
        lambda admin: admin.list_transactions(
            states=states, min_duration_ms=min_duration_ms, pattern=pattern
        ),
    )
    listed = [found[name] for name in sorted(found)]
    if as_json:
        print_document(
            [
                {
                    "transactional_id": one.transactional_id,
                    "state": one.state,
                    "producer_id": one.producer_id,
                    "coordinator": one.coordinator_id,
                }
                for one in listed
            ]
        )
    elif listed:
        columns = ("transactional id", "state", ">producer id", ">coordinator")
        rows = [
            (one.transactional_id, one.state, str(one.producer_id), str(one.coordinator_id))
            for one in listed
        ]
        print_table(columns, rows)
    else:
        note("there are no such transactional ids; a producer with transactional.id makes one")


def _read_states(texts: Sequence[str]) -> Sequence[str]:
    """The states in the protocol's own spelling."""
    known = {one.label.lower(): one.label for one in TransactionState}
    for text in texts:
        if text.lower() not in known:
            labels = ", ".join(known.values())
            raise typer.BadParameter(f"{text!r} is none of {labels}", param_hint="--state")
    return [known[text.lower()] for text in texts]


def describe(
    names: Annotated[list[str], argument("TRANSACTIONAL-ID...", "The transactional ids.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show what the coordinators know of transactional ids, and what is open of them."""
    answers = with_admin(bootstrap, lambda admin: admin.describe_transactions(names))
    found = [one for one in answers.values() if not isinstance(one, KafkaError)]
    if as_json:
        print_document([_to_document(one) for one in found])
    else:
        for number, one in enumerate(found):
            if number:
                typer.echo()
            _print_transaction(one)
    end_with(one for one in answers.values() if isinstance(one, KafkaError))


def _to_document(one: TransactionDescription) -> dict[str, object]:
    return {
        "transactional_id": one.transactional_id,
        "state": one.state,
        "coordinator": one.coordinator_id,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "timeout_ms": one.timeout_ms,
        "started_ms": one.started_ms,
        "partitions": [
            {"topic": key.topic, "partition": key.partition} for key in sorted(one.partitions)
        ],
    }


def _print_transaction(one: TransactionDescription) -> None:
    typer.secho(one.transactional_id, bold=True)
    rows = [
        ("state", one.state),
        ("coordinator", f"broker {one.coordinator_id}"),
        ("producer", f"{one.producer_id}, epoch {one.producer_epoch}"),
        ("time-out", f"{one.timeout_ms} ms"),
    ]
    if one.partitions and one.started_ms is not None:
        started = datetime.fromtimestamp(one.started_ms / 1000, UTC)
        rows.append(("open since", f"{started:%Y-%m-%d %H:%M:%S} UTC"))
        rows.append(("partitions", ", ".join(map(str, sorted(one.partitions)))))
    for title, text in rows:
        typer.echo(f"  {title:<13}{text}")


def find_hanging(
    topic: Annotated[str | None, option("NAME", "Only this topic.", default="all")] = None,
    partition: Annotated[int | None, option("N", "Only this partition.", default="all")] = None,
    older_than: Annotated[
        str,
        option(
            "DURATION",
            "What was written to later is left alone: longer than any transaction may take.",
        ),
    ] = "15m",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Find transactions that are open in a partition and that no coordinator will end.

    Readers of committed records wait for them for ever; `moldau transactions abort` ends one.
    """
    if partition is not None and topic is None:
        raise typer.BadParameter("--partition needs --topic")
    older_than_ms = parse_duration_ms(older_than)
    found = with_admin(bootstrap, lambda admin: _find(admin, topic, partition, older_than_ms))
    if as_json:
        print_document([_to_hanging_document(one) for one in found])
    elif found:
        columns = (
            "topic",
            ">partition",
            ">start offset",
            ">producer id",
            ">epoch",
            ">coordinator epoch",
            "transactional id",
        )
        print_table(columns, [tuple(map(str, _to_hanging_document(one).values())) for one in found])
        note("end one: moldau transactions abort --topic T --partition N --start-offset O")
    else:
        note("no transaction hangs")


def _to_hanging_document(one: HangingTransaction) -> dict[str, object]:
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
    partitions = await _partitions(admin, topic, partition)
    return await admin.find_hanging_transactions(
        partitions, older_than_ms=older_than_ms, now_ms=MachineClock().now_ms()
    )


async def _partitions(
    admin: AsyncAdmin, topic: str | None, partition: int | None
) -> list[TopicPartition]:
    if topic is not None and partition is not None:
        return [TopicPartition(topic, partition)]
    names = [topic] if topic is not None else list(await admin.list_topics())
    found = []
    for name, described in (await admin.describe_topics(names)).items():
        if isinstance(described, KafkaError):
            raise described
        found += [TopicPartition(name, one.index) for one in described.partitions]
    return found


def abort(
    transactional_id: Annotated[
        str | None,
        argument(
            "[TRANSACTIONAL-ID]", "Whose open transaction to abort, in all of its partitions."
        ),
    ] = None,
    topic: Annotated[str | None, option("NAME", "The topic.")] = None,
    partition: Annotated[int | None, option("N", "The partition.")] = None,
    start_offset: Annotated[
        int | None, option("OFFSET", "Where the transaction begins, as find-hanging shows it.")
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
