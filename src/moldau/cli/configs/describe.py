"""`moldau configs describe`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.configs.target import (
    Broker,
    ClientMetrics,
    Group,
    Loggers,
    Topic,
    require_target,
)
from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap

if TYPE_CHECKING:
    from moldau.client.admin_values import ConfigEntry


def describe(
    topic: Topic = None,
    broker: Broker = None,
    group: Group = None,
    loggers: Loggers = None,
    client_metrics: ClientMetrics = None,
    show_all: Annotated[bool, typer.Option("--all", help="Show defaults, too.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show the settings of a topic, broker, group or subscription, and where each comes from."""
    from moldau.cli.output import Column, note, print_document, print_table
    from moldau.cli.session import with_admin
    from moldau.errors import KafkaError

    resource = require_target(topic, broker, group, loggers, client_metrics)
    answer = with_admin(bootstrap, lambda admin: admin.describe_configs([resource]))[resource]
    if isinstance(answer, KafkaError):
        raise answer
    entries = sorted((one for one in answer if show_all or not one.is_default), key=_name_of)
    if as_json:
        print_document([_to_document(entry) for entry in entries])
    elif entries:
        rows = [(entry.name, _shown(entry), entry.source.label) for entry in entries]
        print_table((Column("setting"), Column("value"), Column("source")), rows)
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
