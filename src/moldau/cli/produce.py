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
    argument,
    option,
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
    topic: Annotated[str, argument("TOPIC", "The topic.")],
    *,
    file: Annotated[
        Path | None,
        option(
            "FILE",
            "Read lines from this file.",
            default="stdin",
            exists=True,
            dir_okay=False,
            readable=True,
        ),
    ] = None,
    record_file: Annotated[
        list[Path] | None,
        option(
            "FILE",
            "This file is one record, byte by byte; repeat for more.",
            default="none",
            exists=True,
            dir_okay=False,
            readable=True,
        ),
    ] = None,
    delimiter: Annotated[
        str | None,
        option(
            "TEXT",
            "What stands between records, in place of line ends; \\0, \\t, \\xNN as in C.",
            default="line ends",
        ),
    ] = None,
    key: Annotated[str | None, option("TEXT", "The key of every record.", default="none")] = None,
    form: Annotated[
        InputFormat,
        option(
            "text|json|avro|json-schema|protobuf|registry",
            "What a line is: the value as it is; JSON as `moldau consume --json` "
            "prints it, with key, headers, partition and time of its own; or a value as JSON, to "
            "be written by a schema registry (registry: of the type that the schema has).",
            "--format",
        ),
    ] = InputFormat.TEXT,
    schemas: WrittenSchemas,
    key_separator: Annotated[
        str | None, option("TEXT", "Splits a line into key and value.", default="none")
    ] = None,
    null_marker: Annotated[
        str | None, option("TEXT", "A key or value of this text is sent as null.", default="none")
    ] = None,
    header: Annotated[
        list[str] | None, option("KEY=VALUE", "A header for every record; repeat for more.")
    ] = None,
    partition: Annotated[
        int | None, option("N", "Send all to this partition.", default="by key", min=0)
    ] = None,
    acks: Annotated[Acks, option("0|1|all", "Who confirms a record.")] = Acks.ALL,
    compression: Annotated[
        Compression, option("none|gzip|snappy|lz4|zstd", "Codec of the batches.")
    ] = Compression.NONE,
    batch_size: Annotated[
        int, option("BYTES", "Send a batch when it has so many bytes.", min=1)
    ] = 131072,
    rate: Annotated[
        float | None,
        option("N", "At most so many records a second.", default="no limit", min=0.001),
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
