"""Options that the measurements share."""

from __future__ import annotations

from typing import Annotated

import typer

Against = Annotated[
    str | None,
    typer.Option(
        "--against",
        metavar="HOST:PORT,...",
        help="Another cluster to measure beside it, in turns.",
        show_default=False,
    ),
]
Rounds = Annotated[int, typer.Option(min=1, metavar="N", help="Rounds; the median is shown.")]
Seconds = Annotated[float, typer.Option(min=0.1, metavar="S", help="How long a round takes.")]
RecordSize = Annotated[int, typer.Option(min=1, metavar="BYTES", help="Of each record's value.")]
Partitions = Annotated[
    int, typer.Option(min=1, metavar="N", help="Of the topic that is made for it.")
]
ReplicationFactor = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Copies of the topic that is made for it.",
        show_default="the broker's own",
    ),
]
Topic = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="A topic that is there, and stays.",
        show_default="one for the measurement",
    ),
]
Acks = Annotated[str, typer.Option(metavar="0|1|all", help="Who has to have a record.")]
Compression = Annotated[str, typer.Option(metavar="CODEC", help="none, gzip, snappy, lz4 or zstd.")]
Options = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="An option of the producer; repeat for more."),
]
