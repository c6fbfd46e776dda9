"""`moldau start`: a broker, or several brokers of one machine under a supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from moldau.broker.broker_places import BrokerPlace, automatic_count, default_settings, plan_places
from moldau.broker.listeners import is_readable_by_all
from moldau.broker.run import run_broker
from moldau.broker.server import BrokerServer
from moldau.broker.supervisor import SupervisedBroker, Supervisor
from moldau.cli.console_process import ConsoleProcess
from moldau.cli.main import ADVICE, are_compiled
from moldau.cli.options import flag, option
from moldau.cli.output import note, warn
from moldau.cli.reporting import reporting, set_up_logging
from moldau.clock import MachineClock
from moldau.config.broker_options import BrokerOptions
from moldau.config.describe import find_unknown
from moldau.config.listener_options import find_listener_declaration
from moldau.config.properties import (
    Static,
    expand_secrets,
    load_flags,
    load_properties,
    load_settings,
)
from moldau.errors import UsageError
from moldau.net.event_loop import new_event_loop
from moldau.processes import build_module_command
from moldau.storage.files import RealFiles
from moldau.storage.meta_properties import read_meta_properties
from moldau.storage.rules.file_names import META_PROPERTIES_FILE
from moldau.workers import ThreadWorkers

MAX_BROKERS = 50
_STORE_THREADS = 1


def start(
    config: Annotated[
        Path | None,
        option(
            "FILE",
            "A server.properties with Kafka's names.",
            default="none",
            exists=True,
            dir_okay=False,
            readable=True,
        ),
    ] = None,
    data_dir: Annotated[
        Path | None,
        option("DIR", "Where the logs are kept.", default="./moldau-data", file_okay=False),
    ] = None,
    listen: Annotated[
        str | None, option("HOST:PORT", "Where to serve.", default="127.0.0.1:9092")
    ] = None,
    brokers: Annotated[
        str | None,
        option(
            "N|auto",
            "How many brokers, on ports that count on; auto: one for each core, up to 8.",
            default="1",
        ),
    ] = None,
    broker_id: Annotated[
        int | None, option("N", "The broker's number.", default="1", min=0)
    ] = None,
    zookeeper: Annotated[
        str | None,
        option(
            "HOST:PORT,...",
            "The ZooKeeper of the cluster to join; a /path at the end names one of several.",
            default="none: a broker alone",
        ),
    ] = None,
    adopt_topics: Annotated[
        bool,
        flag(
            "--adopt-topics",
            "With an empty ZooKeeper: make topics of the logs that are in the data folder.",
        ),
    ] = False,
    metrics: Annotated[
        str | None,
        option(
            "HOST:PORT",
            "Serve /metrics (Prometheus), /healthz and /readyz there; a port alone means "
            "this machine only. With --brokers the ports count on.",
            default="none",
        ),
    ] = None,
    insecure: Annotated[
        bool,
        flag(
            "--insecure", "Let other machines connect without TLS and without saying who they are."
        ),
    ] = False,
    to_set: Annotated[
        list[str] | None,
        option("KEY=VALUE", "Any option of server.properties; repeat for more.", "--set"),
    ] = None,
    console: Annotated[
        str | None,
        option(
            "HOST:PORT",
            "Serve the web console there, in a process of its own.",
            default="127.0.0.1:8092, on a terminal",
        ),
    ] = None,
    no_console: Annotated[bool, flag("--no-console", "Do not start the web console.")] = False,
) -> None:
    """Run a broker until it is told to stop (Ctrl-C or SIGTERM).

    Flags come before --set, --set before the file. Prints a line, `listening on HOST:PORT`, when
    requests are answered, and with --metrics a second one. Warnings go to standard error;
    -v shows more, --log-format json is for those who collect them.

    With --brokers, several processes share the work of one machine, without ZooKeeper: a cluster
    with one store, in the data folder of the first. A broker that dies is started again. A topic
    needs several partitions, or several topics are needed, for all of them to have work.

    On a terminal the web console is started beside, if moldau[console] is installed; elsewhere
    when --console asks for it.

    \b
    For example:
    moldau start
    moldau start --brokers auto --data-dir /srv/moldau
    """
    if console is not None and no_console:
        raise typer.BadParameter("choose one of --console and --no-console")
    sets = [*(to_set or ()), *(["insecure.listeners.enable=true"] if insecure else ())]
    gc.freeze()  # what is imported stays, and is not looked through while the broker serves
    settings = gather_settings(
        config=config,
        sets=sets,
        data_dir=data_dir,
        listen=listen,
        broker_id=broker_id,
        zookeeper=zookeeper,
        adopt_topics=adopt_topics,
        metrics=metrics,
    )
    served = settings.get("coordination.socket")
    if served is None:  # else the supervisor has said it
        _warn(settings)
    set_up_logging(f"broker {settings.get('broker.id', '?')}" if served else "")
    count = 1
    if brokers is not None:
        count = _count_brokers(brokers, settings)
    beside = None
    # Without a word about it, only a person at a terminal gets a console: scripts, tests and
    # services do not pay for what nobody opens.
    if console is not None or (sys.stdout.isatty() and not no_console):
        beside = ConsoleProcess(console, is_insecure=insecure)

    def announce(broker: BrokerServer) -> None:
        """Scripts wait for this line, so it must not stay in a buffer."""
        print(f"listening on {broker.bootstrap}", flush=True)  # noqa: T201 - the command's answer
        if broker.monitoring.url is not None:
            print(f"metrics on {broker.monitoring.url}/metrics", flush=True)  # noqa: T201
        if beside is not None:
            beside.start(broker.bootstrap, settings)

    try:
        if count > 1:
            asyncio.run(_start_brokers(settings, count, config, sets, beside))
        else:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(run_broker(settings, announce))
    finally:
        if beside is not None:
            beside.stop()


def _warn(settings: Mapping[str, str]) -> None:
    """Of what does not keep a broker from serving, and is hardly meant."""
    for text in (*find_unknown(settings), *(() if are_compiled() else (ADVICE,))):
        warn(f"warning: {text}")


def gather_settings(
    *,
    config: Path | None,
    sets: Sequence[str],
    data_dir: Path | None,
    listen: str | None,
    broker_id: int | None,
    zookeeper: str | None = None,
    adopt_topics: bool = False,
    metrics: str | None = None,
) -> Static:
    """All settings with where each one stood; what nobody set is left to the defaults."""
    settings = Static({}) if config is None else load_properties(_read(config), config.name)
    if config is not None:
        _warn_of_open_secrets(config, settings)
    settings |= load_settings(sets)
    if data_dir is not None:
        settings |= load_flags({"log.dirs": str(data_dir)}, "--data-dir")
    if listen is not None:
        listeners = _to_listener(listen, settings.get("listeners", ""))
        settings |= load_flags({"listeners": listeners}, "--listen")
    if broker_id is not None:
        settings |= load_flags({"broker.id": str(broker_id)}, "--broker-id")
    if zookeeper is not None:
        settings |= load_flags({"zookeeper.connect": zookeeper}, "--zookeeper")
    if adopt_topics:
        settings |= load_flags({"adopt.topics.enable": "true"}, "--adopt-topics")
    if metrics is not None:
        settings |= load_flags({"metrics.listener": metrics}, "--metrics")
    return expand_secrets(settings)


def _warn_of_open_secrets(config: Path, settings: Static) -> None:
    """Passwords in a file that everybody on this machine can read."""
    if not is_readable_by_all(config):
        return
    for name, value in settings.items():
        declared = BrokerOptions.find_declaration(name) or find_listener_declaration(name)
        if declared is not None and declared.is_sensitive and not value.startswith("${"):
            note(
                f"moldau: warning: everybody on this machine can read {name} in {config}: "
                "chmod 600 it"
            )
            return


def _to_listener(address: str, in_file: str) -> str:
    """HOST:PORT is another address of the only listener in the file, so that it stays secured as it
    is there, else a plain-text one; a whole listener may be given as well."""
    if "://" in address:
        return address
    _, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal():
        raise UsageError(
            f"--listen {address} is not of the form HOST:PORT; one looks like 127.0.0.1:9092, "
            "or [::1]:9092"
        )
    name, names_one, _ = in_file.partition("://")
    is_only = bool(names_one) and "," not in in_file
    return f"{name.strip() if is_only else 'PLAINTEXT'}://{address}"


def _read(config: Path) -> str:
    """Java's properties files are Latin-1 by tradition and UTF-8 by habit."""
    data = config.read_bytes()
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


