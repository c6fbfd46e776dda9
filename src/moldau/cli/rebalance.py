"""`moldau rebalance`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap

if TYPE_CHECKING:
    from moldau.client.rules.rebalance_plan import RebalancePlan


def rebalance(
    execute: Annotated[
        bool, typer.Option("--execute", help="Do it; without this the plan is only shown.")
    ] = False,
    throttle: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="BYTES",
            help="How many bytes per second each broker may send and receive for the moves.",
            show_default="no bound",
        ),
    ] = None,
    leave: Annotated[
        str | None,
        typer.Option(
            metavar="ID,...", help="Brokers that shall hold nothing afterwards.", show_default=False
        ),
    ] = None,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="NAME",
            help="Move this topic only; repeat for more.",
            show_default="all",
        ),
    ] = None,
    tolerance: Annotated[
        float,
        typer.Option(min=0.0, metavar="SHARE", help="By how much a broker may exceed the mean."),
    ] = 0.1,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Spread replicas by their size and their racks, and leaders by their number, over brokers.

    Shows what would move. With --execute it moves, waits, elects the preferred leaders and removes
    the throttle. Stopped in between, the same command goes on: what is under way counts as done.
    """
    from moldau.cli.output import note
    from moldau.cli.rebalance_run import execute_plan, read_load
    from moldau.cli.session import with_admin
    from moldau.client.rules.rebalance_plan import plan_rebalance

    left = _parse_brokers(leave)
    cluster = with_admin(bootstrap, lambda admin: read_load(admin, left, topics))
    plan = plan_rebalance(cluster.load, tolerance)
    _show(plan, as_json)
    if not plan.targets and not cluster.is_moving:
        if not as_json:
            note("nothing has to move")
        return
    if not execute:
        note("nothing was changed; --execute does it")
        return
    with_admin(bootstrap, lambda admin: execute_plan(admin, plan.targets, throttle))


def _parse_brokers(text: str | None) -> list[int]:
    try:
        return [] if text is None else [int(one) for one in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no list of broker ids like 1,2,3", param_hint="--leave"
        ) from None


def _show(plan: RebalancePlan, as_json: bool) -> None:
    from moldau.cli.output import Column, print_document, print_table
    from moldau.cli.reassign.plan_file import to_document

    if as_json:
        print_document(
            {
                **to_document(plan.targets),
                "moved_bytes": plan.moved_load,
                "brokers": [
                    {
                        "broker": broker,
                        "bytes_before": plan.before[broker],
                        "bytes_after": plan.after[broker],
                        "leaders_before": plan.leaders_before[broker],
                        "leaders_after": plan.leaders_after[broker],
                    }
                    for broker in sorted(plan.before)
                ],
            }
        )
        return
    if plan.targets:
        rows = [(str(key), ",".join(map(str, replicas))) for key, replicas in plan.targets.items()]
        print_table((Column("partition"), Column("replicas, leader first")), rows)
        typer.echo(f"\n{plan.moved_load / 1e6:,.1f} MB are copied\n")
    columns = (
        Column("broker", is_number=True),
        Column("MB before", is_number=True),
        Column("after", is_number=True),
        Column("leaders before", is_number=True),
        Column("after", is_number=True),
    )
    print_table(
        columns,
        [
            (
                str(broker),
                f"{plan.before[broker] / 1e6:,.1f}",
                f"{plan.after[broker] / 1e6:,.1f}",
                str(plan.leaders_before[broker]),
                str(plan.leaders_after[broker]),
            )
            for broker in sorted(plan.before)
        ],
    )
