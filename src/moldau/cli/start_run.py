"""What `moldau start` does, once its command line is read. It needs no Typer."""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from moldau.config.broker_options import BrokerOptions
from moldau.config.listener_options import find_listener_declaration
from moldau.config.properties import (
    Static,
    expand_secrets,
    load_flags,
    load_properties,
    load_settings,
)
from moldau.errors import UsageError

if TYPE_CHECKING:
    from moldau.broker.server import BrokerServer


def run_start(
    *,
    config: Path | None = None,
    data_dir: Path | None = None,
    listen: str | None = None,
    brokers: str | None = None,
    broker_id: int | None = None,
    zookeeper: str | None = None,
    adopt_topics: bool = False,
    metrics: str | None = None,
    insecure: bool = False,
    to_set: Sequence[str] | None = None,
    console: str | None = None,
    no_console: bool = False,
) -> None:
    """Serve until told to stop. `cli.start` says what the arguments mean."""
    gc.disable()  # what is imported stays: looking through it again and again takes a tenth
    import asyncio

    from moldau.broker.run import run_broker
    from moldau.cli.reporting import set_up_logging
    from moldau.net.event_loop import new_event_loop

    sets = [*(to_set or ()), *(["insecure.listeners.enable=true"] if insecure else ())]
    gc.freeze()  # nor is it looked through while the broker serves
    gc.enable()
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
        from moldau.cli.start_brokers import count_brokers, start_brokers

        count = count_brokers(brokers, settings)
    beside = None
    # Without a word about it, only a person at a terminal gets a console: scripts, tests and
    # services do not pay for what nobody opens.
    if console is not None or (sys.stdout.isatty() and not no_console):
        from moldau.cli.console_process import ConsoleProcess

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
            asyncio.run(start_brokers(settings, count, config, sets, beside))
        else:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(run_broker(settings, announce))
    finally:
        if beside is not None:
            beside.stop()


def _warn(settings: Mapping[str, str]) -> None:
    """Of what does not keep a broker from serving, and is hardly meant."""
    from moldau.cli.compiled_parts import ADVICE, are_compiled
    from moldau.config.describe import find_unknown

    warnings = [*find_unknown(settings), *(() if are_compiled() else (ADVICE,))]
    if warnings:
        from moldau.cli.output import warn

        for text in warnings:
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
    from moldau.broker.listeners import is_readable_by_all

    if not is_readable_by_all(config):
        return
    for name, value in settings.items():
        declared = BrokerOptions.find_declaration(name) or find_listener_declaration(name)
        if declared is not None and declared.is_sensitive and not value.startswith("${"):
            from moldau.cli.output import note

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
