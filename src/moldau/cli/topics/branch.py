"""`moldau topics branch`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from moldau.cli.options import AsJson


def branch(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A topic that is there.", show_default=False)
    ],
    target: Annotated[
        str, typer.Argument(metavar="NEW", help="The topic to be made.", show_default=False)
    ],
    data_dir: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="The data folder of a broker alone, which is stopped.",
            exists=True,
            file_okay=False,
        ),
    ] = Path("moldau-data"),
    as_json: AsJson = False,
) -> None:
    """Make a topic with all that is in another one, without copying it.

    Closed segments are linked, so that both topics share them until one deletes or compacts them;
    what is written from then on is each one's own. For replaying real data in a test. The broker
    has to be stopped meanwhile, and to be one alone, without ZooKeeper.
    """
    import asyncio

    from moldau.broker.topic_branch import branch_topic
    from moldau.cli.output import print_document

    report = asyncio.run(branch_topic(data_dir, source, target))
    if as_json:
        print_document(
            {
                "topic": report.topic,
                "partitions": report.partitions,
                "linked_bytes": report.linked_bytes,
                "copied_bytes": report.copied_bytes,
            }
        )
    else:
        typer.echo(
            f"{report.topic} has {report.partitions} partitions: "
            f"{report.linked_bytes / 1e6:,.1f} MB are shared with {source}, "
            f"{report.copied_bytes / 1e6:,.1f} MB are copies"
        )
