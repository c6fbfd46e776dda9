"""`moldau consume`."""

from __future__ import annotations

from typing import Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, Bootstrap


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False)],
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Read all that is there, then what is new.")
    ] = False,
    partition: Annotated[
        list[int] | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Read this partition only; repeat for more.",
            show_default="all",
        ),
    ] = None,
    offset: Annotated[
        str | None,
        typer.Option(
            metavar="N|earliest|latest|-N",
            help="Begin at this offset; -N: with the last N records of each partition.",
            show_default="latest",
        ),
    ] = None,
    timestamp: Annotated[
        str | None,
        typer.Option(
            metavar="MS|ISO", help="Begin with the first record of this time.", show_default=False
        ),
    ] = None,
    max_messages: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Stop after so many records.", show_default="never"),
    ] = None,
    timeout_ms: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="MS", help="Stop when nothing arrives for so long.", show_default="never"
        ),
    ] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Stop at what was the end at the beginning.")
    ] = False,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="value, key-value, json, hex, or a template of %k key, %v value, %o offset, "
            "%p partition, %t topic, %T timestamp, %h headers, %n line end.",
        ),
    ] = "value",
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Read as a member of this group, which goes on where it has stopped; "
            "--from-beginning counts where it has not read before.",
            show_default="none",
        ),
    ] = None,
    group_protocol: Annotated[
        str | None,
        typer.Option(
            metavar="classic|consumer",
            help="With --group: how the group agrees on who reads what; consumer is KIP-848.",
            show_default="classic",
        ),
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option(
            metavar="GROUP",
            help="Take records as jobs of this share group: each goes to one of its takers, and "
            "is accepted when it is printed.",
            show_default="none",
        ),
    ] = None,
    release: Annotated[
        bool,
        typer.Option(
            "--release",
            help="With --queue: give the records back when the command ends, instead of accepting "
            "them; each delivery counts.",
        ),
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print the records of a topic: new ones, or from any place on."""
    import asyncio

    from moldau.cli.consume_run import Consumption, consume_records
    from moldau.cli.consume_start import choose_start
    from moldau.cli.log_lines import warnings_shown
    from moldau.cli.record_format import parse_format
    from moldau.cli.session import garbage_collected_rarely

    if release and queue is None:
        raise typer.BadParameter("only what is taken from a queue can be released: add --queue")
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
            }
        )
        _consume_queue(
            bootstrap,
            topic,
            queue,
            form="json" if as_json else form,
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
    consumption = Consumption(
        topic=topic,
        group_id=group,
        group_protocol=group_protocol or "classic",
        partitions=tuple(partition or ()),
        start=choose_start(offset, timestamp, from_beginning),
        formatter=parse_format("json" if as_json else form),
        prints_values=form == "value" and not as_json,
        max_records=max_messages,
        idle_seconds=None if timeout_ms is None else timeout_ms / 1000,
        until_end=until_end,
    )
    with warnings_shown(), garbage_collected_rarely():
        asyncio.run(consume_records(bootstrap, consumption))


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
    max_messages: int | None,
    timeout_ms: int | None,
    release: bool,
) -> None:
    import asyncio

    from moldau.cli.consume_queue import QueueConsumption, consume_queue
    from moldau.cli.log_lines import warnings_shown
    from moldau.cli.record_format import parse_format

    consumption = QueueConsumption(
        topic=topic,
        group_id=group,
        formatter=parse_format(form),
        as_json=form == "json",
        max_records=max_messages,
        idle_seconds=None if timeout_ms is None else timeout_ms / 1000,
        releases=release,
    )
    with warnings_shown():
        asyncio.run(consume_queue(bootstrap, consumption))
