"""`moldau rebalance`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from moldau.cli.output import Column, note, print_document, print_table

if TYPE_CHECKING:
    from moldau.ops.rules.rebalance_plan import BrokerLoad, RebalancePlan

_SHOWN = 3
"""Of the partitions that stay where they are not wanted."""


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
    sample: Annotated[
        float,
        typer.Option(
            min=0.0,
            metavar="SECONDS",
            help="How long to measure what is written to each partition; 0: plan by sizes alone.",
        ),
    ] = 10.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Spread replicas by size, traffic and racks, and leaders by number and traffic, over brokers.

    Shows what would move. With --execute it moves, waits, elects the preferred leaders and removes
    the throttle. Stopped in between, the same command goes on: what is under way counts as done.
    """
    from moldau.cli.session import with_admin
    from moldau.ops.reassignment import execute_plan, read_load
    from moldau.ops.rules.rebalance_plan import find_staying, plan_rebalance

    left = _parse_brokers(leave)
    cluster = with_admin(bootstrap, lambda admin: read_load(admin, left, topics, sample, note))
    plan = plan_rebalance(cluster.load, tolerance)
    _show(plan, sample, as_json)
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


def _parse_brokers(text: str | None) -> list[int]:
    try:
        return [] if text is None else [int(one) for one in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no list of broker ids like 1,2,3", param_hint="--leave"
        ) from None


def _show(plan: RebalancePlan, sample_seconds: float, as_json: bool) -> None:
    from moldau.cli.reassign import to_document

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
        print_table((Column("partition"), Column("replicas, leader first")), rows)
        typer.echo(f"\n{plan.moved_bytes / 1e6:,.1f} MB are copied\n")
    titles = ["broker", "MB before", "after", "leaders before", "after"]
    if sample_seconds:
        titles += ["MB/s in before", "after", "leaders' MB/s before", "after"]
    table = [
        (str(broker), *_cells(plan.before[broker], plan.after[broker]))[: len(titles)]
        for broker in sorted(plan.before)
    ]
    print_table([Column(title, is_number=True) for title in titles], table)


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
