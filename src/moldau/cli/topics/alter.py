"""`moldau topics alter`."""

from __future__ import annotations

from typing import Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, parse_settings


def alter(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="The topics.", show_default=False)
    ],
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="The new number of partitions; it can only grow.",
            show_default="as it is",
        ),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Set this; repeat for more."),
    ] = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="Go back to the default; repeat for more."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Change settings of topics, or add partitions to them. What is not named stays.

    With more partitions keys may move: which partition a key goes to depends on their number. What
    is in the topic stays where it is.

    \b
    For example:
    moldau topics alter clicks --config segment.ms=60000
    moldau topics alter clicks orders --partitions 12
    """
    from moldau.cli.output import print_document
    from moldau.cli.session import end_with, with_admin
    from moldau.client.admin import AsyncAdmin
    from moldau.client.admin_values import ConfigChange, ConfigOperation, ConfigResource
    from moldau.errors import KafkaError

    settings = parse_settings(config or (), "--config")
    changes = [ConfigChange(name=name, value=value) for name, value in settings.items()]
    changes += [
        ConfigChange(name=name, operation=ConfigOperation.DELETE) for name in delete_config or ()
    ]
    if partitions is None and not changes:
        raise typer.BadParameter(
            "name what to change with --config, --delete-config or --partitions",
            param_hint="--config",
        )

    async def work(admin: AsyncAdmin) -> dict[str, KafkaError | None]:
        """Settings first: where those are refused, nothing is changed."""
        refused: dict[str, KafkaError | None] = dict.fromkeys(names)
        if changes:
            wanted = {ConfigResource.topic(name): changes for name in names}
            answers = await admin.alter_configs(wanted)
            refused |= {one.name: error for one, error in answers.items()}
        growing = [name for name in names if refused[name] is None]
        if partitions is not None and growing:
            refused |= await admin.create_partitions(dict.fromkeys(growing, partitions))
        return refused

    refused = with_admin(bootstrap, work)
    altered = [name for name in names if refused[name] is None]
    if as_json:
        done = {"set": settings, "unset": delete_config or [], "partitions": partitions}
        documents = [{"topic": name, **done} for name in altered]
        if altered:  # one topic is one object
            print_document(documents if len(names) > 1 else documents[0])
    else:
        told = [f"set {key}={value}" for key, value in settings.items()]
        told += [f"unset {key}" for key in delete_config or ()]
        for name in altered:
            if told:
                typer.echo(f"topic {name}: {', '.join(told)}")
            if partitions is not None:
                typer.echo(f"topic {name} has {partitions} partitions now")
    end_with(refused.values())
