"""`moldau reassign verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from moldau.cli.reassign.plan_file import PlanFile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from moldau.cli.reassign.plan_file import Plan, PlannedDirs
    from moldau.cli.reassign.progress import MoveProgress
    from moldau.client.admin import AsyncAdmin
    from moldau.model import TopicPartition


def verify(
    plan: PlanFile,
    keep_throttle: Annotated[
        bool, typer.Option("--keep-throttle", help="Leave the throttle as it is.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Tell how far the moves of a plan are.

    When all are done, it removes their throttle and succeeds; until then it fails (exit code 1).
    """
    from moldau.cli.output import Column, print_document, print_table
    from moldau.cli.reassign.plan_file import read_log_dirs, read_plan
    from moldau.cli.reassign.progress import MoveProgress
    from moldau.cli.session import with_admin

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
        columns = Column("topic"), Column("partition", True), Column("progress")
        rows = [(key.topic, str(key.partition), one.value) for key, one in found.items()]
        print_table(columns, rows)
    if any(progress is not MoveProgress.COMPLETE for progress in found.values()):
        raise typer.Exit(1)


async def _verify(
    admin: AsyncAdmin, plan: Plan, directories: PlannedDirs, keep_throttle: bool
) -> Mapping[TopicPartition, MoveProgress]:
    from moldau.cli.reassign.progress import (
        MoveProgress,
        find_log_dir_moves,
        progress_of,
        read_placement,
        remove_throttle,
    )

    moving = await admin.list_partition_reassignments(sorted(plan))
    placement = await read_placement(admin, {key.topic for key in plan})
    found = {key: progress_of(key, plan[key], placement, moving) for key in sorted(plan)}
    for key, progress in (await find_log_dir_moves(admin, directories)).items():
        if found[key] is MoveProgress.COMPLETE:
            found[key] = progress
    if not keep_throttle and all(one is MoveProgress.COMPLETE for one in found.values()):
        await remove_throttle(admin, plan, placement)
    return found
