"""`moldau start`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from moldau.broker.server import BrokerServer


def start(
    config: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            readable=True,
            help="A server.properties with Kafka's names.",
            show_default="none",
        ),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            file_okay=False, help="Where the logs are kept.", show_default="./moldau-data"
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where to serve.", show_default="127.0.0.1:9092"),
    ] = None,
    brokers: Annotated[
        str | None,
        typer.Option(
            metavar="N|auto",
            help="How many brokers, on ports that count on; auto: one for each core, up to 8.",
            show_default="1",
        ),
    ] = None,
    broker_id: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="The broker's number.", show_default="1")
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT,...",
            help="The ZooKeeper of the cluster to join; a /path at the end names one of several.",
            show_default="none: a broker alone",
        ),
    ] = None,
    adopt_topics: Annotated[
        bool,
        typer.Option(
            "--adopt-topics",
            help="With an empty ZooKeeper: make topics of the logs that are in the data folder.",
        ),
    ] = False,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve /metrics (Prometheus), /healthz and /readyz there; a port alone means "
            "this machine only. With --brokers the ports count on.",
            show_default="none",
        ),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="Let other machines connect without TLS and without saying who they are.",
        ),
    ] = False,
    to_set: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Any option of server.properties; repeat for more."
        ),
    ] = None,
    console: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve the web console there, in a process of its own.",
            show_default="127.0.0.1:8092, on a terminal",
        ),
    ] = None,
    no_console: Annotated[
        bool, typer.Option("--no-console", help="Do not start the web console.")
    ] = False,
) -> None:
    """Run a broker until it is told to stop (Ctrl-C or SIGTERM).

    Flags come before --set, --set before the file. Prints a line, `listening on HOST:PORT`, when
    requests are answered, and with --metrics a second one. Warnings go to standard error;
    MOLDAU_LOG=info shows more.

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
    import gc

    gc.disable()  # what is imported stays: looking through it again and again takes a tenth
    import asyncio

    from moldau.broker.run import run_broker
    from moldau.cli.log_lines import set_up_logging
    from moldau.cli.start_console import ConsoleChoice, choose_console
    from moldau.cli.start_settings import gather_settings
    from moldau.config.unknown import find_unknown

    if insecure:
        to_set = [*(to_set or ()), "insecure.listeners.enable=true"]
    gc.freeze()  # nor is it looked through while the broker serves
    gc.enable()
    settings = gather_settings(
        config=config,
        sets=to_set or (),
        data_dir=data_dir,
        listen=listen,
        broker_id=broker_id,
        zookeeper=zookeeper,
        adopt_topics=adopt_topics,
        metrics=metrics,
    )
    served = settings.get("coordination.socket")
    if served is None:  # else the supervisor has said it
        for unknown in find_unknown(settings):
            typer.echo(f"moldau: warning: {unknown}", err=True)
    set_up_logging(f"broker {settings.get('broker.id', '?')}" if served else "")
    count = 1
    if brokers is not None:
        from moldau.cli.start_brokers import count_brokers, start_brokers

        count = count_brokers(brokers, settings)
    beside = choose_console(ConsoleChoice(address=console, is_unwanted=no_console))

    def announce(broker: BrokerServer) -> None:
        """Scripts wait for this line, so it must not stay in a buffer; `echo` flushes."""
        typer.echo(f"listening on {broker.bootstrap}")
        if broker.monitoring.url is not None:
            typer.echo(f"metrics on {broker.monitoring.url}/metrics")
        if beside is not None:
            beside.start(broker.bootstrap)

    try:
        if count > 1:
            asyncio.run(start_brokers(settings, count, config, to_set or (), beside))
        else:
            asyncio.run(run_broker(settings, announce))
    finally:
        if beside is not None:
            beside.stop()
