"""`moldau topics list`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from moldau.model.uuid_text import format_uuid

if TYPE_CHECKING:
    from moldau.client.rules.cluster_metadata import PartitionMetadata


def list_topics(
    internal: Annotated[
        bool, typer.Option("--internal", help="Show internal topics, too.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List topics."""
    from moldau.cli.output import Column, note, print_document, print_table
    from moldau.cli.session import with_admin

    found = with_admin(bootstrap, lambda admin: admin.list_topics())
    topics = [found[name] for name in sorted(found) if internal or not found[name].is_internal]
    if as_json:
        print_document(
            [
                {
                    "topic": topic.name,
                    "topic_id": format_uuid(topic.topic_id) if topic.topic_id else None,
                    "partitions": len(topic.partitions),
                    "replication_factor": _replication_factor(topic.partitions),
                    "internal": topic.is_internal,
                }
                for topic in topics
            ]
        )
    elif topics:
        columns = Column("topic"), Column("partitions", True), Column("replication", True)
        rows = [
            (topic.name, str(len(topic.partitions)), str(_replication_factor(topic.partitions)))
            for topic in topics
        ]
        print_table(columns, rows)
    else:
        note("there are no topics; make one with `moldau topics create NAME`")


def _replication_factor(partitions: Sequence[PartitionMetadata]) -> int:
    """Partitions under reassignment may have more replicas than the others."""
    return min((len(partition.replicas) for partition in partitions), default=0)
