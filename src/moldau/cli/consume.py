"""`moldau consume`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Annotated, Final

import typer

from moldau.cli.consume_run import Consumption, QueueConsumption, consume_queue, consume_records
from moldau.cli.offset_target import choose_start
from moldau.cli.options import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    argument,
    client_options,
    flag,
    option,
    refuse_settings,
)
from moldau.cli.output import warn
from moldau.cli.record_format import (
    DecodedFields,
    Formatter,
    RecordDecoding,
    end_values_with,
    parse_format,
)
from moldau.cli.reporting import warnings_shown
from moldau.cli.schema_options import (
    FORMATS,
    SchemaRegistryUrl,
    registry_of_command,
    require_format,
)
from moldau.cli.session import made_for_millions

_ISOLATION_LEVELS: Final = ("read_committed", "read_uncommitted")
_UNSUPPORTED: Final = {
    "interceptor.classes": "Java classes cannot be run; remove it, or use Kafka's own tool"
}
_UNSUPPORTED_BY_QUEUE: Final = {
    "isolation.level": "set share.isolation.level of the group with `moldau configs alter --group`",
    "auto.offset.reset": "set share.auto.offset.reset of the group with `moldau configs alter "
    "--group`",
}


def consume(
    topics: Annotated[list[str], argument("TOPIC...", "The topics.")],
    regex: Annotated[
        bool, flag("--regex", "TOPIC is a pattern of whole names, like 'orders-.*'.")
    ] = False,
    from_beginning: Annotated[
        bool, flag("--from-beginning", "Read all that is there, then what is new.")
    ] = False,
    partition: Annotated[
        list[int] | None,
        option("N", "Read this partition only; repeat for more.", default="all", min=0),
    ] = None,
    offset: Annotated[
        str | None,
        option(
            "N|earliest|latest|-N",
            "Begin at this offset; -N: with the last N records of each partition.",
            default="latest",
        ),
    ] = None,
    timestamp: Annotated[
        str | None, option("MS|ISO", "Begin with the first record of this time.")
    ] = None,
    max_messages: Annotated[
        int | None, option("N", "Stop after so many records.", default="never", min=1)
    ] = None,
    timeout_ms: Annotated[
        int | None, option("MS", "Stop when nothing arrives for so long.", default="never", min=1)
    ] = None,
    until_end: Annotated[
        bool, flag("--until-end", "Stop at what was the end at the beginning.")
    ] = False,
    isolation: Annotated[
        str | None,
        option(
            "read_committed|read_uncommitted",
            "Whether records of open and aborted transactions are left out, or printed; "
            "isolation.level in --command-config sets it as well.",
            default="read_committed",
        ),
    ] = None,
    form: Annotated[
        str,
        option(
            "FORMAT",
            "value, key-value, json, hex, raw (values and nothing else, byte by byte); avro, "
            "json-schema, protobuf or registry (any of these): values by a schema registry; or a "
            "template of %k key, %v value, %o offset, %p partition, %t topic, %T timestamp, "
            "%h headers, %n line end.",
            "--format",
        ),
    ] = "value",
    value_format: Annotated[
        str | None,
        option(
            "FORMAT",
            "Decode values in any --format: avro, json-schema, protobuf, registry.",
            default="none",
        ),
    ] = None,
    key_format: Annotated[
        str | None, option("FORMAT", "Decode keys, in the same way.", default="none")
    ] = None,
    schema_registry: SchemaRegistryUrl = None,
    delimiter: Annotated[
        str | None,
        option(
            "TEXT",
            "With --format value: what stands behind each value; \\0, \\t, \\xNN as in C.",
            default="a line end",
        ),
    ] = None,
    as_json: Annotated[bool, flag("--json", "The same as --format json.")] = False,
    group: Annotated[
        str | None,
        option(
            "NAME",
            "Read as a member of this group, which goes on where it has stopped; "
            "--from-beginning counts where it has not read before.",
            default="none",
        ),
    ] = None,
    group_protocol: Annotated[
        str | None,
        option(
            "classic|consumer",
            "With --group: how the group agrees on who reads what; consumer is KIP-848.",
            default="classic",
        ),
    ] = None,
    queue: Annotated[
        str | None,
        option(
            "GROUP",
            "Take records as jobs of this share group: each goes to one of its takers, and "
            "is accepted when it is printed.",
            default="none",
        ),
    ] = None,
    release: Annotated[
        bool,
        flag(
            "--release",
            "With --queue: give the records back when the command ends, instead of accepting "
            "them; each delivery counts.",
        ),
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print the records of topics: new ones, or from any place on.

    \b
    For example:
    moldau consume clicks orders --from-beginning --format '%t %k %v'
    moldau consume 'orders-.*' --regex --group readers --json
    moldau consume images --offset 7 --max-messages 1 --format raw > image.png
    moldau consume clicks --format avro --schema-registry http://127.0.0.1:8081
    """

    if release and queue is None:
        raise typer.BadParameter("only what is taken from a queue can be released: add --queue")
    form, value_format = _part_formats(form, value_format)
    form = "json" if as_json else form
    decoding = _decode_by_schemas(form, key_format, value_format, delimiter, schema_registry)
    refuse_settings(_UNSUPPORTED)
    if queue is not None:
        _refuse_beside_queue(
            {
                "--group": group is not None,
                "--group-protocol": group_protocol is not None,
                "--partition": bool(partition),
                "--offset": offset is not None,
                "--timestamp": timestamp is not None,
                "--from-beginning": from_beginning,
                "--until-end": until_end,
                "--regex": regex,
                "--isolation": isolation is not None,
                "--delimiter": delimiter is not None,
                "TOPIC": len(topics) > 1,
            }
        )
        refuse_settings(_UNSUPPORTED_BY_QUEUE)
        _consume_queue(
            bootstrap,
            topics[0],
            queue,
            form=form,
            decoding=decoding,
            max_messages=max_messages,
            timeout_ms=timeout_ms,
            release=release,
        )
        return
    if group_protocol not in (None, "classic", "consumer"):
        raise typer.BadParameter("is classic or consumer", param_hint="--group-protocol")
    if group_protocol is not None and group is None:
        raise typer.BadParameter("needs --group", param_hint="--group-protocol")
    if group is not None and (partition or offset is not None or timestamp is not None):
        raise typer.BadParameter(
            "a group has its own partitions and offsets: leave out --partition, --offset and "
            "--timestamp, and see `moldau groups reset-offsets`",
            param_hint="--group",
        )
    if partition and (regex or len(topics) > 1):
        raise typer.BadParameter("is for one topic", param_hint="--partition")
    if delimiter is not None and form != "value":
        raise typer.BadParameter("is for --format value", param_hint="--delimiter")
    settings = client_options()
    _check_group_settings(settings, group)
    if offset is None and timestamp is None and not from_beginning:
        from_beginning = _starts_at_beginning(settings)
    consumption = Consumption(
        topics=() if regex else tuple(dict.fromkeys(topics)),
        pattern=_join_patterns(topics) if regex else None,
        group_id=group,
        group_protocol=group_protocol or "classic",
        partitions=tuple(partition or ()),
        start=choose_start(offset, timestamp, from_beginning),
        isolation_level=_choose_isolation(isolation, settings),
        formatter=decoding or _formatter(form, delimiter),
        formats_elsewhere=decoding is not None,
        prints_values=form == "value" and delimiter is None and decoding is None,
        max_records=max_messages,
        idle_seconds=None if timeout_ms is None else timeout_ms / 1000,
        until_end=until_end,
    )
    with warnings_shown(), made_for_millions():
        asyncio.run(consume_records(bootstrap, consumption))
    _end(decoding)


