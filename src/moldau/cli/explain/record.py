"""`moldau explain record`."""

from __future__ import annotations

from typing import Annotated

import typer

from moldau.cli.explain.session import Metrics
from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap


def record(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0, help="The partition.")],
    offset: Annotated[int, typer.Argument(metavar="OFFSET", help="The offset.")],
    metrics: Metrics = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Is a record here, if not why, and until when.

    Retention, compaction by a later record, DeleteRecords, an aborted transaction, not committed,
    never written. Which of them it was that deleted a record, brokers with --metrics remember.
    """
    from moldau.cli.explain.session import find_facts, show
    from moldau.diagnosis.rules.record_story import explain_record
    from moldau.model import TopicPartition

    wanted = TopicPartition(topic, partition)
    facts = find_facts(bootstrap, metrics, lambda ask: ask.about_record(wanted, offset))
    show(explain_record(facts), as_json=as_json)
