"""`moldau configs`: the settings of topics, brokers, groups, loggers and client metrics."""

from __future__ import annotations

from typing import Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, flag, option, parse_settings
from moldau.cli.output import note, print_document, print_table
from moldau.cli.session import with_admin
from moldau.client.admin.values import (
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigResource,
    ResourceType,
)
from moldau.config.describe import find_unknown
from moldau.errors import KafkaError

Topic = Annotated[str | None, option("NAME", "A topic.", "--topic")]
Broker = Annotated[
    str | None,
    option(
        "ID|default",
        "A broker by its number, or `default`: what holds for all brokers.",
        "--broker",
    ),
]
Group = Annotated[
    str | None, option("ID", "A consumer group, which need not exist yet.", "--group")
]
Loggers = Annotated[
    str | None,
    option(
        "ID",
        "The levels of a broker's loggers, by its number; they last until it stops.",
        "--loggers",
    ),
]


ClientMetrics = Annotated[
    str | None,
    option(
        "NAME",
        "A subscription to clients' own metrics: metrics, interval.ms, match.",
        "--client-metrics",
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


def describe(
    topic: Topic = None,
    broker: Broker = None,
    group: Group = None,
    loggers: Loggers = None,
    client_metrics: ClientMetrics = None,
    show_all: Annotated[bool, flag("--all", "Show defaults, too.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show the settings of a topic, broker, group or subscription, and where each comes from."""
    resource = require_target(topic, broker, group, loggers, client_metrics)
    answer = with_admin(bootstrap, lambda admin: admin.describe_configs([resource]))[resource]
    if isinstance(answer, KafkaError):
        raise answer
    entries = sorted((one for one in answer if show_all or not one.is_default), key=_name_of)
    if as_json:
        print_document([_to_document(entry) for entry in entries])
    elif entries:
        rows = [(entry.name, _shown(entry), entry.source.label) for entry in entries]
        print_table(("setting", "value", "source"), rows)
    else:
        note(f"{resource} has only default settings; --all shows them")


def _name_of(entry: ConfigEntry) -> str:
    return entry.name


def _shown(entry: ConfigEntry) -> str:
    if entry.is_sensitive:
        return "(hidden)"
    return "(none)" if entry.value is None else entry.value


def _to_document(entry: ConfigEntry) -> dict[str, object]:
    return {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source.name,
        "default": entry.is_default,
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
        "synonyms": [
            {"name": one.name, "value": one.value, "source": one.source.name}
            for one in entry.synonyms
        ],
    }


def alter(
    topic: Topic = None,
    broker: Broker = None,
    group: Group = None,
    loggers: Loggers = None,
    client_metrics: ClientMetrics = None,
    to_set: Annotated[
        list[str] | None, option("KEY=VALUE", "Set this; repeat for more.", "--set")
    ] = None,
    to_unset: Annotated[
        list[str] | None, option("KEY", "Go back to the default; repeat for more.", "--unset")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Change settings of a topic, broker, group or subscription. What is not named stays."""
    resource = require_target(topic, broker, group, loggers, client_metrics)
    settings = parse_settings(to_set or (), "--set")
    removed = to_unset or []
    if not settings and not removed:
        raise typer.BadParameter("name what to change with --set or --unset", param_hint="--set")
    changes = [ConfigChange(name=name, value=value) for name, value in settings.items()]
    changes += [ConfigChange(name=name, operation=ConfigOperation.DELETE) for name in removed]
    answer = with_admin(bootstrap, lambda admin: admin.alter_configs({resource: changes}))[resource]
    if answer is not None:
        raise answer
    for unknown in find_unknown(settings) if broker is not None else ():
        note(f"warning: {unknown}")  # a broker takes any name
    if as_json:
        print_document({"resource": str(resource), "set": settings, "unset": removed})
    else:
        done = [f"set {name}={value}" for name, value in settings.items()]
        done += [f"unset {name}" for name in removed]
        typer.echo(f"{resource}: {', '.join(done)}")
