"""`moldau explain group`."""

from __future__ import annotations

from typing import Annotated

import typer

from moldau.cli.explain.session import Metrics
from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap


def group(
    name: Annotated[str, typer.Argument(metavar="GROUP", help="The group.")],
    watch: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long it is watched for progress.")
    ] = 3.0,
    metrics: Metrics = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """The last rebalances of a group with their causes, who holds what, and why lag grows."""
    from moldau.cli.explain.session import find_facts, show
    from moldau.diagnosis.rules.group_story import explain_group

    facts = find_facts(bootstrap, metrics, lambda ask: ask.about_group(name, watch))
    show(explain_group(facts), as_json=as_json)
