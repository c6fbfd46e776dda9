"""A real broker inside a test's process: `with moldau.testing.broker() as broker: ...`.

It runs in a thread of its own, with its own event loop, on a free port of the loopback interface,
in a temporary folder that goes with it. It is the same broker as in production.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from moldau.broker.run import real_ports
from moldau.broker.server import BrokerServer
from moldau.config.unknown import find_unknown
from moldau.errors import ConfigurationError

_NOTHING: Mapping[str, str] = MappingProxyType({})
_STOP_SECONDS = 30.0


class RunningBroker:
    """A broker that answers. Hand `bootstrap` to any Kafka client."""

    def __init__(self, broker: BrokerServer, data_folder: Path) -> None:
        self._broker = broker
        self.data_folder = data_folder

    @property
    def bootstrap(self) -> str:
        """`host:port`, for `bootstrap.servers` and the like."""
        return self._broker.bootstrap

    @property
    def metrics_url(self) -> str | None:
        """Where it serves its metrics, if `metrics.listener` is set."""
        return self._broker.monitoring.url


def refuse_unknown(config: Mapping[str, str]) -> None:
    """A typo in a test's options would only be warned of in a log that nobody reads."""
    unknown = find_unknown(config)
    if unknown:
        raise ConfigurationError("; ".join(map(str, unknown)))


@contextlib.contextmanager
def broker(
    config: Mapping[str, str] = _NOTHING, *, data_folder: Path | None = None
) -> Iterator[RunningBroker]:
    """Start a broker, stop it at the end of the block.

    `config` holds options by Kafka's names, as in `server.properties`; a name that is no option is
    refused. With a `data_folder` the data stays; without one it goes with the broker.
    """
    refuse_unknown(config)
    with contextlib.ExitStack() as stack:
        if data_folder is None:
            made = tempfile.TemporaryDirectory(prefix="moldau-", ignore_cleanup_errors=True)
            data_folder = Path(stack.enter_context(made))
        static = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(data_folder),
            **config,
        }
        yield stack.enter_context(_running(static, data_folder))


@contextlib.contextmanager
def _running(static: Mapping[str, str], data_folder: Path) -> Iterator[RunningBroker]:
    thread = _BrokerThread(static)
    thread.start()
    try:
        yield RunningBroker(thread.wait_until_ready(), data_folder)
    finally:
        thread.stop()


class _BrokerThread:
    """The thread that a broker runs in."""

    def __init__(self, static: Mapping[str, str]) -> None:
        self._static = static
        self._ready = threading.Event()
        self._broker: BrokerServer | None = None
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="moldau-broker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait_until_ready(self) -> BrokerServer:
        self._ready.wait()
        if self._failure is not None:
            raise self._failure
        if self._broker is None:
            raise RuntimeError("the broker's thread ended before it was ready")
        return self._broker

    def stop(self) -> None:
        if self._loop is not None and self._stopping is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop has just ended by itself
                self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(_STOP_SECONDS)
        if self._thread.is_alive():
            raise RuntimeError(f"the broker did not stop within {_STOP_SECONDS:.0f} seconds")

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as failure:  # noqa: BLE001 it belongs to the thread that waits
            self._failure = failure
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        ports = real_ports()
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        try:
            started = BrokerServer(self._static, ports)
            await started.start()
            self._broker = started
            self._ready.set()
            try:
                await self._stopping.wait()
            finally:
                await started.stop()
        finally:
            ports.close()
