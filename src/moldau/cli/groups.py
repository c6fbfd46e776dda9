"""`moldau groups`: lists, describes, resets and deletes consumer groups."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from moldau.cli.offset_target import TargetOptions, choose_target, choose_topics
from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Yes, argument, flag, option
from moldau.cli.output import confirm, note, print_document, print_table
from moldau.cli.session import end_with, report_deleted, with_admin
from moldau.client.admin.client import AsyncAdmin
from moldau.client.admin.offsets import plan_group_reset
from moldau.client.admin.values import GroupDescription, GroupMember, GroupState
from moldau.client.rules.offsets import PlannedReset, Target, TopicChoice
from moldau.errors import ConfigurationError, GroupNotEmptyError, GroupNotFoundError, KafkaError
from moldau.model import TopicPartition
from moldau.ops.formatting import UNKNOWN, format_duration, plural
from moldau.ops.group_view import describe_groups
from moldau.ops.rules.group_lag import GroupPartition, GroupView

_TYPES = ("classic", "consumer", "share", "streams")


def list_groups(
    state: Annotated[
        list[str] | None,
        option(
            "STATE",
            "Only groups in this state (Stable, Empty, ...); repeat for more.",
            default="all",
        ),
    ] = None,
    kind: Annotated[
        list[str] | None,
        option(
            "TYPE",
            "Only groups of this type (classic, consumer, share, streams); repeat for more.",
            "--type",
            default="all",
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List groups and their states."""
    states, types = _read_states(state or ()), _read_types(kind or ())
    found = with_admin(bootstrap, lambda admin: admin.list_groups(states=states, types=types))
    groups = [found[name] for name in sorted(found)]
    if as_json:
        print_document(
            [
                {
                    "group": group.group_id,
                    "state": group.state.value,
                    "type": group.type,
                    "protocol_type": group.protocol_type,
                }
                for group in groups
            ]
        )
    elif groups:
        columns = "group", "state", "type", "protocol"
        rows = [
            (group.group_id, group.state.value, group.type or "-", group.protocol_type or "-")
            for group in groups
        ]
        print_table(columns, rows)
    elif states or types:
        note("there are no such groups; without --state and --type all are shown")
    else:
        note("there are no groups; a consumer makes one when it commits or subscribes")


def _read_states(texts: Sequence[str]) -> Sequence[str]:
    """The states in the protocol's own spelling."""
    states = [GroupState(text) for text in texts]
    if GroupState.UNKNOWN in states:
        wrong = texts[states.index(GroupState.UNKNOWN)]
        known = ", ".join(one.value for one in GroupState if one is not GroupState.UNKNOWN)
        raise typer.BadParameter(f"{wrong!r} is none of {known}", param_hint="--state")
    return [one.value for one in states]


def _read_types(texts: Sequence[str]) -> Sequence[str]:
    """The types in the protocol's own spelling."""
    types = tuple(text.lower() for text in texts)
    for text, one in zip(texts, types, strict=True):
        if one not in _TYPES:
            known = ", ".join(_TYPES)
            raise typer.BadParameter(f"{text!r} is none of {known}", param_hint="--type")
    return types


