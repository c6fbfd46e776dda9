"""A broker as a process of its own, or as a part of somebody else's: the real ports, signals.

A shell. `real_ports` is what production uses; `run_broker` is behind `moldau start`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

from moldau.broker.ports import Ports
from moldau.broker.server import BrokerServer
from moldau.broker.stored_replicas import refuse_several_brokers
from moldau.clock import Clock, MachineClock
from moldau.config.broker_options import BrokerOptions
from moldau.config.listeners import Listener
from moldau.coordination.embedded import FILE_NAME, EmbeddedStore
from moldau.coordination.port import Coordination
from moldau.errors import BrokerFailedError, StartupError
from moldau.net.sockets import SocketNetwork
from moldau.processes import stop_signals
from moldau.storage.files import RealFiles
from moldau.workers import ThreadWorkers, Workers

_log = logging.getLogger(__name__)

_UNPACKING_THREADS = 4
"""Apart from `background.threads`: a flush does not wait for a batch that is slow to unpack."""

_COLLECTOR_THRESHOLDS = (10_000, 20, 50)

_PROTECTING = (
    "ssl.client.auth",
    "ssl.keystore.location",
    "ssl.keystore.key",
    "sasl.enabled.mechanisms",
    "sasl.jaas.config",
)
"""Who sets one of these means to be protected."""

_SILENT_SECONDS = 2.0
"""How long ZooKeeper may take to answer before the wait is mentioned."""


class _StoppedError(Exception):
    """The broker was told to stop while it waited for its coordination store."""


def _ignore() -> None:
    """For a store that cannot go: it is in this process, or others look after it."""


def real_ports(
    clock: Clock | None = None,
    options: BrokerOptions | None = None,
    on_store_gone: Callable[[], None] = _ignore,
) -> Ports:
    """This machine: its clock, files, sockets and threads, and the store that the options name.

    `on_store_gone` hears when the process that served the store to this broker has ended.
    """
    clock = clock or MachineClock()
    chosen = options or BrokerOptions.resolve({})
    workers = ThreadWorkers(chosen.background_threads)

    def open_coordination(folder: Path) -> AbstractAsyncContextManager[Coordination]:
        if chosen.zookeeper_connect is not None:
            return zookeeper_coordination(chosen.zookeeper_connect, chosen, clock, workers)
        if chosen.coordination_socket is not None:
            timeout = chosen.zookeeper_session_timeout_ms / 1000
            return served_coordination(chosen.coordination_socket, timeout, clock, on_store_gone)
        return embedded_coordination(folder, clock, workers)

    return Ports(
        clock=clock,
        files=RealFiles(),
        network=SocketNetwork(clock),
        workers=workers,
        unpacking_workers=ThreadWorkers(_UNPACKING_THREADS, "moldau-unpacker"),
        open_coordination=open_coordination,
    )


@contextlib.asynccontextmanager
async def embedded_coordination(
    folder: Path, clock: Clock, workers: Workers
) -> AsyncIterator[Coordination]:
    """A store in a data folder, and the one session that a broker alone has with it."""
    store = await EmbeddedStore.open(folder / FILE_NAME, clock=clock, workers=workers)
    session = store.session()
    try:
        refuse_several_brokers(store)
        yield session
    finally:
        await session.close()
        await store.close()


@contextlib.asynccontextmanager
async def served_coordination(
    path: str, timeout_seconds: float, clock: Clock, on_gone: Callable[[], None]
) -> AsyncIterator[Coordination]:
    """A session with the store that `moldau start --brokers` serves to its brokers."""
    from moldau.coordination.store_client import SocketConnector
    from moldau.coordination.store_session import StoreSession

    session = StoreSession(SocketConnector(path, on_gone), clock, timeout_seconds, os.getpid())
    await session.open(timeout_seconds)
    try:
        yield session
    finally:
        await session.close()


@contextlib.asynccontextmanager
async def zookeeper_coordination(
    connect: str, options: BrokerOptions, clock: Clock, workers: Workers
) -> AsyncIterator[Coordination]:
    """A session with ZooKeeper. Who is alone does not pay for importing its client."""
    from moldau.coordination.zookeeper import ZookeeperSession
    from moldau.coordination.zookeeper_settings import ZookeeperSettings

    settings = ZookeeperSettings.parse(
        connect,
        session_timeout_ms=options.zookeeper_session_timeout_ms,
        connection_timeout_ms=options.zookeeper_connection_timeout_ms,
        max_in_flight_requests=options.zookeeper_max_in_flight_requests,
        scheme=options.zookeeper_auth_scheme,
        credential=options.zookeeper_auth_credential,
        protects_nodes=options.zookeeper_set_acl,
    )
    timeout = settings.connection_timeout_seconds
    waiting = clock.call_later(
        _SILENT_SECONDS,
        lambda: _log.warning(
            "ZooKeeper at %s has not answered yet; the broker waits for it, %g seconds at most",
            ", ".join(settings.servers),
            timeout,
        ),
    )
    try:
        session = await ZookeeperSession.open(settings, clock=clock, workers=workers)
    finally:
        waiting.cancel()
    try:
        yield session
    finally:
        await session.close()


@contextlib.asynccontextmanager
async def _unless_stopping(
    stopping: asyncio.Event, store: AbstractAsyncContextManager[Coordination]
) -> AsyncIterator[Coordination]:
    """The store, or `_StoppedError` when the broker is told to stop before the store answers."""
    async with contextlib.AsyncExitStack() as stack:
        entering = asyncio.ensure_future(stack.enter_async_context(store))
        told = asyncio.ensure_future(stopping.wait())
        try:
            await asyncio.wait((entering, told), return_when=asyncio.FIRST_COMPLETED)
        finally:
            told.cancel()
            if not entering.done():
                entering.cancel()
                await asyncio.wait((entering,))
        if entering.cancelled():
            raise _StoppedError
        yield await entering


async def run_broker(
    static: Mapping[str, str], on_ready: Callable[[BrokerServer], None], ports: Ports | None = None
) -> None:
    """Serve until SIGTERM or Ctrl-C, then stop cleanly; on this machine, or on other ports.

    Nobody has to wait for a ZooKeeper that is away in order to stop. Logs are recovered to the end
    all the same: a folder is not left while threads write into it.
    """
    _raise_open_files_limit()
    stopping = asyncio.Event()

    def on_store_gone() -> None:
        if not stopping.is_set():
            _log.warning("the supervisor of this broker has ended, and so does the broker")
            stopping.set()

    options = BrokerOptions.resolve(static)
    refuse_insecure(options)
    ports = ports or real_ports(options=options, on_store_gone=on_store_gone)
    loop = asyncio.get_running_loop()
    for number in stop_signals():
        loop.add_signal_handler(number, stopping.set)

    def open_coordination(folder: Path) -> AbstractAsyncContextManager[Coordination]:
        return _unless_stopping(stopping, ports.open_coordination(folder))

    try:
        broker = BrokerServer(static, replace(ports, open_coordination=open_coordination))
        try:
            await broker.start()
        except _StoppedError:
            return
        try:
            _spare_collector()
            on_ready(broker)
            await _wait_until_told(stopping, broker)
        finally:
            await broker.stop()
    finally:
        ports.close()


def refuse_insecure(options: BrokerOptions) -> None:
    """Raises StartupError where anybody on the network could read and delete everything, unless
    that is wanted; then it is said at each start."""
    _warn_of_idle_settings(options)
    for listener in options.open_listeners:
        if listener.is_on_loopback:
            continue
        if listener.security_protocol != "PLAINTEXT":
            _warn_of_strangers(listener, options)
            continue
        if not options.insecure_listeners_enable:
            raise StartupError(
                f"the listener {listener} would be open to everybody who can reach this machine: "
                "nobody has to say who he is, and nothing is encrypted. Secure it (`moldau secure "
                "init` makes what that needs; see docs/security.md), or start with --insecure "
                "where the network is yours alone"
            )
        _log.warning(
            "the listener %s is not secured (--insecure): whoever can reach it reads, writes and "
            "deletes everything",
            listener,
        )


def _warn_of_idle_settings(options: BrokerOptions) -> None:
    if any(one.uses_tls or one.uses_sasl for one in options.open_listeners):
        return
    for name in _PROTECTING:
        if name in options.layers.static:
            _log.warning(
                "%s is set and protects nothing: no listener uses TLS or SASL. Name one of SSL, "
                "SASL_SSL or SASL_PLAINTEXT in listeners",
                name,
            )


def _warn_of_strangers(listener: Listener, options: BrokerOptions) -> None:
    """Encryption alone keeps nobody out."""
    if listener.uses_sasl or options.authorizer_class_name:
        return
    if options.of_listener(listener.name).ssl_client_auth != "required":
        _log.warning(
            "the listener %s is encrypted, and nobody has to say who he is: whoever can reach it "
            "reads, writes and deletes everything. Set ssl.client.auth=required, or use SASL_SSL",
            listener,
        )


async def _wait_until_told(stopping: asyncio.Event, broker: BrokerServer) -> None:
    """Return when the broker shall stop. Raises `BrokerFailedError` when it cannot go on."""
    told = asyncio.ensure_future(stopping.wait())
    failed = asyncio.ensure_future(broker.wait_until_failed())
    try:
        await asyncio.wait((told, failed), return_when=asyncio.FIRST_COMPLETED)
    finally:
        told.cancel()
        failed.cancel()
    if not stopping.is_set() and broker.failure is not None:
        raise BrokerFailedError(f"the broker cannot go on: {broker.failure}")
    _log.info("stopping")


def _spare_collector() -> None:
    """What is there when the broker is ready stays: modules, classes, logs that were loaded.

    Python's collector of cycles would look at all of it again and again, at a quarter of a million
    objects for some 30 ms, in which nobody is served. It looks at what comes from now on, and
    seldom: there are few cycles.
    """
    gc.freeze()
    gc.set_threshold(*_COLLECTOR_THRESHOLDS)


def _raise_open_files_limit() -> None:
    """Two thousand partitions need some thousand files; the usual limit of 1,024 is for shells."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # macOS caps it below what it reports
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
