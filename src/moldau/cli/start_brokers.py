"""`moldau start --brokers N`: what a supervisor is given, and what people are told of it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import typer

from moldau.broker.broker_places import (
    BrokerPlace,
    automatic_count,
    default_settings,
    plan_places,
)
from moldau.broker.supervisor import SupervisedBroker, Supervisor
from moldau.cli.console_process import ConsoleProcess
from moldau.cli.output import warn
from moldau.cli.reporting import reporting
from moldau.clock import MachineClock
from moldau.config.broker_options import BrokerOptions
from moldau.processes import module_command
from moldau.storage.files import RealFiles
from moldau.storage.meta_properties import read_meta_properties
from moldau.storage.rules.file_names import META_PROPERTIES_FILE
from moldau.workers import ThreadWorkers

MAX_BROKERS = 50
_STORE_THREADS = 1


def count_brokers(text: str, settings: Mapping[str, str]) -> int:
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


async def start_brokers(
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
        command = module_command("moldau", "start")
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
