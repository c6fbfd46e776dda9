"""`moldau transactions list`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap


def list_transactions(
    state: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STATE",
            help="Only those in this state (Ongoing, Empty, ...); repeat for more.",
            show_default="all",
        ),
    ] = None,
    open_for: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Only transactions that have been open for longer, like 90s or 15m.",
            show_default=False,
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(
            metavar="REGEX", help="Only transactional ids of this pattern.", show_default=False
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List transactional ids, their states and producers."""
    from moldau.cli.durations import parse_duration_ms
    from moldau.cli.output import Column, note, print_document, print_table
    from moldau.cli.session import with_admin

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
        columns = (
            Column("transactional id"),
            Column("state"),
            Column("producer id", True),
            Column("coordinator", True),
        )
        rows = [
            (one.transactional_id, one.state, str(one.producer_id), str(one.coordinator_id))
            for one in listed
        ]
        print_table(columns, rows)
    else:
        note("there are no such transactional ids; a producer with transactional.id makes one")


def _read_states(texts: Sequence[str]) -> Sequence[str]:
    """The states in the protocol's own spelling."""
    from moldau.transactions.rules.transaction_states import TransactionState

    known = {one.label.lower(): one.label for one in TransactionState}
    for text in texts:
        if text.lower() not in known:
            labels = ", ".join(known.values())
            raise typer.BadParameter(f"{text!r} is none of {labels}", param_hint="--state")
    return [known[text.lower()] for text in texts]
