"""What `moldau start` does, once its command line is read. It needs no Typer."""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

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
    from moldau.net.late_tls import import_asyncio_without_tls

    import_asyncio_without_tls()
    import asyncio

    from moldau.broker.run import run_broker
    from moldau.cli.log_lines import set_up_logging
    from moldau.cli.start_settings import gather_settings
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
        from moldau.cli.start_console import ConsoleProcess

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
    from moldau.config.unknown import find_unknown

    warnings = [*find_unknown(settings), *(() if are_compiled() else (ADVICE,))]
    if warnings:
        from moldau.cli.output import warn

        for text in warnings:
            warn(f"warning: {text}")
