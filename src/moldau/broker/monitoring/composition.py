"""Puts the parts together that watch a broker. Part of the composition root.

What is counted is counted always: it costs next to nothing. What has to be looked at from time to
time (the loop, groups, the store) is looked at while `metrics.listener` is set, and so is the
history kept over restarts; a broker without it does not import what that needs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from moldau.broker.api import Services
from moldau.broker.background_tasks import BackgroundTasks
from moldau.broker.control_plane import LogEndRequests, random_uuid
from moldau.broker.inter_broker import BrokerConnections
from moldau.broker.monitoring.client_telemetry import ClientTelemetry
from moldau.broker.ports import Ports
from moldau.clock import Clock
from moldau.cluster.config_writer import ClientMetricsConfigs
from moldau.cluster.rules.metadata_image import (
    MetadataImage,
    PartitionChange,
    describe_isr,
    describe_leader,
    find_partition_changes,
)
from moldau.cluster.znodes import CLUSTER_ID
from moldau.config.broker_options import BrokerOptions
from moldau.coordination.port import Coordination, CoordinationError
from moldau.metrics.figures import BrokerFigures, ConnectionFigures, Histogram
from moldau.metrics.history import EventKind, History, decode_events, encode_events
from moldau.model import NO_BROKER, BrokerId
from moldau.storage.files import Files
from moldau.workers import Workers

if TYPE_CHECKING:
    from moldau.broker.monitoring.endpoint import MetricsEndpoint
    from moldau.broker.monitoring.group_lag import GroupLags
    from moldau.coordinators.groups.rules.outcome import LogMessage

_log = logging.getLogger("moldau.metrics")

_PAUSE_SECONDS = 60.0

Spawn: TypeAlias = Callable[[str, Coroutine[Any, Any, None]], object]

_LOOP_SECONDS: Final = 0.5
_STORE_SECONDS: Final = 10.0
HISTORY_FILE: Final = "history.json"
HISTORY_SECONDS: Final = 60.0


class Monitoring:
    """One broker's. In this order: `listen`, `connect`, `run`; `hand_over` before it stops."""

    def __init__(self, ports: Ports, options: Callable[[], BrokerOptions]) -> None:
        self._ports = ports
        self._options = options
        self.figures = BrokerFigures()
        self.history = History(ports.clock.now_ms)
        self._endpoint: MetricsEndpoint | None = None
        self._lags: GroupLags | None = None
        self._probe: StoreProbe | None = None
        self._file: HistoryFile | None = None
        self._telemetry: ClientTelemetry | None = None

    @property
    def url(self) -> str | None:
        """Where metrics are served, if they are."""
        return None if self._endpoint is None else self._endpoint.url

    def on_group_message(self, message: LogMessage) -> None:
        """A group rebalances, or something happened to a member of it."""
        self.figures.rebalances += message.is_rebalance
        self.history.note(
            EventKind.REBALANCE,
            message.group_id,
            message.message,
            is_rebalance=message.is_rebalance,
        )

    async def listen(self, stack: AsyncExitStack) -> None:
        """Serve the endpoint, if it is wanted, as the first thing that a broker does."""
        address = self._options().metrics_listener
        if address is None:
            return
        from moldau.broker.monitoring.endpoint import MetricsEndpoint

        ports = self._ports
        self._endpoint = MetricsEndpoint(
            self.figures, self.history, clock=ports.clock, workers=ports.workers
        )
        await self._endpoint.listen(address)
        stack.push_async_callback(self._endpoint.close)

    async def open_history(self, folder: Path, stack: AsyncExitStack) -> None:
        """The data folder is ours: take what a former life remembered."""
        if self._endpoint is not None:
            ports = self._ports
            self._file = HistoryFile(
                folder, self.history, files=ports.files, clock=ports.clock, workers=ports.workers
            )
            await self._file.load()
            stack.push_async_callback(self._file.write)

    def connect(
        self,
        services: Services,
        coordination: Coordination,
        peers: BrokerConnections,
        connections: Callable[[], Mapping[str, ConnectionFigures]],
    ) -> None:
        """The parts are put together; none of them runs yet."""
        changes = ClusterChanges(services.broker_id, self.figures, self.history)
        services.publisher.subscribe(changes.on_image)
        if self._endpoint is None:
            return
        from moldau.broker.monitoring.collector import Sources
        from moldau.broker.monitoring.group_lag import GroupLags

        clock = self._ports.clock
        self._probe = StoreProbe(coordination, clock)
        probe = self._probe
        self._lags = GroupLags(
            broker_id=services.broker_id,
            groups=services.groups.each_group,
            partitions=services.partitions,
            image=lambda: services.image,
            ask_ends=LogEndRequests(peers.connect, f"broker-{services.broker_id}").ask,
            clock=clock,
        )
        self._endpoint.connect(
            Sources(
                services=services,
                connections=connections,
                lags=self._lags,
                lease_end=lambda: coordination.lease_end,
                coordination_seconds=lambda: probe.seconds,
            )
        )

    def connect_clients(self, coordination: Coordination, spawn: Spawn) -> ClientTelemetry:
        """What clients push of their own figures."""
        self._telemetry = ClientTelemetry(
            ClientMetricsConfigs(coordination, spawn),
            clock=self._ports.clock,
            make_uuid=partial(random_uuid, self._ports.random),
            workers=self._ports.workers,
            max_bytes=lambda: self._options().telemetry_max_bytes,
            is_served=self._options().metrics_listener is not None,
        )
        return self._telemetry

    def run(self, tasks: BackgroundTasks) -> None:
        """The broker answers from now on."""
        if self._telemetry is not None:
            self._telemetry.configs.start()
        endpoint, clock = self._endpoint, self._ports.clock
        if endpoint is None:
            return

        endpoint.is_serving = True

        def see(now: float) -> None:
            endpoint.looked_at = now

        watches: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "watching of the loop": lambda: watch_loop(clock, self.figures.loop_delays, see)
        }
        if self._lags is not None:
            watches["lag of groups"] = self._lags.run
        if self._probe is not None:
            watches["probing of the coordination store"] = self._probe.run
        if self._file is not None:
            watches["keeping of the history"] = self._file.run
        for name, watch in watches.items():
            tasks.keep(name, partial(self._tolerate, name, watch))

    async def _tolerate(self, name: str, watch: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Nobody depends on a look: one that fails is told of, and comes again after a while."""
        while True:
            try:
                await watch()
            except Exception:  # noqa: BLE001 a broker does not end for want of watching
                _log.exception("%s failed, and begins again in %.0f s", name, _PAUSE_SECONDS)
            await self._ports.clock.sleep(_PAUSE_SECONDS)

    def begin_stop(self) -> None:
        """Whoever sends clients here hears that it is over."""
        if self._endpoint is not None:
            self._endpoint.is_stopping = True


async def watch_loop(clock: Clock, delays: Histogram, note: Callable[[float], None]) -> None:
    """Note what a request waits for before anybody looks at it, until cancelled.

    `note` is told the time of each look.
    """
    while True:
        due = clock.monotonic() + _LOOP_SECONDS
        await clock.sleep(_LOOP_SECONDS)
        now = clock.monotonic()
        delays.note(max(0.0, now - due))
        note(now)


class StoreProbe:
    """How long the coordination store takes to answer. One task runs `run`."""

    def __init__(self, coordination: Coordination, clock: Clock) -> None:
        self._coordination = coordination
        self._clock = clock
        self.seconds: float | None = None  # of the last answer; None while there is none

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            began = self._clock.monotonic()
            try:
                await self._coordination.get(CLUSTER_ID)
                self.seconds = self._clock.monotonic() - began
            except CoordinationError:
                self.seconds = None
            await self._clock.sleep(_STORE_SECONDS)


class HistoryFile:
    """Keeps the history over restarts: `history.json` in the first data folder.

    It is written once a minute when there is news, and when the broker stops. Nothing depends on
    it; a file that cannot be read or written is ignored. One task runs `run`.
    """

    def __init__(
        self, folder: Path, history: History, *, files: Files, clock: Clock, workers: Workers
    ) -> None:
        self._path = folder / HISTORY_FILE
        self._history = history
        self._files = files
        self._clock = clock
        self._workers = workers
        self._written = 0  # how many events had been noted then

    async def load(self) -> None:
        """Before anything else is noted."""
        try:
            data = await self._workers.run(self._read)
            self._history.restore(decode_events(data.decode()) if data else ())
        except (OSError, ValueError) as error:
            _log.info("%s is passed over: %s", self._path, error)

    def _read(self) -> bytes:
        return self._files.read(self._path) if self._files.exists(self._path) else b""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._clock.sleep(HISTORY_SECONDS)
            await self.write()

    async def write(self) -> None:
        if self._written == self._history.noted:
            return
        noted, data = self._history.noted, encode_events(self._history.find()).encode()
        try:
            await self._workers.run(lambda: self._files.replace(self._path, data))
            self._written = noted
        except OSError as error:
            _log.info("the history is not written to %s: %s", self._path, error)


class ClusterChanges:
    """Counts elections and changes of in-sync sets as images show them, and remembers them.

    Each broker hears of every change in the cluster. It counts what it is responsible for, as
    Kafka's brokers do: in-sync sets of what it leads; elections while it is the controller. It
    remembers all. A subscriber of `cluster.metadata_publisher`.
    """

    def __init__(self, broker_id: BrokerId, figures: BrokerFigures, history: History) -> None:
        self._broker_id = broker_id
        self._figures = figures
        self._history = history

    def on_image(
        self, former: MetadataImage, image: MetadataImage, changed_topics: frozenset[str]
    ) -> None:
        for change in find_partition_changes(former, image, changed_topics):
            self._count(change, is_controller=image.controller_id == self._broker_id)
            self._remember(change)
        for topic in changed_topics:
            if topic in former.topics and topic not in image.topics:
                self._figures.traffics.forget(topic)
        if former.brokers.keys() != image.brokers.keys():
            self._note_brokers(former, image)
        if former.controller_id != image.controller_id != NO_BROKER:
            message = f"broker {image.controller_id} is the controller"
            self._history.note(EventKind.BROKER, str(image.controller_id), message)

    def _count(self, change: PartitionChange, *, is_controller: bool) -> None:
        figures = self._figures
        if change.state.leader == self._broker_id:
            figures.isr_shrinks += bool(change.left)
            figures.isr_expands += bool(change.joined)
        if is_controller and change.is_election:
            figures.elections += 1
            figures.unclean_elections += change.is_unclean

    def _remember(self, change: PartitionChange) -> None:
        subject = str(change.topic_partition)
        told = ((EventKind.ELECTION, describe_leader), (EventKind.ISR, describe_isr))
        for kind, describe in told:
            message = describe(change)
            if message is not None:
                self._history.note(
                    kind,
                    subject,
                    message,
                    leader=change.state.leader,
                    leader_epoch=change.state.leader_epoch,
                    isr=list(change.state.isr),
                )

    def _note_brokers(self, former: MetadataImage, image: MetadataImage) -> None:
        for broker in sorted(image.brokers.keys() - former.brokers.keys()):
            self._history.note(EventKind.BROKER, str(broker), f"broker {broker} has come")
        for broker in sorted(former.brokers.keys() - image.brokers.keys()):
            self._history.note(EventKind.BROKER, str(broker), f"broker {broker} has gone")