def _choose_isolation(given: str | None, settings: Mapping[str, str]) -> str:
    """The option takes precedence over the file. The default is not Kafka's: the output is often a
    backup or a copy, and records of aborted transactions would be committed in it."""
    chosen = given or settings.get("isolation.level") or "read_committed"
    if chosen not in _ISOLATION_LEVELS:
        raise typer.BadParameter(
            f"{chosen!r} is neither {' nor '.join(_ISOLATION_LEVELS)}",
            param_hint="--isolation" if given else "isolation.level in --command-config",
        )
    return chosen


def _starts_at_beginning(settings: Mapping[str, str]) -> bool:
    """Where the command line names no start, auto.offset.reset does, as with Kafka's own tool."""
    reset = settings.get("auto.offset.reset", "latest")
    if reset not in ("earliest", "latest"):
        raise typer.BadParameter(
            f"auto.offset.reset={reset} would change the result and is not supported here: say "
            "where to begin with --from-beginning, --offset or --timestamp",
            param_hint="--command-config",
        )
    return reset == "earliest"


def _check_group_settings(settings: Mapping[str, str], group: str | None) -> None:
    """A file that is shared with other clients may name their group: the command joins a group only
    when it is asked to, because members of a group take partitions from each other."""
    if group is None and settings.get("group.id"):
        name = settings["group.id"]
        warn(f"group.id is ignored: --group {name} reads as a member of the group {name}")
    if group is not None and settings.get("enable.auto.commit", "").lower() == "false":
        raise typer.BadParameter(
            "enable.auto.commit=false would change the result and is not supported here: with "
            "--group the offsets of printed records are committed; leave out --group",
            param_hint="--command-config",
        )


