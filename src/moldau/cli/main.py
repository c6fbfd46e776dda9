"""The `moldau` command: its table of commands, and what becomes of their failures.

Failures that a person can mend are one message on stderr that says how; anything else is a bug and
shows its traceback. Most starts of a broker come by `plain_start` instead.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

import typer
import typer.main

from moldau.cli.connection_options import make_profile_option
from moldau.cli.exit_codes import FAILURE, INTERRUPTED, WRONG_USAGE, run_to_the_end
from moldau.cli.lazy import CONTEXT_SETTINGS, Command, LazyCommands, LazyGroup
from moldau.cli.reporting import make_options, reporting, say_failure

COMMANDS: dict[str, Command | LazyGroup] = {
    "start": Command("moldau.cli.start:start"),
    "zookeeper": LazyGroup(
        "Run real ZooKeeper servers on this machine.",
        {
            "start": Command("moldau.cli.zookeeper.start:start"),
            "status": Command("moldau.cli.zookeeper.status:status"),
        },
    ),
    "cluster": LazyGroup(
        "See how any cluster is; run several brokers on this machine.",
        {
            "info": Command("moldau.cli.cluster.info:info"),
            "health": Command("moldau.cli.cluster.health:health"),
            "start": Command("moldau.cli.cluster.start:start"),
            "status": Command("moldau.cli.cluster.status:status"),
            "stop": Command("moldau.cli.cluster.stop:stop"),
        },
    ),
    "topics": LazyGroup(
        "Create, list, describe, alter, trim, delete and branch topics.",
        {
            "create": Command("moldau.cli.topics.create:create"),
            "list": Command("moldau.cli.topics.list:list_topics"),
            "describe": Command("moldau.cli.topics.describe:describe"),
            "alter": Command("moldau.cli.topics.alter:alter"),
            "trim": Command("moldau.cli.topics.trim:trim"),
            "delete": Command("moldau.cli.topics.delete:delete"),
            "branch": Command("moldau.cli.topics.branch:branch"),
        },
    ),
    "configs": LazyGroup(
        "Describe and alter the settings of topics and brokers.",
        {
            "describe": Command("moldau.cli.configs.describe:describe"),
            "alter": Command("moldau.cli.configs.alter:alter"),
        },
    ),
    "quotas": LazyGroup(
        "Describe, set and remove quotas of users, client ids and addresses.",
        {
            "describe": Command("moldau.cli.quotas.describe:describe"),
            "set": Command("moldau.cli.quotas.set:set_quotas"),
            "remove": Command("moldau.cli.quotas.remove:remove"),
        },
    ),
    "groups": LazyGroup(
        "List, describe, reset and delete consumer groups.",
        {
            "list": Command("moldau.cli.groups.list:list_groups"),
            "describe": Command("moldau.cli.groups.describe:describe"),
            "reset-offsets": Command("moldau.cli.groups.reset_offsets:reset_offsets"),
            "delete": Command("moldau.cli.groups.delete:delete"),
        },
    ),
    "transactions": LazyGroup(
        "List, describe and abort transactions, and find those that hang.",
        {
            "list": Command("moldau.cli.transactions.list:list_transactions"),
            "describe": Command("moldau.cli.transactions.describe:describe"),
            "find-hanging": Command("moldau.cli.transactions.find_hanging:find_hanging"),
            "abort": Command("moldau.cli.transactions.abort:abort"),
        },
    ),
    "acls": LazyGroup(
        "List, add and remove who may do what.",
        {
            "list": Command("moldau.cli.acls.list:list_acls"),
            "add": Command("moldau.cli.acls.add:add"),
            "remove": Command("moldau.cli.acls.remove:remove"),
        },
    ),
    "reassign": LazyGroup(
        "Move partitions to other brokers, as a plan says.",
        {
            "plan": Command("moldau.cli.reassign.plan:plan"),
            "execute": Command("moldau.cli.reassign.execute:execute"),
            "verify": Command("moldau.cli.reassign.verify:verify"),
            "cancel": Command("moldau.cli.reassign.cancel:cancel"),
        },
    ),
    "elect": Command("moldau.cli.elect:elect"),
    "doctor": Command("moldau.cli.doctor:doctor"),
    "explain": LazyGroup(
        "Say why things are as they are.",
        {
            "record": Command("moldau.cli.explain.record:record"),
            "partition": Command("moldau.cli.explain.partition:partition"),
            "group": Command("moldau.cli.explain.group:group"),
            "topic": Command("moldau.cli.explain.topic:topic"),
        },
    ),
    "console": Command("moldau.cli.console:console"),
    "profile": LazyGroup(
        "Keep addresses and security settings of clusters under names.",
        {
            "create": Command("moldau.cli.profile.create:create"),
            "use": Command("moldau.cli.profile.use:use"),
            "list": Command("moldau.cli.profile.list:list_profiles"),
            "show": Command("moldau.cli.profile.show:show"),
            "delete": Command("moldau.cli.profile.delete:delete"),
        },
    ),
    "users": LazyGroup(
        "List users, set and delete their passwords (SCRAM).",
        {
            "list": Command("moldau.cli.users.list:list_users"),
            "set": Command("moldau.cli.users.set:set_user"),
            "delete": Command("moldau.cli.users.delete:delete_user"),
        },
    ),
    "tokens": LazyGroup(
        "Make, list, renew and end delegation tokens.",
        {
            "create": Command("moldau.cli.tokens.create:create"),
            "describe": Command("moldau.cli.tokens.describe:describe"),
            "renew": Command("moldau.cli.tokens.renew:renew"),
            "expire": Command("moldau.cli.tokens.expire:expire"),
        },
    ),
    "secure": LazyGroup(
        "Make what a secured cluster needs.",
        {
            "init": Command("moldau.cli.secure.init:init"),
            "renew": Command("moldau.cli.secure.renew:renew"),
            "zookeeper": Command("moldau.cli.secure.zookeeper:migrate_zookeeper"),
        },
    ),
    "schemas": LazyGroup(
        "List, show, register, check and delete schemas of a schema registry.",
        {
            "list": Command("moldau.cli.schemas.list:list_schemas"),
            "show": Command("moldau.cli.schemas.show:show"),
            "register": Command("moldau.cli.schemas.register:register"),
            "check": Command("moldau.cli.schemas.check:check"),
            "delete": Command("moldau.cli.schemas.delete:delete"),
        },
    ),
    "produce": Command("moldau.cli.produce:produce"),
    "consume": Command("moldau.cli.consume:consume"),
    "bench": LazyGroup(
        "Measure any cluster that speaks Kafka's protocol, or two of them side by side.",
        {
            "produce": Command("moldau.cli.bench.produce:produce"),
            "consume": Command("moldau.cli.bench.consume:consume"),
            "latency": Command("moldau.cli.bench.latency:latency"),
            "requests": Command("moldau.cli.bench.requests:requests"),
        },
    ),
    "plan": Command("moldau.cli.plan:plan"),
    "rebalance": Command("moldau.cli.rebalance:rebalance"),
    "log": LazyGroup(
        "Look into the files of logs, and where brokers have them.",
        {
            "dirs": Command("moldau.cli.log.dirs:dirs"),
            "dump": Command("moldau.cli.log.dump:dump"),
        },
    ),
    "pipeline": LazyGroup(
        "Run pipelines from topics to topics and lakes, on Spark.",
        {
            "run": Command("moldau.cli.pipeline.run:run"),
            "check": Command("moldau.cli.pipeline.check:check"),
            "status": Command("moldau.cli.pipeline.status:status"),
        },
    ),
}

app = typer.Typer(
    name="moldau",
    help="Moldau: Kafka's commit log and wire protocol, in Python.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings=CONTEXT_SETTINGS,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from moldau.cli.compiled_parts import describe_version

        typer.echo(describe_version())
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Moldau: Kafka's commit log and wire protocol, in Python."""


