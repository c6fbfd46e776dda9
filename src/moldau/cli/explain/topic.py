"""`moldau explain topic`."""

from __future__ import annotations

from typing import Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap


def topic(
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """The options of a topic, where each comes from, and what they do together."""
    from moldau.cli.explain.session import find_facts, show
    from moldau.diagnosis.rules.topic_story import explain_topic

    facts = find_facts(bootstrap, ("none",), lambda ask: ask.about_topic(name))
    show(explain_topic(facts), as_json=as_json)
