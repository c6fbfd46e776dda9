"""`moldau produce`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap


class Acks(StrEnum):
    """How many copies must exist before a record counts as taken."""

    NONE = "0"
    LEADER = "1"
    ALL = "all"


class InputFormat(StrEnum):
    """What a line of input is."""

    TEXT = "text"
    JSON = "json"


class Compression(StrEnum):
    """The codecs of Kafka; the words are those of `compression.type`."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False)],
    file: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            readable=True,
            help="Read lines from this file.",
            show_default="stdin",
        ),
    ] = None,
    form: Annotated[
        InputFormat,
        typer.Option(
            "--format",
            help="What a line is: the value as it is, or JSON as `moldau consume --json` "
            "prints it, with key, headers, partition and time of its own.",
        ),
    ] = InputFormat.TEXT,
    key_separator: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Splits a line into key and value.", show_default="none"),
    ] = None,
    null_marker: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="A key or value of this text is sent as null.",
            show_default="none",
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A header for every record; repeat for more."),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Send all to this partition.", show_default="by key"),
    ] = None,
    acks: Annotated[Acks, typer.Option(help="Who confirms a record.")] = Acks.ALL,
    compression: Annotated[
        Compression, typer.Option(help="Codec of the batches.")
    ] = Compression.NONE,
    batch_size: Annotated[
        int, typer.Option(min=1, metavar="BYTES", help="Send a batch when it has so many bytes.")
    ] = 131072,
    rate: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            metavar="N",
            help="At most so many records a second.",
            show_default="no limit",
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Send lines to a topic, each line a record.

    From stdin, from a file, or typed at a prompt.
    """
    from moldau.cli.line_parser import LineParser, Parser
    from moldau.cli.options import parse_pairs
    from moldau.cli.produce_run import Production, run_production

    is_json = form is InputFormat.JSON
    if is_json and (key_separator is not None or null_marker is not None):
        raise typer.BadParameter(
            "--key-separator and --null-marker are for lines of text", param_hint="--format"
        )
    pairs = parse_pairs(header or (), "--header")
    headers = tuple((name, value.encode()) for name, value in pairs)
    parser: Parser = LineParser(key_separator, null_marker)
    if is_json:
        from moldau.cli.json_lines import JsonLineParser

        parser = JsonLineParser(headers)
    run_production(
        Production(
            topic=topic,
            file=file,
            parser=parser,
            headers=headers,
            partition=partition,
            acks=-1 if acks is Acks.ALL else int(acks.value),
            compression=compression.value,
            batch_bytes=batch_size,
            records_per_second=rate,
            bootstrap=bootstrap,
            as_json=as_json,
        )
    )
