"""`moldau reassign`, `moldau rebalance` and `moldau elect`: where replicas and leaders are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, argument, flag, option
from moldau.cli.output import note, print_document, print_table
from moldau.cli.session import end_with, with_admin
from moldau.client.admin.client import AsyncAdmin
from moldau.client.admin.values import ElectionType
from moldau.cluster.rules.replica_placement import BrokerRack, place_replicas
from moldau.errors import ElectionNotNeededError, KafkaError, UnknownTopicError
from moldau.model import BrokerId, TopicPartition
from moldau.ops.reassignment import (
    MoveProgress,
    Plan,
    PlannedDirs,
    choose_log_dirs,
    execute_plan,
    find_log_dir_moves,
    progress_of,
    read_load,
    read_placement,
    remove_throttle,
    set_log_dirs_throttle,
    set_throttle,
)
from moldau.ops.rules.rebalance_plan import BrokerLoad, RebalancePlan, find_staying, plan_rebalance

# Plans are JSON as Kafka's own tool writes and reads it


# {"version":1,"partitions":[{"topic":"clicks","partition":0,"replicas":[1,2,3]}]}
#
# A row may have `log_dirs`, one for each replica: the directory that it is to be in on its broker,
# or "any".


_ANY = "any"

PlanFile = Annotated[
    Path,
    option(
        "FILE",
        "The plan: JSON as `moldau reassign plan` and Kafka's tool write it.",
        "--plan",
        exists=True,
        dir_okay=False,
    ),
]

_WANTED = '{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}'


def to_document(plan: Plan) -> dict[str, object]:
    return {
        "version": 1,
        "partitions": [
            {"topic": key.topic, "partition": key.partition, "replicas": list(replicas)}
            for key, replicas in sorted(plan.items())
        ],
    }


def read_plan(path: Path) -> Plan:
    plan: dict[TopicPartition, tuple[int, ...]] = {}
    for row in _read_rows(path):
        key, replicas = _read_row(path, row)
        if key in plan:
            raise typer.BadParameter(f"{path} names {key} twice", param_hint="--plan")
        plan[key] = replicas
    return plan


def read_log_dirs(path: Path) -> PlannedDirs:
    """Where a plan wants replicas on their brokers, as far as it says so."""
    found: dict[tuple[int, TopicPartition], str] = {}
    for row in _read_rows(path):
        key, replicas = _read_row(path, row)
        directories = row.get("log_dirs") if isinstance(row, dict) else None
        if directories is None:
            continue
        if not isinstance(directories, list) or len(directories) != len(replicas):
            raise typer.BadParameter(
                f"{path}: {key} needs as many log_dirs as replicas", param_hint="--plan"
            )
        for broker_id, directory in zip(replicas, directories, strict=True):
            if not isinstance(directory, str):
                raise _malformed(path)
            if directory != _ANY:
                found[broker_id, key] = directory
    return found


def _read_rows(path: Path) -> list[object]:
    try:
        document: object = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise typer.BadParameter(f"{path} is not JSON: {error}", param_hint="--plan") from error
    rows = document.get("partitions") if isinstance(document, dict) else None
    if not isinstance(rows, list) or not rows:
        raise _malformed(path)
    return rows


def _read_row(path: Path, row: object) -> tuple[TopicPartition, tuple[int, ...]]:
    if not isinstance(row, dict):
        raise _malformed(path)
    topic, partition, replicas = row.get("topic"), row.get("partition"), row.get("replicas")
    if not isinstance(topic, str) or type(partition) is not int:
        raise _malformed(path)
    if not isinstance(replicas, list) or not all(type(one) is int for one in replicas):
        raise _malformed(path)
    return TopicPartition(topic, partition), tuple(replicas)


def _malformed(path: Path) -> typer.BadParameter:
    return typer.BadParameter(f"{path} is no plan; one looks like {_WANTED}", param_hint="--plan")


def plan(
    topics: Annotated[list[str], argument("TOPIC...", "The topics to move.")],
    brokers: Annotated[str | None, option("ID,...", "The brokers to spread them over.")] = None,
    replication_factor: Annotated[
        int | None, option("N", "Copies of each partition.", default="as it is", min=1)
    ] = None,
    current: Annotated[
        bool, flag("--current", "Print where they are now: the plan of the way back.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print a plan that spreads topics evenly over brokers.

    Replicas of a partition are in different racks where there are enough. Nothing is changed: write
    the plan to a file, look at it, and give it to `moldau reassign execute`.

    \b
    For example:
    moldau reassign plan clicks --current > back.json
    moldau reassign plan clicks --brokers 1,2,3 > plan.json
    moldau reassign execute --plan plan.json --throttle 50000000
    moldau reassign verify --plan plan.json
    """
    if brokers is None and not current:
        raise typer.BadParameter("say over which ones, like 1,2,3", param_hint="--brokers")
    wanted = _parse_brokers(brokers) if brokers is not None else []
    made = with_admin(
        bootstrap, lambda admin: _plan(admin, topics, wanted, replication_factor, current)
    )
    print_document(to_document(made))


