"""A real broker inside a test's process: `with moldau.testing.broker() as broker: ...`.

It runs in a thread of its own, with its own event loop, on a free port of the loopback interface,
in a temporary folder that goes with it. It is the same broker as in production.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from moldau.broker.run import real_ports
from moldau.broker.server import BrokerServer
from moldau.config.describe import find_unknown
from moldau.errors import ConfigurationError
from moldau.net.event_loop import new_event_loop
from moldau.testing.free_ports import take_port
from moldau.testing.held_ports import HeldNetwork, Links
from moldau.testing.injected_errors import InjectedError, InjectedErrors
from moldau.testing.seeded_faults import Fault
from moldau.testing.topic_tools import TopicTools, wait_until

if TYPE_CHECKING:
    from kio.schema.errors import ErrorCode

_NOTHING: Mapping[str, str] = MappingProxyType({})
_STOP_SECONDS = 30.0
_WAIT_SECONDS = 60.0
_ALONE = 1


class RunningBroker(TopicTools):
    """A broker that answers. Hand `bootstrap` to any Kafka client."""

    def __init__(self, static: Mapping[str, str], data_folder: Path) -> None:
        self._static = dict(static)
        self._injected = InjectedErrors()
        self._thread = _BrokerThread(self._static, self._injected)
        self.data_folder = data_folder

    @property
    def bootstrap(self) -> str:
        """`host:port`, for `bootstrap.servers` and the like."""
        return self._thread.broker.bootstrap

    def address_of(self, listener_name: str) -> str:
        """`host:port` of one of several listeners."""
        (found,) = (one for one in self._thread.broker.listeners if one.name == listener_name)
        return f"{found.host}:{found.port}"

    @property
    def metrics_url(self) -> str | None:
        """Where it serves its metrics, if `metrics.listener` is set."""
        return self._thread.broker.monitoring.url

    def restart(self) -> None:
        """Stop it in good order and start it again: the same port, the same data."""
        ports = {one.name: one.port for one in self._thread.broker.listeners}
        self.stop()
        self._static["listeners"] = ",".join(
            f"{one.partition('://')[0]}://{_with_port(one, ports)}"
            for one in self._static["listeners"].split(",")
        )
        self._thread = _BrokerThread(self._static, self._injected)
        self.start()

    def inject(
        self, api: str, error: InjectedError, *, times: int | None = 1, skip: int = 0
    ) -> Fault[ErrorCode | None]:
        """Let the next `times` requests of an API (None: all) be answered with an error, as with
        `RunningCluster.inject`."""
        return self._injected.add(api, error, times=times, broker_id=None, skip=skip)

    def wait_until(self, condition: Callable[[], bool], what: str = "the condition") -> None:
        """Return when the condition holds; raises `TimeoutError` after a minute."""
        wait_until(condition, what, _WAIT_SECONDS)

    def start(self) -> None:
        self._thread.start()
        self._thread.wait_until_ready()

    def stop(self) -> None:
        self._thread.stop()


def _with_port(listener: str, ports: Mapping[str, int]) -> str:
    name, _, address = listener.strip().partition("://")
    return f"{address.rpartition(':')[0]}:{ports[name]}"


def refuse_unknown(config: Mapping[str, str]) -> None:
    """A typo in a test's options would only be warned of in a log that nobody reads."""
    given: Mapping[str, object] = config  # tests are not all checked for types
    for name, value in given.items():
        if not isinstance(value, str):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            raise ConfigurationError(
                f"{name} is a {type(value).__name__}; options are texts, as in server.properties: "
                f'{{"{name}": "{text}"}}'
            )
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
            "listeners": f"PLAINTEXT://127.0.0.1:{take_port()}",
            "log.dirs": str(data_folder),
            **config,
        }
        running = RunningBroker(static, data_folder)
        stack.callback(running.stop)
        running.start()
        yield running


class _BrokerThread:
    """The thread that a broker runs in."""

    def __init__(self, static: Mapping[str, str], injected: InjectedErrors) -> None:
        self._static = static
        self._injected = injected
        self._ready = threading.Event()
        self._broker: BrokerServer | None = None
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="moldau-broker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def broker(self) -> BrokerServer:
        if self._broker is None:
            raise RuntimeError("the broker's thread ended before it was ready")
        return self._broker

    def wait_until_ready(self) -> None:
        self._ready.wait()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        if self._loop is not None and self._stopping is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop has just ended by itself
                self._loop.call_soon_threadsafe(self._stopping.set)
        if self._thread.ident is not None:
            self._thread.join(_STOP_SECONDS)
        if self._thread.is_alive():
            raise RuntimeError(f"the broker did not stop within {_STOP_SECONDS:.0f} seconds")

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as failure:  # noqa: BLE001 it belongs to the thread that waits
            self._failure = failure
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        ports = real_ports()
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        try:
            network = HeldNetwork(
                ports.network, _ALONE, Links(), {}, partial(self._injected.intercept, _ALONE)
            )
            started = BrokerServer(self._static, replace(ports, network=network))
            await started.start()
            self._broker = started
            self._ready.set()
            try:
                await self._stopping.wait()
            finally:
                await started.stop()
        finally:
            ports.close()
