"""`moldau produce`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from moldau.cli.line_parser import EncodedLineParser, JsonLineParser, LineParser, Parser
from moldau.cli.options import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    parse_pairs,
    refuse_settings,
    with_option_groups,
)
from moldau.cli.produce_run import Production, run_production
from moldau.cli.record_format import read_escapes
from moldau.cli.schema_options import FORMATS, WrittenSchemas
from moldau.records.lines import LINE_END

_UNSUPPORTED: Final = {
    "interceptor.classes": "Java classes cannot be run; remove it, or use Kafka's own tool",
    "partitioner.class": "Java classes cannot be run; name the partition with --partition",
    "transactional.id": "records are sent without a transaction; remove it",
}


class Acks(StrEnum):
    """How many copies must exist before a record counts as taken."""

    NONE = "0"
    LEADER = "1"
    ALL = "all"


class InputFormat(StrEnum):
    """What a line of input is."""

    TEXT = "text"
    JSON = "json"
    AVRO = "avro"
    JSON_SCHEMA = "json-schema"
    PROTOBUF = "protobuf"
    REGISTRY = "registry"


class Compression(StrEnum):
    """The codecs of Kafka; the words are those of `compression.type`."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


@with_option_groups
def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False)],
    *,
    file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            readable=True,
            help="Read lines from this file.",
            show_default="stdin",
        ),
    ] = None,
    record_file: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            readable=True,
            help="This file is one record, byte by byte; repeat for more.",
            show_default="none",
        ),
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="What stands between records, in place of line ends; \\0, \\t, \\xNN as in C.",
            show_default="line ends",
        ),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="The key of every record.", show_default="none"),
    ] = None,
    form: Annotated[
        InputFormat,
        typer.Option(
            "--format",
            metavar="text|json|avro|json-schema|protobuf|registry",
            help="What a line is: the value as it is; JSON as `moldau consume --json` "
            "prints it, with key, headers, partition and time of its own; or a value as JSON, to "
            "be written by a schema registry (registry: of the type that the schema has).",
        ),
    ] = InputFormat.TEXT,
    schemas: WrittenSchemas,
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
    acks: Annotated[
        Acks, typer.Option(metavar="0|1|all", help="Who confirms a record.")
    ] = Acks.ALL,
    compression: Annotated[
        Compression, typer.Option(metavar="none|gzip|snappy|lz4|zstd", help="Codec of the batches.")
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

    From stdin, from a file, or typed at a prompt. With --record-file each file is a record.

    \b
    For example:
    moldau produce clicks --file clicks.txt
    moldau produce images --record-file cat.png --record-file dog.png
    moldau produce clicks --format avro --value-schema click.avsc
    """
    refuse_settings(_UNSUPPORTED)
    word = schemas.value_format
    if form.value in FORMATS:
        if word not in (None, form.value):
            raise typer.BadParameter("is said by --format already", param_hint="--value-format")
        form, word = InputFormat.TEXT, form.value
    is_json = form is InputFormat.JSON
    if is_json and not (key_separator is null_marker is key is None):
        raise typer.BadParameter(
            "--key, --key-separator and --null-marker are for lines of text", param_hint="--format"
        )
    if key is not None and key_separator is not None:
        raise typer.BadParameter("choose one of --key and --key-separator", param_hint="--key")
    if record_file and (file or delimiter or key_separator or is_json):
        raise typer.BadParameter(
            "a file that is a record is not split: leave out --file, --delimiter, "
            "--key-separator and --format",
            param_hint="--record-file",
        )
    ends = LINE_END
    if delimiter is not None:
        ends = read_escapes(delimiter)
        if not ends:
            raise typer.BadParameter("is empty", param_hint="--delimiter")
    pairs = parse_pairs(header or (), "--header")
    headers = tuple((name, value.encode()) for name, value in pairs)
    key_encode, value_encode = schemas.encoders(topic, word)
    lines = LineParser(key_separator, null_marker, key)
    parser: Parser = lines
    if is_json:
        parser = JsonLineParser(headers, key_encode, value_encode)
    elif key_encode or value_encode:
        parser = EncodedLineParser(lines, key_encode, value_encode)
    run_production(
        Production(
            topic=topic,
            file=file,
            record_files=tuple(record_file or ()),
            delimiter=ends,
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
