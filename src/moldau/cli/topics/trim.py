"""`moldau topics trim`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Yes

if TYPE_CHECKING:
    from moldau.client.rules.offset_targets import PlannedReset, Start
    from moldau.errors import KafkaError
    from moldau.model import TopicPartition


def trim(
    topics: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPIC[:P,P]...",
            help="Topics, or some of their partitions only.",
            show_default=False,
        ),
    ],
    before_offset: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="What is before this offset goes.", show_default=False
        ),
    ] = None,
    before_time: Annotated[
        str | None,
        typer.Option(
            metavar="MS|ISO",
            help="What is before the first record of this time goes.",
            show_default=False,
        ),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="What is so old goes: 90s, 12h, 7d.", show_default=False
        ),
    ] = None,
    keep_last: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="All but the last N of each partition.", show_default=False
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All records go; the topics stay.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would go; change nothing.")
    ] = False,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Delete the oldest records of topics (DeleteRecords), on all replicas, for good.

    Shows what goes, and asks first.

    \b
    For example:
    moldau topics trim clicks --older-than 7d --dry-run
    moldau topics trim clicks:0,3 --before-offset 1200 --yes
    """
    from moldau.cli.groups.reset_target import parse_topic
    from moldau.cli.output import ask, can_ask, note
    from moldau.cli.session import end_with, with_admin
    from moldau.client.group_reset import plan_trim
    from moldau.console.rules.wording import plural
    from moldau.errors import KafkaError

    target = _choose_target(before_offset, before_time, older_than, keep_last, everything)
    choices = [parse_topic(text) for text in topics]
    if not (dry_run or yes) and (as_json or not can_ask()):
        raise typer.BadParameter(
            "nobody can be asked here: give --yes, or --dry-run to see what would go",
            param_hint="--yes",
        )
    planned = with_admin(bootstrap, lambda admin: plan_trim(admin, choices, target))
    going = [one for one in planned if _count(one)]
    answers: Mapping[TopicPartition, int | KafkaError] = {}
    if not as_json:
        _print(planned)
        if not going:
            note("no record is before that; nothing is deleted")
        elif not dry_run and not yes:
            ask("Delete them for good?")
    if going and not dry_run:
        before = {one.partition: one.after for one in going}
        answers = with_admin(bootstrap, lambda admin: admin.delete_records(before))
    if as_json:
        _print_document(planned, answers, dry_run=dry_run)
    elif answers:
        gone = [one for one in going if not isinstance(answers[one.partition], KafkaError)]
        offsets, of = plural(sum(map(_count, gone)), "offset"), plural(len(gone), "partition")
        typer.echo(f"deleted {offsets} of {of}")
    end_with(error for error in answers.values() if isinstance(error, KafkaError))


def _choose_target(
    before_offset: int | None,
    before_time: str | None,
    older_than: str | None,
    keep_last: int | None,
    everything: bool,
) -> Start:
    from moldau.cli.consume_start import parse_timestamp
    from moldau.cli.durations import parse_duration_ms
    from moldau.client.rules.offset_targets import AtOffset, AtTime, BeforeEnd

    targets: list[Start] = []
    if before_offset is not None:
        targets.append(AtOffset(before_offset))
    if before_time is not None:
        targets.append(AtTime(parse_timestamp(before_time)))
    if older_than is not None:
        now_ms = time.time_ns() // 1_000_000
        targets.append(AtTime(max(0, now_ms - parse_duration_ms(older_than))))
    if keep_last is not None:
        targets.append(BeforeEnd(keep_last))
    if everything:
        targets.append(BeforeEnd(0))
    if len(targets) != 1:
        raise typer.BadParameter(
            "choose one of --before-offset, --before-time, --older-than, --keep-last and --all",
            param_hint="--before-offset",
        )
    return targets[0]


def _count(row: PlannedReset) -> int:
    """How many offsets go. Records are fewer where transactions ended or the log was compacted."""
    return row.after - (row.before or 0)


def _print(planned: Sequence[PlannedReset]) -> None:
    from moldau.cli.output import Column, print_table

    titles = ("partition", "begins at", "will begin at", "goes")
    rows = [
        (
            row.partition.topic,
            str(row.partition.partition),
            str(row.before),
            str(row.after),
            f"{_count(row):,}",
        )
        for row in planned
    ]
    print_table([Column("topic"), *(Column(title, True) for title in titles)], rows)


def _print_document(
    planned: Sequence[PlannedReset],
    answers: Mapping[TopicPartition, int | KafkaError],
    *,
    dry_run: bool,
) -> None:
    from moldau.cli.output import print_document

    def begins_at(row: PlannedReset) -> int | None:
        """Where the broker says that it begins now; as planned where nothing was asked of it."""
        answer = answers.get(row.partition)
        if answer is None:
            return row.after
        return answer if isinstance(answer, int) else None

    print_document(
        {
            "dry_run": dry_run,
            "partitions": [
                {
                    "topic": row.partition.topic,
                    "partition": row.partition.partition,
                    "before": row.before,
                    "after": begins_at(row),
                }
                for row in planned
            ],
        }
    )
