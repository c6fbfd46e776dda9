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
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

from moldau.broker.broker_places import refuse_several_brokers
from moldau.broker.listeners import refuse_insecure, warn_of_open_keys
from moldau.broker.ports import Ports, zookeeper_coordination
from moldau.broker.server import BrokerServer
from moldau.clock import Clock, MachineClock
from moldau.config.broker_options import BrokerOptions
from moldau.coordination.embedded import FILE_NAME, EmbeddedStore
from moldau.coordination.port import Coordination, SessionExpiredError, StoreLostError
from moldau.errors import BrokerFailedError, StartupError
from moldau.net.sockets import SocketNetwork
from moldau.processes import stop_signals
from moldau.storage.files import RealFiles
from moldau.workers import ThreadWorkers, Workers

_log = logging.getLogger("moldau.broker")

_UNPACKING_THREADS = 4
"""Apart from `background.threads`: a flush does not wait for a batch that is slow to unpack."""

_COLLECTOR_THRESHOLDS = (10_000, 20, 50)

_SWITCH_SECONDS = 0.0005
"""How long a thread may compute in Python before the event loop gets its turn. The loop gives its
turn away with every system call, several in a request; with Python's 5 ms each of them could wait
so long for a worker that imports a handler or cleans a log."""


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
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        session = store.session()
        stack.push_async_callback(session.close)
        refuse_several_brokers(store)
        yield session


@contextlib.asynccontextmanager
async def served_coordination(
    path: str, timeout_seconds: float, clock: Clock, on_gone: Callable[[], None]
) -> AsyncIterator[Coordination]:
    """A session with the store that `moldau start --brokers` serves to its brokers."""
    from moldau.coordination.served.session import SocketConnector, StoreSession

    session = StoreSession(SocketConnector(path, on_gone), clock, timeout_seconds, os.getpid())
    await session.open(timeout_seconds)
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
    sys.setswitchinterval(_SWITCH_SECONDS)
    stopping = asyncio.Event()

    def on_store_gone() -> None:
        if not stopping.is_set():
            _log.warning("the supervisor of this broker has ended, and so does the broker")
            stopping.set()

    options = BrokerOptions.resolve(static)
    refuse_insecure(options)
    warn_of_open_keys(options)
    ports = ports or real_ports(options=options, on_store_gone=on_store_gone)
    loop = asyncio.get_running_loop()
    for number in stop_signals():
        loop.add_signal_handler(number, stopping.set)

    def open_coordination(folder: Path) -> AbstractAsyncContextManager[Coordination]:
        return _unless_stopping(stopping, ports.open_coordination(folder))

    try:
        broker = BrokerServer(static, replace(ports, open_coordination=open_coordination))
        try:
            await broker.start(stopping.is_set)
        except _StoppedError:
            return
        except (SessionExpiredError, StoreLostError) as error:
            if stopping.is_set():
                return
            raise StartupError(
                f"the coordination store was lost during the start ({error}): this machine may be "
                "too busy, or cut off from it. Start again, or with a longer "
                "zookeeper.session.timeout.ms"
            ) from None
        try:
            _spare_collector()
            on_ready(broker)
            await _wait_until_told(stopping, broker)
        finally:
            await broker.stop()
    finally:
        ports.close()


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
