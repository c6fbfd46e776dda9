"""`moldau groups reset-offsets`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap

if TYPE_CHECKING:
    from moldau.cli.groups.reset_run import ResetOutcome
    from moldau.client.rules.offset_targets import PlannedReset


def reset_offsets(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group.", show_default=False)],
    topic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC[:P,P]",
            help="This topic, or these of its partitions; repeat for more.",
            show_default=False,
        ),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All partitions that the group has read.")
    ] = False,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="Go to the first record that is there.")
    ] = False,
    to_latest: Annotated[
        bool, typer.Option("--to-latest", help="Go to the end: read only what is new.")
    ] = False,
    to_offset: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Go to this offset.", show_default=False),
    ] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            metavar="MS|ISO", help="Go to the first record of this time.", show_default=False
        ),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Go to the first record of so long ago: 90s, 1h30m, PT1H.",
            show_default=False,
        ),
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option(metavar="N", help="Go forward by N, or back if negative.", show_default=False),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would happen; change nothing.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Set where a group goes on reading. It must not have members while this is done.

    A group that is not there yet is made by this, unless it is to be a share group. A share group
    begins the partitions anew: what was delivered of them, and how often, is forgotten.
    """
    from moldau.cli.groups.reset_run import Reset, perform_reset
    from moldau.cli.groups.reset_target import TargetOptions, choose_target, choose_topics
    from moldau.cli.session import end_with, with_admin

    options = TargetOptions(
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_offset=to_offset,
        to_datetime=to_datetime,
        by_duration=by_duration,
        shift_by=shift_by,
    )
    reset = Reset(
        group_id=group,
        choices=choose_topics(topic or (), all_topics),
        target=choose_target(options, time.time_ns() // 1_000_000),
        is_dry_run=dry_run,
    )
    outcome = with_admin(bootstrap, lambda admin: perform_reset(admin, reset))
    if as_json:
        _print_document(outcome)
    else:
        _print(outcome)
    end_with(outcome.errors.values())


def _print_document(outcome: ResetOutcome) -> None:
    from moldau.cli.output import print_document

    print_document(
        {
            "group": outcome.reset.group_id,
            "dry_run": outcome.reset.is_dry_run,
            "offsets": [
                {
                    "topic": row.partition.topic,
                    "partition": row.partition.partition,
                    "before": row.before,
                    "after": row.after,
                }
                for row in outcome.done
            ],
        }
    )


def _print(outcome: ResetOutcome) -> None:
    from moldau.cli.output import Column, note, print_table

    columns = (
        Column("topic"),
        Column("partition", True),
        Column("before", True),
        Column("after", True),
    )
    if outcome.done:
        print_table(columns, [_to_row(row) for row in outcome.done])
    for row in outcome.done:
        if row.after != row.wanted:
            note(f"{row.partition} does not reach offset {row.wanted}; {row.after} is nearest")
    for message in outcome.remarks():
        note(message)


def _to_row(row: PlannedReset) -> tuple[str, ...]:
    before = "-" if row.before is None else str(row.before)
    return row.partition.topic, str(row.partition.partition), before, str(row.after)