def _parse_brokers(text: str) -> list[int]:
    try:
        return [int(one) for one in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no list of broker ids like 1,2,3", param_hint="--brokers"
        ) from None


async def _plan(
    admin: AsyncAdmin,
    topics: list[str],
    brokers: list[int],
    replication_factor: int | None,
    current: bool,
) -> Plan:
    placement = await read_placement(admin, topics)
    missing = sorted(set(topics) - {key.topic for key in placement})
    if missing:
        raise UnknownTopicError(f"there is no topic {missing[0]!r}")
    if current:
        return placement
    racks = {one.id: one.rack for one in (await admin.describe_cluster()).brokers}
    unknown = sorted(set(brokers) - racks.keys())
    if unknown:
        raise typer.BadParameter(f"broker {unknown[0]} is not alive", param_hint="--brokers")
    spread = [BrokerRack(BrokerId(one), racks[one]) for one in sorted(set(brokers))]
    plan: dict[TopicPartition, tuple[int, ...]] = {}
    for start, topic in enumerate(sorted(set(topics))):
        count = sum(key.topic == topic for key in placement)
        factor = replication_factor or len(placement[TopicPartition(topic, 0)])
        if factor > len(spread):
            raise typer.BadParameter(
                f"{topic} has {factor} copies, and {len(spread)} brokers are named",
                param_hint="--brokers",
            )
        placed = place_replicas(
            spread,
            partition_count=count,
            replication_factor=factor,
            start_index=start % len(spread),
            replica_shift=start % len(spread),
        )
        plan.update({TopicPartition(topic, n): brokers_ for n, brokers_ in enumerate(placed)})
    return plan


