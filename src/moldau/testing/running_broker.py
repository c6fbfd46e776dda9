"""A real broker inside a test's process: `with moldau.testing.broker() as broker: ...`.

It runs in a thread of its own, with its own event loop, on a free port of the loopback interface,
in a temporary folder that goes with it. It is the same broker as in production.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from moldau.broker.run import real_ports
from moldau.broker.server import BrokerServer
from moldau.client.admin.values import BROKER_DEFAULT, NewTopic
from moldau.client.blocking import Admin, Consumer, Producer
from moldau.client.consumer.rules.fetch_buffer import ConsumerRecord
from moldau.config.describe import find_unknown
from moldau.errors import ConfigurationError, KafkaError
from moldau.model import TopicPartition
from moldau.net.event_loop import new_event_loop
from moldau.records.record import Headers
from moldau.simulation.fault_plan import Fault
from moldau.testing.free_ports import take_port
from moldau.testing.held_ports import HeldNetwork, Links
from moldau.testing.injected_errors import InjectedError, InjectedErrors

if TYPE_CHECKING:
    from kio.schema.errors import ErrorCode


_NOTHING: Mapping[str, str] = MappingProxyType({})
_STOP_SECONDS = 30.0
_WAIT_SECONDS = 60.0
_ALONE = 1


# What nearly every test does with a broker: make a topic, put records in, look at what came out.
#
# `RunningBroker` and `RunningCluster` have these. They go over the wire with the shipped client, as
# a program would; a client is made for each call, so that nothing of it is left when the broker
# goes.

_TIMEOUT_SECONDS: Final = 30.0


class TopicTools:
    """Topics of whatever has a `bootstrap`."""

    @property
    def bootstrap(self) -> str:
        raise NotImplementedError

    def create_topic(
        self,
        name: str | None = None,
        *,
        partitions: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        config: Mapping[str, str] = _NOTHING,
    ) -> str:
        """Make a topic, and return its name; without one it gets one that nobody else has."""
        name = name or f"topic-{os.getpid()}-{next(_fresh)}"
        topic = NewTopic(
            name=name,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=config,
        )
        with Admin(self.bootstrap) as admin:
            _raise_if_error(admin.create_topics([topic])[name])
        return name

    def delete_topic(self, name: str) -> None:
        with Admin(self.bootstrap) as admin:
            _raise_if_error(admin.delete_topics([name])[name])

    @contextmanager
    def fresh_topic(self, *, partitions: int = BROKER_DEFAULT) -> Iterator[str]:
        """A topic for the length of a block."""
        name = self.create_topic(partitions=partitions)
        try:
            yield name
        finally:
            self.delete_topic(name)

    def produce(
        self,
        topic: str,
        *values: bytes | str | None,
        key: bytes | str | None = None,
        partition: int | None = None,
        headers: Headers = (),
    ) -> None:
        """Put records into a topic, and return when they are there; text goes as UTF-8."""
        with Producer(self.bootstrap) as producer:
            sent = [
                producer.send(
                    topic,
                    key=_as_bytes(key),
                    value=_as_bytes(value),
                    partition=partition,
                    headers=headers,
                )
                for value in values
            ]
            for one in sent:
                one.result(_TIMEOUT_SECONDS)

    def records(
        self, topic: str, partition: int | None = None, *, read_committed: bool = False
    ) -> list[ConsumerRecord]:
        """All that can be read from a topic now: partition by partition, each in order."""
        level = "read_committed" if read_committed else "read_uncommitted"
        with Consumer(self.bootstrap, isolation_level=level) as consumer:
            numbers = [one.index for one in consumer.partitions_for(topic).partitions]
            wanted = [
                TopicPartition(topic, number)
                for number in sorted(numbers)
                if partition is None or number == partition
            ]
            ends = consumer.end_offsets(wanted)
            consumer.assign(wanted)
            consumer.seek_to_beginning()
            found: list[ConsumerRecord] = []
            while any(consumer.position(one) < end for one, end in ends.items()):
                found += consumer.poll(_TIMEOUT_SECONDS)
        found = [one for one in found if one.offset < ends[TopicPartition(topic, one.partition)]]
        return sorted(found, key=lambda one: (one.partition, one.offset))

    def wait_for_records(
        self,
        topic: str,
        count: int = 1,
        *,
        timeout_seconds: float = _TIMEOUT_SECONDS,
        read_committed: bool = False,
    ) -> list[ConsumerRecord]:
        """The records of a topic, when there are so many; raises `TimeoutError` otherwise.

        The topic may be made meanwhile.
        """
        found: list[ConsumerRecord] = []

        def has_enough() -> bool:
            nonlocal found
            with Admin(self.bootstrap) as admin:
                exists = topic in admin.list_topics()
            found = self.records(topic, read_committed=read_committed) if exists else []
            return len(found) >= count

        try:
            wait_until(has_enough, "", timeout_seconds)
        except TimeoutError:
            raise TimeoutError(
                f"{topic} has {len(found)} records after {timeout_seconds:g} s, not {count}"
            ) from None
        return found


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


class _BrokerThread(threading.Thread):
    """The thread that a broker runs in."""

    def __init__(self, static: Mapping[str, str], injected: InjectedErrors) -> None:
        super().__init__(name="moldau-broker", daemon=True)
        self._static = static
        self._injected = injected
        self._ready = threading.Event()
        self._broker: BrokerServer | None = None
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None

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
        if self._loop is not None and self._stopping is not None and self.is_alive():
            with contextlib.suppress(RuntimeError):  # the loop has just ended by itself
                self._loop.call_soon_threadsafe(self._stopping.set)
        if self.ident is not None:
            self.join(_STOP_SECONDS)
        if self.is_alive():
            raise RuntimeError(f"the broker did not stop within {_STOP_SECONDS:.0f} seconds")

    def run(self) -> None:
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


_POLL_SECONDS: Final = 0.02
_fresh = itertools.count(1)


def wait_until(condition: Callable[[], bool], what: str, timeout_seconds: float) -> None:
    """Return when the condition holds; `TimeoutError` when it does not in time."""
    pause = threading.Event()
    for _ in range(max(1, int(timeout_seconds / _POLL_SECONDS))):
        if condition():
            return
        pause.wait(_POLL_SECONDS)
    raise TimeoutError(f"{what} did not come true within {timeout_seconds:.0f} s")


def _as_bytes(content: bytes | str | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content


def _raise_if_error(outcome: object) -> None:
    if isinstance(outcome, KafkaError):
        raise outcome
