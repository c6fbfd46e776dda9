"""`moldau cluster stop`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from moldau.cli.cluster.plan import DEFAULT_FOLDER


def stop(
    data_dir: Annotated[
        Path,
        typer.Option(metavar="DIR", file_okay=False, help="Where it was started."),
    ] = DEFAULT_FOLDER,
) -> None:
    """Stop the brokers, one after the other, then ZooKeeper if there is one. The data stays."""
    from moldau.cli.cluster.local_cluster import open_cluster
    from moldau.cli.cluster.plan import ClusterPlan
    from moldau.cli.output import note

    cluster = open_cluster(data_dir, ClusterPlan.require(data_dir))
    if not cluster.stop(note):
        note(f"nothing was running in {data_dir}")