def execute(
    plan: PlanFile,
    throttle: Annotated[
        int | None,
        option(
            "BYTES",
            "How many bytes per second each broker may send and receive for the moves.",
            default="no bound",
            min=1,
        ),
    ] = None,
    log_dirs_throttle: Annotated[
        int | None,
        option(
            "BYTES",
            "How many bytes per second each broker may move between its log directories.",
            default="no bound",
            min=1,
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Begin to move partitions as a plan says.

    Where the plan names log directories, replicas go into these on their brokers.

    Returns when the moves have begun; `moldau reassign verify` tells when all are done, and then
    removes the throttle.
    """
    wanted, directories = read_plan(plan), read_log_dirs(plan)
    answers = with_admin(
        bootstrap,
        lambda admin: _execute(admin, wanted, directories, throttle, log_dirs_throttle),
    )
    begun = sorted(key for key, error in answers.items() if error is None)
    if as_json:
        rows = [{"topic": key.topic, "partition": key.partition} for key in begun]
        print_document({"begun": rows})
    elif begun:
        typer.echo(f"moving {', '.join(map(str, begun))}")
        if throttle is not None or log_dirs_throttle is not None:
            note("`moldau reassign verify` removes the throttle when all is done")
    end_with(answers.values())


async def _execute(
    admin: AsyncAdmin,
    plan: Plan,
    directories: PlannedDirs,
    throttle: int | None,
    log_dirs_throttle: int | None,
) -> Mapping[TopicPartition, KafkaError | None]:
    if log_dirs_throttle is not None:
        await set_log_dirs_throttle(admin, directories, log_dirs_throttle)
    if throttle is not None:
        placement = await read_placement(admin, {key.topic for key in plan})
        await set_throttle(admin, plan, placement, throttle)
    # First: replicas that are made for the plan are made in their directories then.
    refused = await choose_log_dirs(admin, directories)
    begun = {key: replicas for key, replicas in plan.items() if key not in refused}
    answers = await admin.alter_partition_reassignments(begun) if begun else {}
    return {**answers, **refused}


def verify(
    plan: PlanFile,
    keep_throttle: Annotated[bool, flag("--keep-throttle", "Leave the throttle as it is.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Tell how far the moves of a plan are.

    When all are done, it removes their throttle and succeeds; until then it fails (exit code 1).
    """
    wanted, directories = read_plan(plan), read_log_dirs(plan)
    found = with_admin(bootstrap, lambda admin: _verify(admin, wanted, directories, keep_throttle))
    if as_json:
        print_document(
            [
                {"topic": key.topic, "partition": key.partition, "progress": progress.value}
                for key, progress in found.items()
            ]
        )
    else:
        columns = "topic", ">partition", "progress"
        rows = [(key.topic, str(key.partition), one.value) for key, one in found.items()]
        print_table(columns, rows)
    if any(progress is not MoveProgress.COMPLETE for progress in found.values()):
        raise typer.Exit(1)


async def _verify(
    admin: AsyncAdmin, plan: Plan, directories: PlannedDirs, keep_throttle: bool
) -> Mapping[TopicPartition, MoveProgress]:
    moving = await admin.list_partition_reassignments(sorted(plan))
    placement = await read_placement(admin, {key.topic for key in plan})
    found = {key: progress_of(key, plan[key], placement, moving) for key in sorted(plan)}
    for key, progress in (await find_log_dir_moves(admin, directories)).items():
        if found[key] is MoveProgress.COMPLETE:
            found[key] = progress
    if not keep_throttle and all(one is MoveProgress.COMPLETE for one in found.values()):
        await remove_throttle(admin, plan, placement)
    return found


def cancel(
    plan: PlanFile,
    keep_throttle: Annotated[bool, flag("--keep-throttle", "Leave the throttle as it is.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Cancel the moves of a plan that are under way.

    These partitions stay where they were, or go back there. Moves that are done stay done.
    """
    wanted = read_plan(plan)
    answers = with_admin(bootstrap, lambda admin: _cancel(admin, wanted, keep_throttle))
    cancelled = sorted(key for key, error in answers.items() if error is None)
    if as_json:
        rows = [{"topic": key.topic, "partition": key.partition} for key in cancelled]
        print_document({"cancelled": rows})
    elif cancelled:
        typer.echo(f"cancelled the moves of {', '.join(map(str, cancelled))}")
    else:
        note("none of these partitions is being moved")
    end_with(answers.values())


async def _cancel(
    admin: AsyncAdmin, plan: Plan, keep_throttle: bool
) -> Mapping[TopicPartition, KafkaError | None]:
    moving = await admin.list_partition_reassignments(sorted(plan))
    answers: Mapping[TopicPartition, KafkaError | None] = {}
    if moving:
        answers = await admin.alter_partition_reassignments(dict.fromkeys(moving))
    if not keep_throttle:
        placement = await read_placement(admin, {key.topic for key in plan})
        await remove_throttle(admin, plan, placement)
    return answers


# `moldau elect`


class ElectionChoice(Enum):
    """The kinds of election."""

    PREFERRED = "preferred"
    UNCLEAN = "unclean"


def elect(
    election: Annotated[
        ElectionChoice,
        argument(
            "preferred|unclean",
            "preferred: the first replica leads again. unclean: where no replica is alive "
            "that has everything, the best log of the others leads, and what it lacks is lost.",
        ),
    ],
    partitions: Annotated[
        list[str] | None, argument("TOPIC-PARTITION...", "Which partitions, like clicks-0.")
    ] = None,
    everywhere: Annotated[bool, flag("--all", "All partitions that need it.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Elect leaders of partitions: preferred ones, or unclean ones.

    \b
    For example:
    moldau elect preferred --all
    moldau elect unclean clicks-0 clicks-3
    """
    if bool(partitions) is everywhere:
        raise typer.BadParameter("name partitions like clicks-0, or give --all")
    wanted = None if everywhere else [_parse_partition(text) for text in partitions or ()]
    kind = ElectionType[election.name]
    answers = with_admin(bootstrap, lambda admin: admin.elect_leaders(wanted, election_type=kind))
    elected = sorted(key for key, error in answers.items() if error is None)
    if as_json:
        rows = [{"topic": key.topic, "partition": key.partition} for key in elected]
        print_document({"elected": rows})
    elif elected:
        typer.echo(f"elected leaders of {', '.join(map(str, elected))}")
    elif all(isinstance(error, ElectionNotNeededError) for error in answers.values()):
        note("no election was needed")
    end_with(e for e in answers.values() if not isinstance(e, ElectionNotNeededError))


def _parse_partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    if not topic or not number.isdecimal():
        raise typer.BadParameter(f"{text!r} is no partition like clicks-0")
    return TopicPartition(topic, int(number))


# `moldau rebalance`


_SHOWN = 3
"""Of the partitions that stay where they are not wanted."""


def rebalance(
    execute: Annotated[
        bool, flag("--execute", "Do it; without this the plan is only shown.")
    ] = False,
    throttle: Annotated[
        int | None,
        option(
            "BYTES",
            "How many bytes per second each broker may send and receive for the moves.",
            default="no bound",
            min=1,
        ),
    ] = None,
    leave: Annotated[
        str | None, option("ID,...", "Brokers that shall hold nothing afterwards.")
    ] = None,
    topics: Annotated[
        list[str] | None,
        option("NAME", "Move this topic only; repeat for more.", "--topic", default="all"),
    ] = None,
    tolerance: Annotated[
        float, option("SHARE", "By how much a broker may exceed the mean.", min=0.0)
    ] = 0.1,
    sample: Annotated[
        float,
        option(
            "SECONDS",
            "How long to measure what is written to each partition; 0: plan by sizes alone.",
            min=0.0,
        ),
    ] = 10.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Spread replicas by size, traffic and racks, and leaders by number and traffic, over brokers.

    Shows what would move. With --execute it moves, waits, elects the preferred leaders and removes
    the throttle. Stopped in between, the same command goes on: what is under way counts as done.
    """
    left = _parse_left_brokers(leave)
    cluster = with_admin(bootstrap, lambda admin: read_load(admin, left, topics, sample, note))
    plan = plan_rebalance(cluster.load, tolerance)
    _show_rebalance(plan, sample, as_json)
    staying = find_staying(cluster.load, plan)
    if staying:
        shown = ", ".join(map(str, staying[:_SHOWN])) + (" …" if len(staying) > _SHOWN else "")
        note(
            f"warning: not all that is on {leave} can leave: the other brokers are too few for the "
            f"replicas of {shown} ({len(staying)} in all)"
        )
    if not plan.targets and not cluster.is_moving:
        if not as_json:
            note("nothing has to move")
        return
    if not execute:
        note("nothing was changed; --execute does it")
        return
    with_admin(bootstrap, lambda admin: execute_plan(admin, plan.targets, throttle, note))


def _parse_left_brokers(text: str | None) -> list[int]:
    try:
        return [] if text is None else [int(one) for one in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no list of broker ids like 1,2,3", param_hint="--leave"
        ) from None


def _show_rebalance(plan: RebalancePlan, sample_seconds: float, as_json: bool) -> None:
    if as_json:
        print_document(
            {
                **to_document(plan.targets),
                "moved_bytes": plan.moved_bytes,
                "sample_seconds": sample_seconds,
                "brokers": [
                    _broker_document(broker, plan.before[broker], plan.after[broker])
                    for broker in sorted(plan.before)
                ],
            }
        )
        return
    if plan.targets:
        rows = [(str(key), ",".join(map(str, replicas))) for key, replicas in plan.targets.items()]
        print_table(("partition", "replicas, leader first"), rows)
        typer.echo(f"\n{plan.moved_bytes / 1e6:,.1f} MB are copied\n")
    titles = ["broker", "MB before", "after", "leaders before", "after"]
    if sample_seconds:
        titles += ["MB/s in before", "after", "leaders' MB/s before", "after"]
    table = [
        (str(broker), *_cells(plan.before[broker], plan.after[broker]))[: len(titles)]
        for broker in sorted(plan.before)
    ]
    print_table([f">{title}" for title in titles], table)


def _broker_document(broker: int, before: BrokerLoad, after: BrokerLoad) -> dict[str, int]:
    return {
        "broker": broker,
        "bytes_before": before.size_bytes,
        "bytes_after": after.size_bytes,
        "leaders_before": before.leaders,
        "leaders_after": after.leaders,
        "bytes_in_per_second_before": before.bytes_in,
        "bytes_in_per_second_after": after.bytes_in,
        "leader_bytes_per_second_before": before.leader_bytes,
        "leader_bytes_per_second_after": after.leader_bytes,
    }


def _cells(before: BrokerLoad, after: BrokerLoad) -> tuple[str, ...]:
    """Those of traffic last: they are shown only where it was measured."""
    return (
        _megabytes(before.size_bytes),
        _megabytes(after.size_bytes),
        str(before.leaders),
        str(after.leaders),
        *map(_megabytes, (before.bytes_in, after.bytes_in)),
        *map(_megabytes, (before.leader_bytes, after.leader_bytes)),
    )


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f}"