def _end(decoding: RecordDecoding | None) -> None:
    if decoding is not None:
        decoding.raise_failures()


def _part_formats(form: str, value_format: str | None) -> tuple[str, str | None]:
    """How records are laid out, and how their values are decoded: --format may say both."""
    if form not in FORMATS:
        return form, value_format
    if value_format not in (None, form):
        raise typer.BadParameter("is said by --format already", param_hint="--value-format")
    return "value", form


def _formatter(form: str, delimiter: str | None) -> Formatter:
    return parse_format(form) if delimiter is None else end_values_with(delimiter)


def _decode_by_schemas(
    form: str,
    key_format: str | None,
    value_format: str | None,
    delimiter: str | None,
    schema_registry: str | None,
) -> RecordDecoding | None:
    """None where bytes are shown as they are."""
    if key_format is None and value_format is None:
        return None

    if form in ("hex", "raw"):
        raise typer.BadParameter(
            f"{form} shows bytes as they are: choose one", param_hint="--format"
        )
    return RecordDecoding(
        registry_of_command(schema_registry),
        DecodedFields(
            key=require_format(key_format, "--key-format"),
            value=require_format(value_format, "--value-format"),
        ),
        _formatter(form, delimiter),
        as_json=form == "json",
    )


def _join_patterns(patterns: list[str]) -> str:

    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as fault:
            raise typer.BadParameter(f"{pattern!r}: {fault}", param_hint="TOPIC") from None
    return "|".join(f"(?:{pattern})" for pattern in patterns) if patterns[1:] else patterns[0]


def _refuse_beside_queue(given: dict[str, bool]) -> None:
    for name, is_given in given.items():
        if is_given:
            raise typer.BadParameter(
                "a queue has its own place in the topic: leave it out; where a new share group "
                "begins is its config share.auto.offset.reset (`moldau configs alter --group`)",
                param_hint=name,
            )


def _consume_queue(
    bootstrap: str,
    topic: str,
    group: str,
    *,
    form: str,
    decoding: RecordDecoding | None,
    max_messages: int | None,
    timeout_ms: int | None,
    release: bool,
) -> None:

    consumption = QueueConsumption(
        topic=topic,
        group_id=group,
        formatter=decoding or _formatter(form, None),
        decoding=decoding,
        as_json=form == "json",
        max_records=max_messages,
        idle_seconds=None if timeout_ms is None else timeout_ms / 1000,
        releases=release,
    )
    with warnings_shown():
        asyncio.run(consume_queue(bootstrap, consumption))
    _end(decoding)
