"""The composition root: puts the rooms of one broker together, starts and stops them in order.

Start: lock and load the log directories (recovery), open the coordination store, read the
metadata, listen, register, become controller, give every partition its part, answer. Stop: the
other way round; every log is flushed and the clean-shutdown marker written, so the next start
scans nothing.

A shell. `Ports` are what a test replaces.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, TypeAlias

from moldau.broker.api import Services
from moldau.broker.authorization import connect_access_control
from moldau.broker.auto_topic_creation import InternalTopics
from moldau.broker.background_tasks import BackgroundTasks
from moldau.broker.control_plane import ControlPlane, connect_control_plane, random_uuid
from moldau.broker.coordinators import Coordinators, connect_coordinators
from moldau.broker.dispatch import DispatchTable
from moldau.broker.dynamic_config import DynamicBrokerConfig, StoredPasswords
from moldau.broker.fetch import FetchSessions
from moldau.broker.identity import BrokerIdentity, establish_identity, warn_of_unconfirmed
from moldau.broker.inter_broker import BrokerConnections
from moldau.broker.lifecycle import BrokerLifecycle
from moldau.broker.listeners import BrokerListeners
from moldau.broker.monitoring.composition import Monitoring
from moldau.broker.ports import Ports
from moldau.broker.purgatory import PartitionEvents, Purgatory
from moldau.broker.replication import Replication, connect_replication
from moldau.broker.security import BrokerSecurity
from moldau.broker.throttling import connect_quotas
from moldau.broker.topic_metadata import EncodedTopics
from moldau.cluster.credentials import DelegationTokens, UserCredentials
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.cluster.producer_id_blocks import ProducerIdBlocks
from moldau.cluster.rules.metadata_image import BrokerState, Endpoint, MetadataImage
from moldau.config.broker_options import BrokerOptions, CurrentBrokerOptions
from moldau.config.listeners import Listener
from moldau.coordination.port import Coordination
from moldau.errors import StartupError
from moldau.model import BrokerId, TopicId, TopicPartition
from moldau.replication.partitions import Partitions
from moldau.storage.log_dirs import find_failure_of_all
from moldau.storage.log_store import LogStore
from moldau.tasks import TaskSupervisor, was_discarded

_log = logging.getLogger("moldau.broker")

_Exit: TypeAlias = Callable[
    [type[BaseException] | None, BaseException | None, TracebackType | None], Awaitable[None]
]


class _Parts(NamedTuple):
    """What is put together before anything runs."""

    log_store: LogStore
    publisher: MetadataPublisher
    connections: BrokerConnections
    partitions: Partitions
    control: ControlPlane
    coordinators: Coordinators
    replication: Replication


class BrokerServer:
    """One broker. `start` once, `stop` once."""

    def __init__(self, static: Mapping[str, str], ports: Ports) -> None:
        self._ports = ports
        self._current = CurrentBrokerOptions(static)
        self._secrets = StoredPasswords(self._current.options, ports.workers)
        self._closing = AsyncExitStack()
        self.monitoring = Monitoring(ports, self._options)
        self._security = BrokerSecurity(ports, self._current, self.monitoring.figures)
        self._table = DispatchTable(self.monitoring.figures.requests)
        self._supervisor = TaskSupervisor(_report_failure)
        self._dynamic = DynamicBrokerConfig(
            self._current, self._secrets, self._supervisor, self._on_settings
        )
        self._tasks = BackgroundTasks(self._supervisor, ports.clock, self._give_up)
        self._failed = asyncio.Event()
        self.failure: str | None = None  # why it cannot go on
        self._services: Services | None = None
        self._lifecycle: BrokerLifecycle | None = None
        self.listeners: tuple[Listener, ...] = ()  # with their real ports, once started

    @property
    def services(self) -> Services:
        if self._services is None:
            raise StartupError("the broker is not started")
        return self._services

    @property
    def bootstrap(self) -> str:
        """Where a client on this machine reaches the broker."""
        listener = self.listeners[0]
        host = "127.0.0.1" if listener.is_on_all_interfaces else listener.host
        return f"[{host}]:{listener.port}" if ":" in host else f"{host}:{listener.port}"

    async def start(self, is_stopping: Callable[[], bool] = lambda: False) -> None:
        """Return when requests are answered. Whatever fails, nothing is left open.

        A broker that `is_stopping` does not wait for a coordination store that is away: then the
        error of the store is raised.
        """
        async with AsyncExitStack() as stack:
            await self._start(stack, is_stopping)
            self._closing = stack.pop_all()

    async def wait_until_failed(self) -> str:
        """Return, with a message, when the broker cannot go on; then it is to be stopped."""
        await self._failed.wait()
        return self.failure or "for no known reason"

    def _give_up(self, name: str, error: BaseException) -> None:
        self._fail(f"{name} failed: {error!r}")

    def _fail(self, reason: str) -> None:
        if self.failure is None:
            self.failure = reason
            self._failed.set()

    async def stop(self) -> None:
        self.monitoring.begin_stop()
        try:
            if self._lifecycle is not None:
                await self._lifecycle.run_controlled_shutdown()
        finally:
            await self._closing.aclose()

    def _options(self) -> BrokerOptions:
        """Those in force now."""
        return self._current.options

    # Starting, phase by phase

    async def _start(self, stack: AsyncExitStack, is_stopping: Callable[[], bool]) -> None:
        await self.monitoring.listen(stack)
        log_store = await self._open_log_store(stack)
        await self.monitoring.open_history(Path(self._options().log_dirs[0]), stack)
        coordination = await self._open_coordination(stack)
        identity = await establish_identity(
            coordination, log_store, self._options(), partial(random_uuid, self._ports.random)
        )
        stack.push_async_callback(self._security.close)
        await self._security.load()
        self._ports = self._security.secure_ports()
        parts = self._put_together(stack, log_store, coordination, identity)
        listeners = await self._listen(stack)
        figures = listeners.figures
        self.monitoring.connect(self.services, coordination, parts.connections, lambda: figures)
        lifecycle = await self._join(coordination, parts, is_stopping)
        self._run(parts, lifecycle)
        self._require_directory()  # it may have failed while nobody was there to hear of it
        await self._dynamic.wait_until_read()
        listeners.answer()
        self.monitoring.run(self._tasks)

    async def _open_log_store(self, stack: AsyncExitStack) -> LogStore:
        ports = self._ports
        log_store = LogStore(
            [Path(folder) for folder in self._options().log_dirs],
            files=ports.files,
            clock=ports.clock,
            workers=ports.workers,
            options=self._options,
            failures=self,
            random=ports.random,
            figures=self.monitoring.figures.storage,
            history=self.monitoring.history,
        )
        await log_store.open()

        async def close() -> None:
            lifecycle = self._lifecycle
            broker_epoch = -1 if lifecycle is None else lifecycle.broker_epoch
            await log_store.close(broker_epoch=broker_epoch, are_losses_told=broker_epoch >= 0)

        stack.push_async_exit(_unless_discarded(close))
        return log_store

    async def _open_coordination(self, stack: AsyncExitStack) -> Coordination:
        first_folder = Path(self._options().log_dirs[0])
        return await stack.enter_async_context(self._ports.open_coordination(first_folder))

    def _put_together(
        self,
        stack: AsyncExitStack,
        log_store: LogStore,
        coordination: Coordination,
        identity: BrokerIdentity,
    ) -> _Parts:
        """Make the parts and introduce them to each other; none of them runs yet."""
        ports, broker_id = self._ports, identity.broker_id
        publisher = MetadataPublisher(
            coordination,
            ports.clock,
            identity.cluster_id,
            on_failure=self._metadata_failed,
            follows_acls=bool(self._options().authorizer_class_name),
        )
        stack.push_async_exit(_unless_discarded(publisher.stop))
        access = connect_access_control(self._options(), ports.clock, coordination, publisher)
        stack.callback(access.close)
        purgatory = Purgatory(ports.clock)
        fetch_sessions = FetchSessions(
            lambda: self._options().max_incremental_fetch_session_cache_slots,
            partial(ports.random.getrandbits, 31),
            self._note_idle,
        )
        events = PartitionEvents(purgatory, fetch_sessions)
        partitions = Partitions(
            log_store,
            broker_id=broker_id,
            options=self._options,
            clock=ports.clock,
            workers=ports.unpacking_workers or ports.workers,
            observer=events,
            lease_end=lambda: coordination.lease_end,
            traffics=self.monitoring.figures.traffics,
        )
        partitions.on_offline = self._hand_over_offline_replicas
        partitions.on_return = self._reopen_topic
        connections = BrokerConnections(ports, lambda: publisher.image, self._options)
        control = connect_control_plane(
            ports,
            connections,
            current=self._current,
            secrets=self._secrets,
            broker_id=broker_id,
            coordination=coordination,
            publisher=publisher,
        )
        stack.push_async_exit(_unless_discarded(control.to_controller.close))
        replication = connect_replication(
            ports,
            connections,
            supervisor=self._supervisor,
            tasks=self._tasks,
            options=self._options,
            broker_id=broker_id,
            coordination=coordination,
            publisher=publisher,
            log_store=log_store,
            partitions=partitions,
        )
        producer_ids = ProducerIdBlocks(coordination, broker_id, log_store.producer_ids)
        coordinators = connect_coordinators(
            ports,
            connections,
            broker_id=broker_id,
            options=self._options,
            topic_maker=control.topic_maker,
            publisher=publisher,
            partitions=partitions,
            producer_ids=producer_ids,
            supervisor=self._supervisor,
            duties=self._tasks,
            services=lambda: self.services,
            on_group_message=self.monitoring.on_group_message,
        )
        stack.push_async_exit(_unless_discarded(coordinators.close))
        events.connect(
            partitions,
            coordinators.groups,
            coordinators.transactions,
            coordinators.share_coordinator,
            coordinators.shares,
            replication.isr_keeper,
            replication.damage_watch,
            replication.fetchers,
        )
        self._services = Services(
            broker_id=broker_id,
            describe_self=self._describe,
            clock=ports.clock,
            spawn=self._supervisor.spawn,
            workers=ports.workers,
            current_options=self._options,
            log_store=log_store,
            partitions=partitions,
            publisher=publisher,
            admin=control.admin,
            credentials=UserCredentials(coordination),
            open_tokens=partial(_open_tokens, coordination, ports, self._options),
            topic_maker=control.topic_maker,
            internal_topics=InternalTopics(
                control.topic_maker, ports.clock, self._supervisor.spawn
            ),
            producer_ids=producer_ids,
            groups=coordinators.groups,
            transaction_verifier=coordinators.transaction_verifier,
            transactions=coordinators.transactions,
            share_coordinator=coordinators.share_coordinator,
            share_persister=coordinators.share_persister,
            share_lag=coordinators.share_lag,
            shares=coordinators.shares,
            purgatory=purgatory,
            leader_quota=replication.leader_quota,
            quotas=connect_quotas(ports.clock, self._options, publisher),
            fetch_sessions=fetch_sessions,
            encoded_topics=EncodedTopics(),
            telemetry=self.monitoring.connect_clients(coordination, self._supervisor.spawn),
            authorizer=access.authorizer,
            acls=access.acls,
            audit=access.audit,
        )
        stack.push_async_exit(_unless_discarded(self._supervisor.close))
        return _Parts(
            log_store, publisher, connections, partitions, control, coordinators, replication
        )

    def _is_controller(self) -> bool:
        return self.services.image.controller_id == self.services.broker_id

    def _note_idle(self, topic_partition: TopicPartition, replica: BrokerId, until: float) -> None:
        self.services.partitions.note_idle(topic_partition, replica, until)

    async def _join(
        self, coordination: Coordination, parts: _Parts, is_stopping: Callable[[], bool]
    ) -> BrokerLifecycle:
        """Read the metadata, come into the cluster, and give every log its part."""
        ports, publisher = self._ports, parts.publisher
        publisher.subscribe(self._on_image)
        await publisher.start()
        lifecycle = self._lifecycle = BrokerLifecycle(
            self._describe(),
            coordination=coordination,
            clock=ports.clock,
            files=ports.files,
            workers=ports.workers,
            boot_id=ports.boot_id(),
            options=self._options,
            log_store=parts.log_store,
            publisher=publisher,
            partitions=parts.partitions,
        )
        await lifecycle.join(is_stopping)
        await parts.control.controller.start()
        await parts.partitions.apply_first_image(publisher.image)
        warn_of_unconfirmed(publisher.image)
        return lifecycle

    def _run(self, parts: _Parts, lifecycle: BrokerLifecycle) -> None:
        """Begin what goes on as long as the broker lives."""
        log_store, partitions, tasks = parts.log_store, parts.partitions, self._tasks
        tasks.require("applying of metadata", partitions.run())
        tasks.require("broker lifecycle", lifecycle.run())
        tasks.require("in-sync sets", parts.replication.isr_keeper.run())
        tasks.keep("controller", parts.control.controller.run)
        tasks.keep("maintenance", partial(log_store.maintain, partitions.high_watermarks))
        parts.coordinators.run(tasks)
        if self._options().delegation_token_secret_key:
            tasks.keep("expiry of tokens", partial(self.services.tokens.run, self._is_controller))
        if self._security.has_certificates:
            tasks.keep("certificates", self._security.run)
        if self._secrets.has_old:
            work = self._dynamic.encrypt_anew(self.services.admin, self.services.broker_id)
            self._supervisor.spawn("new encryption of passwords", work)

    async def _listen(self, stack: AsyncExitStack) -> BrokerListeners:
        listeners = BrokerListeners(
            self._ports.network,
            table=self._table,
            services=self.services,
            supervisor=self._supervisor,
            current=self._current,
            security=self._security,
        )
        await listeners.listen(lambda close: stack.push_async_exit(_unless_discarded(close)))
        self.listeners = self._options().advertise(socket.gethostname(), listeners.ports)
        return listeners

    # The cluster

    def _describe(self) -> BrokerState:
        endpoints = tuple(
            Endpoint(
                listener_name=listener.name,
                host=listener.host,
                port=listener.port,
                security_protocol=listener.security_protocol,
            )
            for listener in self.listeners
        )
        return BrokerState(
            id=self.services.broker_id, endpoints=endpoints, rack=self._current.options.broker_rack
        )

    def _on_image(
        self, former: MetadataImage, image: MetadataImage, changed_topics: frozenset[str]
    ) -> None:
        if image.acls is not former.acls:
            self.services.fetch_sessions.on_access_change()
        broker_id = self.services.broker_id
        dynamic, default = image.broker_config(broker_id), image.broker_config(None)
        if (dynamic, default) != (former.broker_config(broker_id), former.broker_config(None)):
            self._dynamic.follow(dynamic, default)
        self.services.partitions.on_image(image, changed_topics)
        deleted = _deleted_topics(former, image, changed_topics)
        self.services.groups.forget_topics(frozenset(deleted))
        self.services.share_coordinator.forget_topics(set(deleted.values()))

    def _on_settings(self) -> None:
        self.services.partitions.refresh_options()
        self.services.groups.refresh_options()

    # Failures

    def directory_failed(self, folder: Path, error: OSError) -> None:
        """A disk failed: its partitions are not served any more; the others go on.

        Without any the broker ends, as Kafka's does: whoever looks after it has to hear of it.
        """
        _log.error(
            "the log directory %s failed (%s) and is offline: its partitions are not served until "
            "the cause is removed and the broker started again",
            folder,
            error,
        )
        if self._services is not None:  # while it starts, no partition is served yet
            self._services.partitions.drop_offline(folder)
            self._hand_over_offline_replicas()
            self._require_directory()

    def _require_directory(self) -> None:
        failure = find_failure_of_all(self.services.log_store.directories)
        if failure is not None:
            self._fail(failure)

    def _reopen_topic(self, topic: str) -> None:
        """A topic is there again whose logs are here."""
        if self._lifecycle is not None:
            name = f"return of topic {topic}"
            self._supervisor.spawn(name, self._lifecycle.reopen_topic(topic))

    def _hand_over_offline_replicas(self) -> None:
        """Leave partitions that cannot be served here to other brokers."""
        if self._lifecycle is not None:
            self._tasks.require("giving up of a disk", self._lifecycle.hand_over_offline_replicas())

    def _metadata_failed(self, name: str, error: BaseException) -> None:
        _log.critical("%s failed, the broker ends: %s", name, error, exc_info=error)
        self._give_up(name, error)


def _open_tokens(
    coordination: Coordination, ports: Ports, options: Callable[[], BrokerOptions]
) -> DelegationTokens:
    return DelegationTokens(coordination, ports.clock, options, partial(random_uuid, ports.random))


def _unless_discarded(close: Callable[[], Awaitable[None]]) -> _Exit:
    """Closes a part of the broker, unless the broker was thrown away with its event loop.

    Then there is nobody to wait for, and on disk is what a killed process leaves there.
    """

    async def leave(
        kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not was_discarded(error):
            await close()

    return leave


def _deleted_topics(
    former: MetadataImage, image: MetadataImage, changed_topics: frozenset[str]
) -> dict[str, TopicId]:
    """By their former names; one that was made again under the same name is another topic.

    A topic that is marked for deletion is named twice: now, and when it is gone. A topic that
    merely vanished may come back, and then its groups go on where they were (DEL-1).
    """
    known = {name: topic.topic_id for name in changed_topics if (topic := former.topics.get(name))}
    marked = {name: former.deleting[name] for name in changed_topics & former.deleting.keys()}
    return {
        name: topic_id
        for name, topic_id in {**marked, **known}.items()
        if image.was_deleted(name, topic_id)
    }


def _report_failure(name: str, error: BaseException) -> None:
    _log.error("%s ended: %s", name, error, exc_info=error)
