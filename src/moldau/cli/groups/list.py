"""`moldau groups list`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap

_TYPES = ("classic", "consumer", "share", "streams")


def list_groups(
    state: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STATE",
            help="Only groups in this state (Stable, Empty, ...); repeat for more.",
            show_default="all",
        ),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            metavar="TYPE",
            help="Only groups of this type (classic, consumer, share, streams); repeat for more.",
            show_default="all",
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List groups and their states."""
    from moldau.cli.output import Column, note, print_document, print_table
    from moldau.cli.session import with_admin

    states, types = _read_states(state or ()), _read_types(kind or ())
    found = with_admin(bootstrap, lambda admin: admin.list_groups(states=states, types=types))
    groups = [found[name] for name in sorted(found)]
    if as_json:
        print_document(
            [
                {
                    "group": group.group_id,
                    "state": group.state.value,
                    "type": group.type,
                    "protocol_type": group.protocol_type,
                }
                for group in groups
            ]
        )
    elif groups:
        columns = Column("group"), Column("state"), Column("type"), Column("protocol")
        rows = [
            (group.group_id, group.state.value, group.type or "-", group.protocol_type or "-")
            for group in groups
        ]
        print_table(columns, rows)
    elif states or types:
        note("there are no such groups; without --state and --type all are shown")
    else:
        note("there are no groups; a consumer makes one when it commits or subscribes")


def _read_states(texts: Sequence[str]) -> Sequence[str]:
    """The states in the protocol's own spelling."""
    from moldau.client.group_values import GroupState

    states = [GroupState(text) for text in texts]
    if GroupState.UNKNOWN in states:
        wrong = texts[states.index(GroupState.UNKNOWN)]
        known = ", ".join(one.value for one in GroupState if one is not GroupState.UNKNOWN)
        raise typer.BadParameter(f"{wrong!r} is none of {known}", param_hint="--state")
    return [one.value for one in states]


def _read_types(texts: Sequence[str]) -> Sequence[str]:
    """The types in the protocol's own spelling."""
    types = tuple(text.lower() for text in texts)
    for text, one in zip(texts, types, strict=True):
        if one not in _TYPES:
            known = ", ".join(_TYPES)
            raise typer.BadParameter(f"{text!r} is none of {known}", param_hint="--type")
    return types
