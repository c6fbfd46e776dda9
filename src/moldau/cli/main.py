"""The `moldau` command: its table of commands, and what becomes of their failures.

Failures that a person can mend are one message on stderr that says how; anything else is a bug and
shows its traceback.

Commands are imported when they are run: `moldau start` should not pay for the others, and lists of
commands show the help in the table below. A command is one function with Typer's annotations.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import FrameType
from typing import Annotated, TypeVar

import typer
import typer.core
import typer.main

from moldau import __version__
from moldau.cli.options import make_command_config_option, make_profile_option
from moldau.cli.reporting import make_options, reporting, say_failure

FAILURE = 1
WRONG_USAGE = 2
INTERRUPTED = 130
PIPE_CLOSED = 141
TERMINATED = 143
"""Exit codes. SIGTERM ends a command as Ctrl-C does: what was read is sent, groups are left."""

CONTEXT_SETTINGS: dict[str, list[str]] = {"help_option_names": ["-h", "--help"]}

Runnable = typer.core.TyperCommand | typer.core.TyperGroup
Function = TypeVar("Function", bound=Callable[..., object])
Resolved = tuple[str | None, Runnable | None, list[str]]
Wrap = Callable[[Callable[..., object]], Callable[..., object]]


@dataclass(frozen=True, slots=True)
class Command:
    """Names a function as `module:function`. With `help`, the list of commands imports nothing."""

    path: str
    help: str | None = None

    def load(self, name: str, wrap: Wrap) -> Runnable:
        module, _, function = self.path.partition(":")
        # Help is plain text: Typer would import Rich for it.
        app = typer.Typer(rich_markup_mode=None, add_completion=False)
        app.command(name, cls=_Command, context_settings=CONTEXT_SETTINGS)(
            wrap(getattr(import_module(module), function))
        )
        command = typer.main.get_command(app)
        command.name = name
        command.short_help = _first_sentence(command.help or "")
        is_of_registry = ".cli.schemas:" in self.path
        if is_of_registry or any(one.name == "bootstrap" for one in command.params):
            command.params += [make_command_config_option(), make_profile_option()]
        command.params += make_options()
        if "_MOLDAU_COMPLETE" in os.environ:
            from moldau.cli.completion import attach

            attach(command, self.path)  # type: ignore[arg-type]  # Typer's annotation, as below
        return command  # type: ignore[return-value]  # Typer's annotation names its private base


@dataclass(frozen=True, slots=True)
class LazyGroup:
    """Commands under one word."""

    help: str
    commands: Mapping[str, Command | LazyGroup] = field(default_factory=dict)

    def load(self, name: str, wrap: Wrap) -> Runnable:
        return _Group(
            name=name,
            help=self.help,
            short_help=self.help,
            commands=LazyCommands(self.commands, wrap),  # type: ignore[arg-type]  # any mapping does
            rich_markup_mode=None,
            no_args_is_help=True,
            context_settings=CONTEXT_SETTINGS,
        )


_OPTIONS_OF_OTHERS = {"--port": "--listen", "--host": "--listen"}
"""What other servers call it, and nothing here is spelled like it."""


class _Command(typer.core.TyperCommand):
    """Says what was probably meant by an option that other tools have."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        try:
            return super().parse_args(ctx, args)
        except typer.TyperException as error:
            given = getattr(error, "option_name", None)
            ours = _OPTIONS_OF_OTHERS.get(str(given))
            for one in self.params:
                if ours in one.opts:
                    error.possibilities = [f"{ours} {one.metavar}"]  # type: ignore[attr-defined]
                elif given == "--topic" and one.param_type_name == "argument":
                    error.message += f"; {one.human_readable_name} stands alone, without an option"
                    error.possibilities = None  # type: ignore[attr-defined]
            raise