# Several brokers: what a supervisor is given, and what people are told of it


def _count_brokers(text: str, settings: Mapping[str, str]) -> int:
    """Of `--brokers`."""
    if "zookeeper.connect" in settings:
        raise typer.BadParameter(
            "brokers that ZooKeeper joins are started one by one, each with a --broker-id; "
            "or all at once with `moldau cluster start --zookeeper`",
            param_hint="--brokers",
        )
    if text == "auto":
        return automatic_count(_count_cores())
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= MAX_BROKERS:
        raise typer.BadParameter(
            f"{text!r} is not a number from 1 to {MAX_BROKERS}, nor auto", param_hint="--brokers"
        )
    return int(text)


async def _start_brokers(
    settings: Mapping[str, str],
    count: int,
    config: Path | None,
    sets: Sequence[str],
    console: ConsoleProcess | None = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    options = BrokerOptions.resolve(settings)
    files = RealFiles()
    places = plan_places(options, count, _first_id(options, files))
    defaults = default_settings(settings, count)
    given = [f"{name}={value}" for name, value in defaults.items()]
    given += sets

    def command_of(place: BrokerPlace, socket_path: Path) -> list[str]:
        own = {**place.settings(), "coordination.socket": str(socket_path)}
        command = build_module_command("moldau", "start")
        if config is not None:
            command += ["--config", str(config)]
        for setting in (*given, *(f"{name}={value}" for name, value in own.items())):
            command += ["--set", setting]
        return command + reporting.repeated()

    workers = ThreadWorkers(_STORE_THREADS)
    try:
        supervisor = Supervisor(
            places,
            command_of,
            clock=MachineClock(),
            files=files,
            workers=workers,
            say=warn,
        )

        def announce(brokers: Sequence[SupervisedBroker]) -> None:
            with contextlib.suppress(OSError):  # a closed pipe, or a full disk: they serve anyway
                _announce(brokers)
            if console is not None:
                console.start(",".join(broker.address for broker in brokers), settings)

        await supervisor.run(announce)
    finally:
        workers.close()


def _announce(brokers: Sequence[SupervisedBroker]) -> None:
    """Scripts wait for the first line; `echo` flushes."""
    typer.echo(f"listening on {','.join(broker.address for broker in brokers)}")
    for broker in brokers:
        folders = ", ".join(broker.place.folders)
        typer.echo(f"{broker.name} at {broker.address}, process {broker.process_id}, in {folders}")
        if broker.place.metrics_listener is not None:
            typer.echo(f"  metrics on http://{broker.place.metrics_listener}/metrics")


def _first_id(options: BrokerOptions, files: RealFiles) -> int:
    """The one that was given, else the one of the data folder, else 1, as for a broker alone."""
    if options.broker_id >= 0:
        return options.broker_id
    found = read_meta_properties(files, Path(options.log_dirs[0]) / META_PROPERTIES_FILE)
    return 1 if found is None or found.broker_id is None else found.broker_id


def _count_cores() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