def guarded(function: Callable[..., object]) -> Callable[..., object]:
    """Run a command so that its failures end in an exit code and a message."""

    @functools.wraps(function)
    def run_guarded(*arguments: object, **options: object) -> None:
        code = run_to_the_end(functools.partial(function, *arguments, **options))
        if code:
            raise typer.Exit(code)

    return run_guarded


def report(error: Exception) -> int:
    """The exit code of a command that failed; says why, unless Typer does or it is a bug."""
    if isinstance(error, typer.Exit):
        return error.exit_code
    if isinstance(error, typer.Abort) and isinstance(error.__context__, KeyboardInterrupt):
        return INTERRUPTED  # Ctrl-C where a question was asked
    if isinstance(error, typer.Abort | typer.BadParameter):
        raise error
    from moldau.cli.failures import say
    from moldau.errors import UsageError

    if not say(error):
        raise error
    return WRONG_USAGE if isinstance(error, UsageError) else FAILURE


def build() -> typer.core.TyperGroup:
    """The root command, its subcommands still unloaded."""
    group = typer.main.get_command(app)  # with the options that install completion
    assert isinstance(group, typer.core.TyperGroup)  # noqa: S101 - it has a callback
    group.commands = LazyCommands(COMMANDS, guarded)  # type: ignore[assignment]
    group.params += [make_profile_option(), *make_options()]
    return group


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and give its exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    reporting.begin(words)
    is_told_by_typer = not reporting.errors_as_json
    try:
        code = build().main(args=words, prog_name="moldau", standalone_mode=is_told_by_typer)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else FAILURE
    except typer.TyperException as error:  # wrong usage
        say_failure(error.format_message(), kind="UsageError", remedy=_find_help(words))
        code = error.exit_code
    except typer.Abort:
        say_failure("aborted", kind="Abort")
        code = FAILURE
    except KeyboardInterrupt:  # while a command is being loaded
        code = INTERRUPTED
    return code or 0


def _find_help(words: Sequence[str]) -> str:
    """Which help is about this command line."""
    path = ["moldau"]
    commands: Mapping[str, Command | LazyGroup] = COMMANDS
    for word in words:
        if word not in commands:
            break
        path.append(word)
        found = commands[word]
        commands = found.commands if isinstance(found, LazyGroup) else {}
    return f"`{' '.join(path)} --help` shows what can be given"
