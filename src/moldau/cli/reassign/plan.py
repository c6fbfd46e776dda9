"""`moldau reassign plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, Bootstrap

if TYPE_CHECKING:
    from moldau.cli.reassign.plan_file import Plan
    from moldau.client.admin import AsyncAdmin


def plan(
    topics: Annotated[
        list[str],
        typer.Argument(metavar="TOPIC...", help="The topics to move.", show_default=False),
    ],
    brokers: Annotated[
        str | None,
        typer.Option(metavar="ID,...", help="The brokers to spread them over.", show_default=False),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Copies of each partition.", show_default="as it is"),
    ] = None,
    current: Annotated[
        bool, typer.Option("--current", help="Print where they are now: the plan of the way back.")
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
    from moldau.cli.output import print_document
    from moldau.cli.reassign.plan_file import to_document
    from moldau.cli.session import with_admin

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
    from moldau.cli.reassign.progress import read_placement
    from moldau.cluster.rules.replica_placement import BrokerRack, place_replicas
    from moldau.errors import UnknownTopicError
    from moldau.model import BrokerId, TopicPartition

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
