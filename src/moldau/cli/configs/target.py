"""Which topic, broker, group, loggers or subscription the `moldau configs` commands are about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from moldau.client.admin_values import ConfigResource

Topic = Annotated[
    str | None, typer.Option("--topic", metavar="NAME", help="A topic.", show_default=False)
]
Broker = Annotated[
    str | None,
    typer.Option(
        "--broker",
        metavar="ID|default",
        help="A broker by its number, or `default`: what holds for all brokers.",
        show_default=False,
    ),
]
Group = Annotated[
    str | None,
    typer.Option(
        "--group",
        metavar="ID",
        help="A consumer group, which need not exist yet.",
        show_default=False,
    ),
]
Loggers = Annotated[
    str | None,
    typer.Option(
        "--loggers",
        metavar="ID",
        help="The levels of a broker's loggers, by its number; they last until it stops.",
        show_default=False,
    ),
]


ClientMetrics = Annotated[
    str | None,
    typer.Option(
        "--client-metrics",
        metavar="NAME",
        help="A subscription to clients' own metrics: metrics, interval.ms, match.",
        show_default=False,
    ),
]


def require_target(
    topic: str | None,
    broker: str | None,
    group: str | None,
    loggers: str | None = None,
    client_metrics: str | None = None,
) -> ConfigResource:
    """Exactly one of them has to be given."""
    from moldau.client.admin_values import ConfigResource, ResourceType

    if sum(one is not None for one in (topic, broker, group, loggers, client_metrics)) != 1:
        raise typer.BadParameter(
            "name one of --topic, --broker, --group, --loggers and --client-metrics",
            param_hint="--topic",
        )
    if client_metrics is not None:
        return ConfigResource(ResourceType.CLIENT_METRICS, client_metrics)
    if topic is not None:
        return ConfigResource.topic(topic)
    if group is not None:
        return ConfigResource.group(group)
    if loggers is not None:
        if not loggers.isdecimal():
            raise typer.BadParameter(f"{loggers!r} is not a number", param_hint="--loggers")
        return ConfigResource(ResourceType.BROKER_LOGGER, loggers)
    if broker == "default":
        return ConfigResource(ResourceType.BROKER, "")
    if broker is None or not broker.isdecimal():
        raise typer.BadParameter(f"{broker!r} is not a number", param_hint="--broker")
    return ConfigResource(ResourceType.BROKER, broker)
