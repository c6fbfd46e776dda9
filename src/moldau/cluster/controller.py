"""The controller: events from a queue, processed one after the other. A shell.

Every broker runs one. It is elected when no broker is the controller, and then processes what is
queued: it elects leaders when brokers come, go or restart, and where a partition has none; where
all replicas that could lead are lost, it asks the others for their logs, beside everything else; it
gives ids to topics that old tools made; it deletes topics, moves partitions and gives leadership
back, as clients and tools ask for it. Each event reads the current image, asks a rule for a plan
and writes it under the controller's epoch; whoever loses a race reads and plans again. A new
controller plans from the whole image: nothing that the old one had in memory matters.

An event that is queued twice is processed once, from the image that is current then. One task runs
`run`; everything else only adds events to the queue.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum, auto
from typing import NamedTuple

from moldau.clock import Timer
from moldau.cluster import topic_operations, znodes
from moldau.cluster.broker_registration import new_topic_id
from moldau.cluster.controller_election import ControllerElection, ControllerTerm
from moldau.cluster.elections import (
    AskLogEnds,
    Elections,
    StrategyOf,
    UncleanRecovery,
    nobody_answers,
)
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.cluster.reassignments import Reassignments
from moldau.cluster.rules.leader_election import MinInSync
from moldau.cluster.rules.metadata_image import NO_TOPIC_ID, MetadataImage
from moldau.cluster.state_writer import StateWriter
from moldau.cluster.topic_deletion import TopicDeletion
from moldau.cluster.znodes import decode_preferred_election
from moldau.coordination.port import (
    BadVersionError,
    Coordination,
    CoordinationError,
    Delete,
    NoNodeError,
    SessionExpiredError,
    Watch,
)
from moldau.errors import KafkaError, MalformedNodeError, NotControllerError
from moldau.model import NO_BROKER, TopicId

_log = logging.getLogger("moldau.cluster.controller")

RETRY_SECONDS = 0.5


class ControllerEvent(IntEnum):
    """As in Kafka's controller. When a term begins, all are queued, in this order."""

    REELECT = auto()
    PARTITION_MODIFICATIONS = auto()  # their nodes were written, by an old tool perhaps
    BROKER_CHANGE = auto()
    TOPIC_CHANGE = auto()
    UNCLEAN_RECOVERY = auto()  # of partitions that nobody may lead
    TOPIC_DELETION = auto()
    PARTITION_REASSIGNMENT = auto()
    REPLICA_LEADER_ELECTION = auto()
    LEADER_REBALANCE = auto()
    LOG_DIR_EVENT = auto()


class ControllerSettings(NamedTuple):
    """The options that the controller goes by."""

    deletes_topics: bool = True
    rebalances: bool = True
    rebalance_interval_seconds: float = 300.0
    accepted_imbalance_percentage: int = 10