def describe(
    names: Annotated[list[str] | None, argument("GROUP...", "The groups.", default="all")] = None,
    members: Annotated[bool, flag("--members", "Show members and what each reads.")] = False,
    offsets: Annotated[
        bool, flag("--offsets", "Show offsets and lag; the default without --members.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show the state of groups, how far they have read, and how far they are behind.

    Lag is counted in records, and in the age of the oldest record that is still to be read. Of a
    share group that is the oldest record that nobody has accepted or rejected: where it starts.
    """
    with_members = members or (as_json and not offsets)
    with_offsets = offsets or not members
    answers = with_admin(
        bootstrap, lambda admin: describe_groups(admin, names or None, with_offsets=with_offsets)
    )
    groups = [one for one in answers if not isinstance(one, KafkaError)]
    if as_json:
        print_document([to_document(group, with_members=with_members) for group in groups])
    else:
        for number, group in enumerate(groups):
            if number:
                typer.echo()
            _print_group(group, with_members=with_members)
        if not answers:
            note("there are no groups; a consumer makes one when it commits or subscribes")
    end_with(one for one in answers if isinstance(one, KafkaError))


def _print_group(group: GroupView, *, with_members: bool) -> None:
    typer.secho(group.name, bold=True)
    for title, text in summarize(group):
        typer.echo(f"  {title:<13}{text}")
    if with_members and group.members:
        _print_members(group)
    if group.partitions:
        _print_offsets(group)
    elif group.partitions is not None:
        typer.echo("  nothing has been committed or assigned")


def _print_members(group: GroupView) -> None:
    columns = ("~member", "instance", "client", "host", "reads")
    print_table(columns, [_member_row(one) for one in group.members], indent=2)


def _print_offsets(group: GroupView) -> None:
    if group.is_shared:
        titles = ("partition", "start", "end", "lag", "oldest", "takers")
        shared = ("topic", *(f">{title}" for title in titles))
        print_table(shared, [share_partition_row(row) for row in group.partitions or ()], indent=2)
        typer.echo(f"  {total_lag_text(group)}")
        return
    columns = ("topic", ">partition", ">committed", ">end", ">lag", ">behind", "~member", "host")
    print_table(columns, [partition_row(row) for row in group.partitions or ()], indent=2)
    typer.echo(f"  {total_lag_text(group)}")


def summarize(group: GroupView) -> Iterator[tuple[str, str]]:
    described = group.description
    count = str(len(described.members))
    if described.epoch is not None:
        yield "protocol", f"{described.type}, epoch {described.epoch}"
    yield "state", described.state.value
    yield "members", f"{count}, assigned by {described.protocol}" if described.protocol else count
    coordinator = described.coordinator
    yield "coordinator", f"broker {coordinator.id} at {coordinator.address}"


def total_lag_text(group: GroupView) -> str:
    late = f", at most {format_duration(group.lag_seconds)} behind" if group.lag_seconds else ""
    return f"total lag {plural(group.lag, 'record')}{late}"


def partition_row(row: GroupPartition) -> tuple[str, ...]:
    member, seconds = _member_of(row), row.lag_seconds
    return (
        row.partition.topic,
        str(row.partition.partition),
        *(UNKNOWN if one is None else str(one) for one in _numbers_of(row)),
        UNKNOWN if seconds is None else format_duration(seconds),
        UNKNOWN if member is None else member.member_id,
        UNKNOWN if member is None else member.host,
    )


def share_partition_row(row: GroupPartition) -> tuple[str, ...]:
    """Members of a share group take from a partition beside each other."""
    return (*partition_row(row)[:6], str(len(row.members)))


def _numbers_of(row: GroupPartition) -> tuple[int | None, ...]:
    return row.committed, row.log_end_offset, row.lag


def _member_of(row: GroupPartition) -> GroupMember | None:
    return row.members[-1] if row.members else None


def _member_row(member: GroupMember) -> tuple[str, ...]:
    return (
        member.member_id,
        member.instance_id or UNKNOWN,
        member.client_id,
        member.host,
        format_partitions(member.assignment) or UNKNOWN,
    )


def format_partitions(partitions: Iterable[TopicPartition]) -> str:
    """`clicks:0,1,2 orders:5`."""
    topics: defaultdict[str, list[str]] = defaultdict(list)
    for topic, index in sorted(partitions):
        topics[topic].append(str(index))
    return " ".join(f"{topic}:{','.join(indexes)}" for topic, indexes in topics.items())


def to_document(group: GroupView, *, with_members: bool) -> dict[str, object]:
    described = group.description
    address = described.coordinator.address
    document: dict[str, object] = {
        "group": described.group_id,
        "type": described.type,
        "state": described.state.value,
        "protocol_type": described.protocol_type,
        "protocol": described.protocol,
        "coordinator": {
            "id": described.coordinator.id,
            "host": address.host,
            "port": address.port,
        },
    }
    if described.epoch is not None:
        document["epoch"] = described.epoch
    if with_members:
        document["members"] = [_member_document(member) for member in described.members]
    if group.partitions is not None:
        shape = _share_partition_document if group.is_shared else _partition_document
        document["offsets"] = [_place(one.partition) | shape(one) for one in group.partitions]
        document["total_lag"] = group.lag
        document["max_lag_seconds"] = group.lag_seconds
    return document


def _member_document(member: GroupMember) -> dict[str, object]:
    document: dict[str, object] = {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "assignment": [_place(one) for one in member.assignment],
    }
    if member.epoch is not None:
        document["epoch"] = member.epoch
        document["target"] = [_place(one) for one in member.target]
    return document


def _place(partition: TopicPartition) -> dict[str, object]:
    return {"topic": partition.topic, "partition": partition.partition}


def _partition_document(row: GroupPartition) -> dict[str, object]:
    member = _member_of(row)
    return {
        "committed_offset": row.committed,
        "log_end_offset": row.log_end_offset,
        "lag": row.lag,
        "lag_seconds": row.lag_seconds,
        "member_id": None if member is None else member.member_id,
        "client_id": None if member is None else member.client_id,
        "host": None if member is None else member.host,
    }


def _share_partition_document(row: GroupPartition) -> dict[str, object]:
    return {
        "start_offset": row.committed,
        "log_end_offset": row.log_end_offset,
        "lag": row.lag,
        "oldest_unacknowledged_seconds": row.lag_seconds,
        "takers": len(row.members),
    }


def reset_offsets(
    group: Annotated[str, argument("GROUP", "The group.")],
    topic: Annotated[
        list[str] | None,
        option("TOPIC[:P,P]", "This topic, or these of its partitions; repeat for more."),
    ] = None,
    all_topics: Annotated[
        bool, flag("--all-topics", "All partitions that the group has read.")
    ] = False,
    to_earliest: Annotated[
        bool, flag("--to-earliest", "Go to the first record that is there.")
    ] = False,
    to_latest: Annotated[
        bool, flag("--to-latest", "Go to the end: read only what is new.")
    ] = False,
    to_offset: Annotated[int | None, option("N", "Go to this offset.", min=0)] = None,
    to_datetime: Annotated[
        str | None, option("MS|ISO", "Go to the first record of this time.")
    ] = None,
    by_duration: Annotated[
        str | None, option("DURATION", "Go to the first record of so long ago: 90s, 1h30m, PT1H.")
    ] = None,
    shift_by: Annotated[int | None, option("N", "Go forward by N, or back if negative.")] = None,
    dry_run: Annotated[bool, flag("--dry-run", "Show what would happen; change nothing.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Set where a group goes on reading. It must not have members while this is done.

    A group that is not there yet is made by this, unless it is to be a share group. A share group
    begins the partitions anew: what was delivered of them, and how often, is forgotten.
    """
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
        _print_reset_document(outcome)
    else:
        _print_reset(outcome)
    end_with(outcome.errors.values())


def _print_reset_document(outcome: ResetOutcome) -> None:
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


def _print_reset(outcome: ResetOutcome) -> None:
    columns = ("topic", ">partition", ">before", ">after")
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


def delete(
    names: Annotated[list[str], argument("GROUP...", "The groups.")],
    if_exists: Annotated[bool, flag("--if-exists", "Succeed when a group is not there.")] = False,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Forget groups and how far they have read. Refused while they have members.

    Asks first at a terminal.
    """
    question = f"Forget {', '.join(names)} and all committed offsets?"
    confirm(question, yes=yes, as_json=as_json)
    answers = with_admin(bootstrap, lambda admin: admin.delete_groups(names))
    forgiven = GroupNotFoundError if if_exists else None
    report_deleted(names, answers, forgiven=forgiven, as_json=as_json)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """What to do to a group. No choices: all partitions that it has read."""

    group_id: str
    choices: Sequence[TopicChoice] | None
    target: Target
    is_dry_run: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOutcome:
    """What was done, or would be. `errors` has the partitions that the broker refused."""

    reset: Reset
    planned: Sequence[PlannedReset]
    errors: Mapping[TopicPartition, KafkaError]
    member_count: int

    @property
    def done(self) -> Sequence[PlannedReset]:
        return [row for row in self.planned if row.partition not in self.errors]

    def remarks(self) -> Iterable[str]:
        if self.reset.is_dry_run:
            yield "nothing was changed; without --dry-run it is"
            if self.member_count:
                now = _with_members(self.reset.group_id, self.member_count)
                yield f"{now} now; it must have none when this is done"


async def perform_reset(admin: AsyncAdmin, reset: Reset) -> ResetOutcome:
    """Plan, and unless it is a dry run, commit."""
    group = await _find_group(admin, reset.group_id)
    member_count = 0 if group is None else len(group.members)
    if member_count and not reset.is_dry_run:
        raise GroupNotEmptyError(_with_members(reset.group_id, member_count))
    is_shared = group is not None and group.type == "share"
    planned = await plan_group_reset(
        admin, reset.group_id, reset.choices, reset.target, is_shared=is_shared
    )
    if not planned:
        raise _nothing_read(reset.group_id, group)
    errors: dict[TopicPartition, KafkaError] = {}
    if not reset.is_dry_run:
        offsets = {row.partition: row.after for row in planned}
        alter = admin.alter_share_group_offsets if is_shared else admin.alter_group_offsets
        answers = await alter(reset.group_id, offsets)
        errors = {one: error for one, error in answers.items() if error is not None}
    return ResetOutcome(reset=reset, planned=planned, errors=errors, member_count=member_count)


async def _find_group(admin: AsyncAdmin, group_id: str) -> GroupDescription | None:
    found = (await admin.describe_groups((group_id,)))[group_id]
    if isinstance(found, GroupNotFoundError):
        return None
    if isinstance(found, KafkaError):
        raise found
    return found


def _with_members(group_id: str, count: int) -> str:
    return f"group {group_id!r} has {'1 member' if count == 1 else f'{count} members'}"


def _nothing_read(group_id: str, group: GroupDescription | None) -> Exception:
    if group is None:
        return GroupNotFoundError(f"there is no group {group_id!r}")
    return ConfigurationError(f"group {group_id!r} has no offsets; name topics with --topic")
