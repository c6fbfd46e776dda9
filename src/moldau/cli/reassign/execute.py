"""`moldau reassign execute`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from moldau.cli.reassign.plan_file import PlanFile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from moldau.cli.reassign.plan_file import Plan, PlannedDirs
    from moldau.client.admin import AsyncAdmin
    from moldau.errors import KafkaError
    from moldau.model import TopicPartition


def execute(
    plan: PlanFile,
    throttle: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="BYTES",
            help="How many bytes per second each broker may send and receive for the moves.",
            show_default="no bound",
        ),
    ] = None,
    log_dirs_throttle: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="BYTES",
            help="How many bytes per second each broker may move between its log directories.",
            show_default="no bound",
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
    from moldau.cli.output import note, print_document
    from moldau.cli.reassign.plan_file import read_log_dirs, read_plan
    from moldau.cli.session import end_with, with_admin

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
    from moldau.cli.reassign.progress import (
        choose_log_dirs,
        read_placement,
        set_log_dirs_throttle,
        set_throttle,
    )

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