class Controller:
    """Acts only while this broker has the term."""

    def __init__(
        self,
        *,
        coordination: Coordination,
        publisher: MetadataPublisher,
        controllership: ControllerElection,
        min_in_sync_of: MinInSync,
        strategy_of: StrategyOf,
        ask_log_ends: AskLogEnds = nobody_answers,
        deletion: TopicDeletion | None = None,
        settings: Callable[[], ControllerSettings] = ControllerSettings,
        make_topic_id: Callable[[], TopicId] = new_topic_id,
    ) -> None:
        self._coordination = coordination
        self._publisher = publisher
        self._controllership = controllership
        self._settings = settings
        self._make_topic_id = make_topic_id
        states = StateWriter(coordination, publisher)
        self.elections = Elections(
            publisher, states, min_in_sync_of=min_in_sync_of, ask_log_ends=ask_log_ends
        )
        self.recovery = UncleanRecovery(
            publisher, states, strategy_of=strategy_of, ask=ask_log_ends
        )
        self.reassignments = Reassignments(coordination, publisher, states)
        self.deletion = deletion or TopicDeletion(coordination, publisher)
        self._processors: Mapping[ControllerEvent, Callable[[ControllerTerm], Awaitable[None]]] = {
            ControllerEvent.PARTITION_MODIFICATIONS: self._process_partition_modifications,
            ControllerEvent.BROKER_CHANGE: self._process_broker_change,
            ControllerEvent.TOPIC_CHANGE: self._process_topic_change,
            ControllerEvent.UNCLEAN_RECOVERY: self._process_unclean_recovery,
            ControllerEvent.TOPIC_DELETION: self._process_topic_deletion,
            ControllerEvent.PARTITION_REASSIGNMENT: self._process_partition_reassignment,
            ControllerEvent.REPLICA_LEADER_ELECTION: self._process_replica_leader_election,
            ControllerEvent.LEADER_REBALANCE: self._process_leader_rebalance,
            ControllerEvent.LOG_DIR_EVENT: self._process_log_dir_event,
        }
        self._queued: dict[ControllerEvent, None] = {}  # in the order in which they came
        self._woken = asyncio.Event()
        self._topics: set[str] = set()  # to be looked at
        self._modified: set[str] = set()  # to be read again
        self._has_reassignment = False  # asked for by the old tool, and not done yet
        self._watches: list[Watch] = []
        self._topic_watches: dict[str, Watch] = {}  # while the term lasts
        self._balance_timer: Timer | None = None
        self._to_recover: set[str] = set()  # topics
        self._recovering: asyncio.Task[None] | None = None
        self._recovery_timer: Timer | None = None
        self._failed_recoveries = 0  # in a row
        self._is_waiting = False  # for the store, and it was said

    # Life

    async def start(self) -> ControllerTerm | None:
        """Become the controller if nobody is, and put the cluster in order."""
        self._publisher.subscribe(self._on_image)
        self._watch()
        self._enqueue(ControllerEvent.REELECT)
        try:
            await self._process_events()
        except (KafkaError, CoordinationError) as error:
            _log.warning("Controller work failed and will be retried: %s", error)
            self._is_waiting = True
        return self._controllership.find_term()

    async def run(self) -> None:
        """Process events until cancelled.

        When it fails the term is over: the next one, here or elsewhere, plans from the whole image.
        """
        if not self._watches:  # begun again
            self._watch()
            self._enqueue(ControllerEvent.REELECT)
        try:
            while True:
                await self._woken.wait()
                self._woken.clear()
                await self._process_with_retries()
        except (Exception, asyncio.CancelledError):
            self._end_watches()
            if self._recovering is not None:
                self._recovering.cancel()
            await self._controllership.resign()
            raise

    # The queue

    def _enqueue(self, *events: ControllerEvent) -> None:
        self._queued.update(dict.fromkeys(events))
        self._woken.set()

    def _enqueue_topics(self, names: Collection[str]) -> None:
        self._topics.update(names)
        self._enqueue(ControllerEvent.TOPIC_CHANGE)

    def _on_image(
        self, former: MetadataImage, image: MetadataImage, changed: frozenset[str]
    ) -> None:
        if image.controller_id != former.controller_id or image.controller_id == NO_BROKER:
            self._enqueue(ControllerEvent.REELECT)
        if self._controllership.find_term() is None:
            return  # everything is queued when a term begins
        if image.brokers != former.brokers:
            self._enqueue(ControllerEvent.BROKER_CHANGE)
        if changed:
            self._enqueue_topics(changed)
        if image.deleting.keys() - former.deleting.keys():
            self._enqueue(ControllerEvent.TOPIC_DELETION)
        if (
            image.default_broker_config != former.default_broker_config
            or image.broker_configs != former.broker_configs
        ):
            self._enqueue_topics(image.topics.keys())  # unclean election may be allowed now

    def _watch(self) -> None:
        def enqueuing(event: ControllerEvent) -> Callable[[], None]:
            return lambda: self._enqueue(event)

        watch_data = self._coordination.watch_data
        watch_children = self._coordination.watch_children
        self._watches += [
            watch_children(znodes.DELETE_TOPICS, enqueuing(ControllerEvent.TOPIC_DELETION)),
            watch_data(
                znodes.REASSIGN_PARTITIONS, enqueuing(ControllerEvent.PARTITION_REASSIGNMENT)
            ),
            watch_data(
                znodes.PREFERRED_ELECTION, enqueuing(ControllerEvent.REPLICA_LEADER_ELECTION)
            ),
            watch_children(znodes.LOG_DIR_EVENTS, enqueuing(ControllerEvent.LOG_DIR_EVENT)),
        ]

    def _end_watches(self) -> None:
        for watch in self._watches:
            watch.cancel()
        self._watches.clear()
        self._unwatch_topics()
        for timer in (self._balance_timer, self._recovery_timer):
            if timer is not None:
                timer.cancel()

    # Processing

    async def _process_with_retries(self) -> None:
        try:
            await self._process_events()
            self._is_waiting = False
        except NotControllerError as error:
            _log.info("%s", error)
            self._controllership.end_term()
        except SessionExpiredError:
            self._controllership.end_term()  # everything is queued again in the next term
        except CoordinationError as error:  # nobody answers, or others write the same nodes
            level = logging.DEBUG if self._is_waiting else logging.WARNING
            _log.log(level, "Controller work failed and will be retried: %s", error)
            self._is_waiting = True
            await self._publisher.clock.sleep(RETRY_SECONDS)
            self._woken.set()
        except Exception:  # noqa: BLE001 of one event, which is processed after the others from now on
            _log.exception("Controller work failed and will be retried")
            await self._publisher.clock.sleep(RETRY_SECONDS)
            self._woken.set()

    async def _process_events(self) -> None:
        while self._queued:
            event = (
                ControllerEvent.REELECT
                if ControllerEvent.REELECT in self._queued
                else next(iter(self._queued))
            )
            del self._queued[event]
            try:
                await self._process(event)
            except Exception:
                self._queued[event] = None
                raise

    async def _process(self, event: ControllerEvent) -> None:
        if event is ControllerEvent.REELECT:
            await self._maybe_elect()
            return
        term = self._controllership.find_term()
        if term is None:
            self._unwatch_topics()
        else:
            await self._processors[event](term)

    async def _maybe_elect(self) -> None:
        image = self._publisher.image
        broker_id = self._controllership.broker_id
        if self._publisher.is_held:
            return  # it is not known whose store this is; queued again when it is read
        if image.controller_id != broker_id:
            self._controllership.end_term()
        if image.controller_id not in (NO_BROKER, broker_id) or broker_id not in image.brokers:
            return
        if self._controllership.find_term() is None:
            term = await self._controllership.claim()
            if term is not None:
                self._start_term(term)

    def _start_term(self, term: ControllerTerm) -> None:
        _log.info("this broker is the controller, epoch %d", term.epoch)
        image = self._publisher.image
        self._modified.clear()
        self._queued.clear()
        self._enqueue(
            *(
                event
                for event in ControllerEvent
                if event not in (ControllerEvent.REELECT, ControllerEvent.LEADER_REBALANCE)
            )
        )
        self._enqueue_topics(image.topics.keys())
        self._start_balance_timer()

    async def _process_partition_modifications(self, term: ControllerTerm) -> None:
        modified, self._modified = self._modified, set()
        try:
            await self._publisher.refresh_topics(modified)
        except BaseException:
            self._modified |= modified
            raise

    async def _process_topic_deletion(self, term: ControllerTerm) -> None:
        is_enabled = self._settings().deletes_topics
        await self.deletion.process_requests(term, is_enabled=is_enabled)
        await self.deletion.finish_deletions(term)

    async def _process_broker_change(self, term: ControllerTerm) -> None:
        """One came, went or was restarted: each partition may need another leader."""
        self._enqueue_topics(self._publisher.image.topics.keys())
        await self.deletion.finish_deletions(term)

    async def _process_topic_change(self, term: ControllerTerm) -> None:
        names, self._topics = self._topics, set()
        try:
            await self._assign_topic_ids(term, names)
            await self.elections.elect(term, names)
            await self.reassignments.advance(term, names)
            # A request for each topic, which elections do not wait for.
            await self._find_modified_topics(self._watch_topics(names))
        except BaseException:
            self._topics |= names
            raise
        if self.recovery.is_needed(names):
            self._failed_recoveries = 0
            self._to_recover |= names
            self._enqueue(ControllerEvent.UNCLEAN_RECOVERY)
        if self._has_reassignment:
            self._enqueue(ControllerEvent.PARTITION_REASSIGNMENT)  # something may have arrived

    def _watch_topics(self, names: Collection[str]) -> list[str]:
        """Old tools add partitions by writing the topic's node, and tell nobody.

        Returns the topics that are watched from now on, and were not before.
        """
        topics = self._publisher.image.topics
        watched = []
        for name in sorted(names):
            if name not in topics and name in self._topic_watches:
                self._topic_watches.pop(name).cancel()
            elif name in topics and name not in self._topic_watches:
                self._topic_watches[name] = self._coordination.watch_data(
                    znodes.topic_path(name), self._note_modification(name)
                )
                watched.append(name)
        return watched

    async def _find_modified_topics(self, names: Sequence[str]) -> None:
        """What was written before the topic was watched: while there was no controller, perhaps."""
        nodes = await self._coordination.get_many([znodes.topic_path(name) for name in names])
        topics = self._publisher.image.topics
        for name, node in zip(names, nodes, strict=True):
            if node is not None and name in topics and node.version != topics[name].version:
                self._note_modification(name)()

    def _unwatch_topics(self) -> None:
        for watch in self._topic_watches.values():
            watch.cancel()
        self._topic_watches.clear()

    def _note_modification(self, name: str) -> Callable[[], None]:
        def touch() -> None:
            self._modified.add(name)
            self._enqueue(ControllerEvent.PARTITION_MODIFICATIONS)

        return touch

    async def _assign_topic_ids(self, term: ControllerTerm, names: Collection[str]) -> None:
        """Give an id to each topic that an old tool made without one."""
        topics = (self._publisher.image.topics.get(name) for name in sorted(names))
        for topic in topics:
            if topic is None or topic.topic_id != NO_TOPIC_ID:
                continue
            node = await self._coordination.get(znodes.topic_path(topic.name))
            if node is None:
                continue
            if node.version != topic.version:
                await self._publisher.refresh_topics((topic.name,))
                continue
            named = replace(topic, topic_id=self._make_topic_id(), version=node.version + 1)
            write = topic_operations.write_assignment(named, node.version)
            told = topic_operations.notify_topics([topic.name])
            try:
                await self._controllership.transact(term, (write, told))
            except (BadVersionError, NoNodeError):
                await self._publisher.refresh_topics((topic.name,))
            else:
                present = self._publisher.image.topics.get(topic.name, topic)  # newer states
                self._publisher.apply_topics((replace(named, partitions=present.partitions),))

    async def _process_unclean_recovery(self, term: ControllerTerm) -> None:
        """Beside the other events: a broker that does not answer must not delay them."""
        if self._recovering is None and self._to_recover:
            names, self._to_recover = self._to_recover, set()
            self._recovering = asyncio.create_task(self._recover(term, names))

    async def _recover(self, term: ControllerTerm, names: set[str]) -> None:
        is_done = False
        try:
            is_done = await self.recovery.recover(term, names)
        except (KafkaError, CoordinationError) as error:
            _log.warning("leaders cannot be recovered yet: %s", error)
        except Exception:  # noqa: BLE001 other events go on, and this one comes again
            _log.exception("leaders could not be recovered, which is tried again soon")
        finally:
            self._recovering = None
        if is_done:
            self._failed_recoveries = 0
            self._enqueue(ControllerEvent.UNCLEAN_RECOVERY)  # of others meanwhile
            return
        self._to_recover |= names
        pause_seconds = RETRY_SECONDS * 2 ** min(self._failed_recoveries, 5)
        self._failed_recoveries += 1
        if self._recovery_timer is not None:
            self._recovery_timer.cancel()
        self._recovery_timer = self._publisher.clock.call_later(
            pause_seconds, lambda: self._enqueue(ControllerEvent.UNCLEAN_RECOVERY)
        )

    async def _process_partition_reassignment(self, term: ControllerTerm) -> None:
        self._has_reassignment = await self.reassignments.process_request(term)

    async def _process_replica_leader_election(self, term: ControllerTerm) -> None:
        node = await self._coordination.get(znodes.PREFERRED_ELECTION)
        if node is None:
            return
        try:
            wanted = decode_preferred_election(node.data)
        except MalformedNodeError as error:
            _log.error("a request for preferred leaders is dropped: %s", error)
            wanted = []
        await self.elections.elect_preferred(term, wanted)
        try:
            deletion = Delete(path=znodes.PREFERRED_ELECTION, version=node.version)
            await self._controllership.transact(term, (deletion,))
        except (BadVersionError, NoNodeError):
            self._enqueue(ControllerEvent.REPLICA_LEADER_ELECTION)  # a tool was faster

    def _start_balance_timer(self) -> None:
        if self._balance_timer is not None:
            self._balance_timer.cancel()
        self._balance_timer = self._publisher.clock.call_later(
            self._settings().rebalance_interval_seconds,
            lambda: self._enqueue(ControllerEvent.LEADER_REBALANCE),
        )

    async def _process_leader_rebalance(self, term: ControllerTerm) -> None:
        self._start_balance_timer()
        settings = self._settings()
        if settings.rebalances:
            await self.elections.rebalance(term, settings.accepted_imbalance_percentage)

    async def _process_log_dir_event(self, term: ControllerTerm) -> None:
        """The broker that lost a directory has handed its partitions over itself."""
        for name in await self._coordination.children(znodes.LOG_DIR_EVENTS):
            try:
                await self._coordination.delete(f"{znodes.LOG_DIR_EVENTS}/{name}")
            except NoNodeError:
                continue
