"""`moldau reassign cancel`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from moldau.cli.reassign.plan_file import PlanFile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from moldau.cli.reassign.plan_file import Plan
    from moldau.client.admin import AsyncAdmin
    from moldau.errors import KafkaError
    from moldau.model import TopicPartition


def cancel(
    plan: PlanFile,
    keep_throttle: Annotated[
        bool, typer.Option("--keep-throttle", help="Leave the throttle as it is.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Cancel the moves of a plan that are under way.

    These partitions stay where they were, or go back there. Moves that are done stay done.
    """
    from moldau.cli.output import note, print_document
    from moldau.cli.reassign.plan_file import read_plan
    from moldau.cli.session import end_with, with_admin

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
    from moldau.cli.reassign.progress import read_placement, remove_throttle

    moving = await admin.list_partition_reassignments(sorted(plan))
    answers: Mapping[TopicPartition, KafkaError | None] = {}
    if moving:
        answers = await admin.alter_partition_reassignments(dict.fromkeys(moving))
    if not keep_throttle:
        placement = await read_placement(admin, {key.topic for key in plan})
        await remove_throttle(admin, plan, placement)
    return answers