class _ListingGroup(typer.core.TyperGroup):
    """Imports a command to run it, and not to list it or to complete its name."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        return list(self.commands)

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Runnable | None:  # type: ignore[override]
        commands = self.commands
        assert isinstance(commands, LazyCommands)  # noqa: S101 - made by `load` and `build`
        return commands.find_listed(cmd_name)

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> Resolved:  # type: ignore[override]
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and self.commands[name or ""], rest  # type: ignore[return-value]


class _Group(_ListingGroup):
    """Says which words there are, where none is like the one that was given."""

    def resolve_command(self, ctx: typer.Context, args: list[str]) -> Resolved:  # type: ignore[override]
        try:
            return super().resolve_command(ctx, args)
        except typer.TyperException as error:
            if "Did you mean" not in error.message:
                error.message += f" There are {', '.join(self.commands)}."
            raise


def _first_sentence(text: str) -> str:
    """How a list of commands shows one: whole, where Typer would cut it to the width of a line."""
    words = " ".join(text.partition("\n\n")[0].split())
    sentence, stop, _ = words.partition(". ")
    return sentence + stop.strip()


class LazyCommands(MutableMapping[str, Runnable]):
    """What Typer takes for a dictionary of commands; looking one up imports it."""

    def __init__(self, declared: Mapping[str, Command | LazyGroup], wrap: Wrap) -> None:
        self._declared = declared
        self._wrap = wrap
        self._loaded: dict[str, Runnable] = {}

    def find_listed(self, name: str) -> Runnable | None:
        """With the help of the table, where that has one."""
        declared = self._declared.get(name)
        if isinstance(declared, Command) and declared.help is not None:
            return typer.core.TyperCommand(name, short_help=declared.help)
        return self.get(name)

    def __getitem__(self, name: str) -> Runnable:
        if name not in self._loaded:
            self._loaded[name] = self._declared[name].load(name, self._wrap)
        return self._loaded[name]

    def __setitem__(self, name: str, command: Runnable) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._declared)

    def __len__(self) -> int:
        return len(self._declared)


COMMANDS: dict[str, Command | LazyGroup] = {
    "start": Command(
        "moldau.cli.start:start",
        "Run a broker until it is told to stop (Ctrl-C or SIGTERM).",
    ),
    "zookeeper": LazyGroup(
        "Run real ZooKeeper servers on this machine.",
        {
            "start": Command("moldau.cli.zookeeper:start"),
            "status": Command("moldau.cli.zookeeper:status"),
        },
    ),
    "cluster": LazyGroup(
        "See how any cluster is; run several brokers on this machine.",
        {
            "info": Command("moldau.cli.cluster:info"),
            "health": Command("moldau.cli.cluster:health"),
            "start": Command("moldau.cli.cluster:start"),
            "status": Command("moldau.cli.cluster:status"),
            "stop": Command("moldau.cli.cluster:stop"),
        },
    ),
    "topics": LazyGroup(
        "Create, list, describe, alter, trim, delete and branch topics.",
        {
            "create": Command("moldau.cli.topics:create"),
            "list": Command("moldau.cli.topics:list_topics"),
            "describe": Command("moldau.cli.topics:describe"),
            "alter": Command("moldau.cli.topics:alter"),
            "trim": Command("moldau.cli.topics:trim"),
            "delete": Command("moldau.cli.topics:delete"),
            "branch": Command("moldau.cli.topics:branch"),
        },
    ),
    "configs": LazyGroup(
        "Describe and alter the settings of topics and brokers.",
        {
            "describe": Command("moldau.cli.configs:describe"),
            "alter": Command("moldau.cli.configs:alter"),
        },
    ),
    "quotas": LazyGroup(
        "Describe, set and remove quotas of users, client ids and addresses.",
        {
            "describe": Command("moldau.cli.quotas:describe"),
            "set": Command("moldau.cli.quotas:set_quotas"),
            "remove": Command("moldau.cli.quotas:remove"),
        },
    ),
    "groups": LazyGroup(
        "List, describe, reset and delete consumer groups.",
        {
            "list": Command("moldau.cli.groups:list_groups"),
            "describe": Command("moldau.cli.groups:describe"),
            "reset-offsets": Command("moldau.cli.groups:reset_offsets"),
            "delete": Command("moldau.cli.groups:delete"),
        },
    ),
    "transactions": LazyGroup(
        "List, describe and abort transactions, and find those that hang.",
        {
            "list": Command("moldau.cli.transactions:list_transactions"),
            "describe": Command("moldau.cli.transactions:describe"),
            "find-hanging": Command("moldau.cli.transactions:find_hanging"),
            "abort": Command("moldau.cli.transactions:abort"),
        },
    ),
    "acls": LazyGroup(
        "List, add and remove who may do what.",
        {
            "list": Command("moldau.cli.acls:list_acls"),
            "add": Command("moldau.cli.acls:add"),
            "remove": Command("moldau.cli.acls:remove"),
        },
    ),
    "reassign": LazyGroup(
        "Move partitions to other brokers, as a plan says.",
        {
            "plan": Command("moldau.cli.placement:plan"),
            "execute": Command("moldau.cli.placement:execute"),
            "verify": Command("moldau.cli.placement:verify"),
            "cancel": Command("moldau.cli.placement:cancel"),
        },
    ),
    "elect": Command(
        "moldau.cli.placement:elect",
        "Elect leaders of partitions: preferred ones, or unclean ones.",
    ),
    "doctor": Command(
        "moldau.cli.doctor:doctor",
        "Look at a cluster as an experienced operator would, and say what to do.",
    ),
    "explain": LazyGroup(
        "Say why things are as they are.",
        {
            "record": Command("moldau.cli.doctor:explain_record_at"),
            "partition": Command("moldau.cli.doctor:explain_one_partition"),
            "group": Command("moldau.cli.doctor:explain_one_group"),
            "topic": Command("moldau.cli.doctor:explain_one_topic"),
        },
    ),
    "console": Command(
        "moldau.cli.console:console",
        "Serve a web page that shows a cluster: topics, records, groups, brokers.",
    ),
    "profile": LazyGroup(
        "Keep addresses and security settings of clusters under names.",
        {
            "create": Command("moldau.cli.profile:create"),
            "use": Command("moldau.cli.profile:use"),
            "list": Command("moldau.cli.profile:list_profiles"),
            "show": Command("moldau.cli.profile:show"),
            "delete": Command("moldau.cli.profile:delete"),
        },
    ),
    "users": LazyGroup(
        "List users, set and delete their passwords (SCRAM).",
        {
            "list": Command("moldau.cli.users:list_users"),
            "set": Command("moldau.cli.users:set_user"),
            "delete": Command("moldau.cli.users:delete_user"),
        },
    ),
    "tokens": LazyGroup(
        "Make, list, renew and end delegation tokens.",
        {
            "create": Command("moldau.cli.users:create_token"),
            "describe": Command("moldau.cli.users:describe_tokens"),
            "renew": Command("moldau.cli.users:renew_token"),
            "expire": Command("moldau.cli.users:expire_token"),
        },
    ),
    "secure": LazyGroup(
        "Make what a secured cluster needs.",
        {
            "init": Command("moldau.cli.secure:init"),
            "renew": Command("moldau.cli.secure:renew"),
            "zookeeper": Command("moldau.cli.secure:migrate_zookeeper"),
        },
    ),
    "schemas": LazyGroup(
        "List, show, register, check and delete schemas of a schema registry.",
        {
            "list": Command("moldau.cli.schemas:list_schemas"),
            "show": Command("moldau.cli.schemas:show"),
            "register": Command("moldau.cli.schemas:register"),
            "check": Command("moldau.cli.schemas:check"),
            "delete": Command("moldau.cli.schemas:delete"),
        },
    ),
    "produce": Command(
        "moldau.cli.produce:produce",
        "Send lines to a topic, each line a record.",
    ),
    "consume": Command(
        "moldau.cli.consume:consume",
        "Print the records of topics: new ones, or from any place on.",
    ),
    "bench": LazyGroup(
        "Measure any cluster that speaks Kafka's protocol, or two of them side by side.",
        {
            "produce": Command("moldau.cli.bench:produce"),
            "consume": Command("moldau.cli.bench:consume"),
            "latency": Command("moldau.cli.bench:latency"),
            "requests": Command("moldau.cli.bench:requests"),
        },
    ),
    "plan": Command(
        "moldau.cli.plan:plan",
        "Tell how many partitions a topic needs for a throughput, and what they cost.",
    ),
    "rebalance": Command(
        "moldau.cli.placement:rebalance",
        "Spread replicas by size, traffic and racks, and leaders by number and traffic, over "
        "brokers.",
    ),
    "log": LazyGroup(
        "Look into the files of logs, and where brokers have them.",
        {
            "dirs": Command("moldau.cli.log:dirs"),
            "dump": Command("moldau.cli.log:dump"),
        },
    ),
    "pipeline": LazyGroup(
        "Run pipelines from topics to topics and lakes, on Spark.",
        {
            "run": Command("moldau.cli.pipeline:run"),
            "check": Command("moldau.cli.pipeline:check"),
            "status": Command("moldau.cli.pipeline:status"),
        },
    ),
}

app = typer.Typer(
    name="moldau",
    cls=_ListingGroup,
    help="Moldau: Kafka's commit log and wire protocol, in Python.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings=CONTEXT_SETTINGS,
)


# The version, and whether what is written in Cython was built: without it its twins in Python serve
# (`records/codec.py`, `wire/quick_frames.py`), and nothing else would tell. Looks at files only.


PARTS = ("records/_codec_native", "wire/_frames_native")
PACKAGE = Path(__file__).parents[1]
ADVICE = (
    "the compiled parts are missing, so records are checked in plain Python, some two hundred"
    " times slower; a wheel for this Python has them, and so has an installation with a C compiler"
)


def describe_version() -> str:
    """The answer to `moldau --version`."""
    return f"moldau {__version__}{describe_parts()}"


def describe_parts() -> str:
    """Nothing where all is as it should be."""
    return "" if are_compiled() else " (plain Python: the compiled parts are missing)"


def are_compiled(package: Path = PACKAGE) -> bool:
    """For the Python that runs this: others have names of their own."""
    return all(
        any((package / f"{part}{suffix}").exists() for suffix in EXTENSION_SUFFIXES)
        for part in PARTS
    )


def _show_version(wanted: bool) -> None:
    if wanted:
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
    from moldau.cli.failures import report_error
    from moldau.errors import UsageError

    if not report_error(error):
        raise error
    return WRONG_USAGE if isinstance(error, UsageError) else FAILURE


def run_to_the_end(command: Callable[[], object]) -> int:
    """The exit code. What is a bug, or Typer's to tell, is raised."""
    try:
        with _interrupted_by_sigterm() as signals:
            command()
            sys.stdout.flush()
    except KeyboardInterrupt:
        return TERMINATED if signals else INTERRUPTED
    except BrokenPipeError:
        _forget_stdout()
        return PIPE_CLOSED
    except Exception as error:  # noqa: BLE001 whatever it is, `report` knows what to do with it
        return report(error)
    return 0


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
    reporting.read_form_of_errors(words)
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
