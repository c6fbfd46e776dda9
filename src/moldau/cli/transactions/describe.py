"""`moldau transactions describe`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap

if TYPE_CHECKING:
    from moldau.client.transaction_values import TransactionDescription


def describe(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="TRANSACTIONAL-ID...", help="The transactional ids.", show_default=False
        ),
    ],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show what the coordinators know of transactional ids, and what is open of them."""
    from moldau.cli.output import print_document
    from moldau.cli.session import end_with, with_admin
    from moldau.errors import KafkaError

    answers = with_admin(bootstrap, lambda admin: admin.describe_transactions(names))
    found = [one for one in answers.values() if not isinstance(one, KafkaError)]
    if as_json:
        print_document([_document(one) for one in found])
    else:
        for number, one in enumerate(found):
            if number:
                typer.echo()
            _print(one)
    end_with(one for one in answers.values() if isinstance(one, KafkaError))


def _document(one: TransactionDescription) -> dict[str, object]:
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


def _print(one: TransactionDescription) -> None:
    from datetime import UTC, datetime

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
