"""The `moldau` command: its table of commands, and what becomes of their failures.

Failures that a person can mend are one message on stderr that says how; anything else is a bug and
shows its traceback. SIGTERM ends a command as Ctrl-C does: what was read is sent, groups are left.
Exit codes: 0 success, 1 failure, 2 wrong usage, 130 Ctrl-C, 141 closed pipe, 143 SIGTERM.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Annotated

import typer
import typer.main

from moldau.cli.lazy import CONTEXT_SETTINGS, Command, LazyCommands, LazyGroup

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
        "Run several brokers on this machine, with ZooKeeper or without.",
        {
            "start": Command("moldau.cli.cluster.start:start"),
            "status": Command("moldau.cli.cluster.status:status"),
            "stop": Command("moldau.cli.cluster.stop:stop"),
        },
    ),
    "topics": LazyGroup(
        "Create, list, describe, alter, delete and branch topics.",
        {
            "create": Command("moldau.cli.topics.create:create"),
            "list": Command("moldau.cli.topics.list:list_topics"),
            "describe": Command("moldau.cli.topics.describe:describe"),
            "alter": Command("moldau.cli.topics.alter:alter"),
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
    "users": LazyGroup(
        "List users, set and delete their passwords (SCRAM).",
        {
            "list": Command("moldau.cli.users.list:list_users"),
            "set": Command("moldau.cli.users.set:set_user"),
            "delete": Command("moldau.cli.users.delete:delete_user"),
        },
    ),
    "secure": LazyGroup(
        "Make what a secured cluster needs.",
        {"init": Command("moldau.cli.secure.init:init")},
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
        "Look into the files of a log.",
        {"dump": Command("moldau.cli.log.dump:dump")},
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

FAILURE = 1
INTERRUPTED = 130
PIPE_CLOSED = 141
TERMINATED = 143

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
        from moldau import __version__

        typer.echo(f"moldau {__version__}")
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
        try:
            with _interrupted_by_sigterm() as signals:
                function(*arguments, **options)
                sys.stdout.flush()
        except KeyboardInterrupt:
            raise typer.Exit(TERMINATED if signals else INTERRUPTED) from None
        except BrokenPipeError:
            _forget_stdout()
            raise typer.Exit(PIPE_CLOSED) from None
        except Exception as error:
            raise typer.Exit(_report(error)) from error

    return run_guarded


@contextlib.contextmanager
def _interrupted_by_sigterm() -> Iterator[list[int]]:
    """Let SIGTERM do what Ctrl-C does; the list tells whether it came.

    Commands that serve until they are told to stop put handlers of their own in its place.
    """
    came: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)  # asyncio cancels the command's task then

    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    former = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield came
    finally:
        signal.signal(signal.SIGTERM, former)


def _forget_stdout() -> None:
    """Nobody reads any more: keep the interpreter from complaining when it flushes at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report(error: Exception) -> int:
    if isinstance(error, typer.Exit):
        return error.exit_code
    if isinstance(error, typer.Abort | typer.BadParameter):
        raise error
    from moldau.cli.failures import explain

    message = explain(error)
    if message is None:
        raise error
    typer.echo(f"moldau: {message}", err=True)
    return FAILURE


def build() -> typer.core.TyperGroup:
    """The root command, its subcommands still unloaded."""
    group = typer.main.get_group(app)
    group.commands = LazyCommands(COMMANDS, guarded)  # type: ignore[assignment]
    return group


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and give its exit code."""
    try:
        build().main(args=arguments, prog_name="moldau")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else FAILURE
    except KeyboardInterrupt:  # while a command is being loaded
        return INTERRUPTED
    return 0


def main() -> None:
    """The entry point of the installed command."""
    # kio registers strategies wherever hypothesis is installed: 0.3 s and 16 MB that no command
    # has a use for. None makes its import fail, which kio expects.
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
    sys.exit(run())
