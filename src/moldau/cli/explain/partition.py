"""`moldau explain partition`."""

from __future__ import annotations

from typing import Annotated

import typer

from moldau.cli.explain.session import Metrics
from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap


def partition(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    number: Annotated[int, typer.Argument(metavar="PARTITION", min=0, help="The partition.")],
    metrics: Metrics = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """What holds the high watermark, readers of committed records, retention or cleaning back."""
    from moldau.cli.explain.session import find_facts, show
    from moldau.diagnosis.rules.partition_story import explain_partition
    from moldau.model import TopicPartition

    wanted = TopicPartition(topic, number)
    facts = find_facts(bootstrap, metrics, lambda ask: ask.about_partition(wanted))
    show(explain_partition(facts), as_json=as_json)
