"""The controller's duties, one after the other, from a queue. A shell.

Every broker runs one. It claims the controllership when nobody has it, and then does what is due:
it elects leaders when brokers come, go or restart, and where a partition has none; where all are
lost that could lead, it asks the others for their logs, beside everything else; it gives ids to
topics that old tools made; it deletes topics, moves partitions and gives leadership back, as
clients and tools ask for it. Each duty reads the current image, asks a rule for a plan and writes
it under the term; who loses a race reads and plans again. A new controller plans from the whole
image: nothing that the old one had in mind matters.

What becomes due twice before it is done is done once, from the image that is current then. One
task runs `run`; everything else only marks what is due.
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


class Duty(IntEnum):
    """What may be due; when a term begins, all of it is, in this order."""

    CLAIM = auto()
    TOUCHED_TOPICS = auto()  # their nodes were written, by an old tool perhaps
    BROKERS = auto()
    TOPICS = auto()
    RECOVERY = auto()  # of partitions that nobody may lead
    DELETIONS = auto()
    REASSIGNMENT = auto()
    PREFERRED_LEADERS = auto()
    BALANCE = auto()
    LOG_DIR_EVENTS = auto()


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
        self._duties: Mapping[Duty, Callable[[ControllerTerm], Awaitable[None]]] = {
            Duty.TOUCHED_TOPICS: self._read_touched_topics,
            Duty.BROKERS: self._look_at_brokers,
            Duty.TOPICS: self._look_at_topics,
            Duty.RECOVERY: self._begin_recovery,
            Duty.DELETIONS: self._look_at_deletions,
            Duty.REASSIGNMENT: self._honour_reassignment,
            Duty.PREFERRED_LEADERS: self._honour_preferred_election,
            Duty.BALANCE: self._balance,
            Duty.LOG_DIR_EVENTS: self._forget_log_dir_events,
        }
        self._due: dict[Duty, None] = {}  # in the order in which they became due
        self._woken = asyncio.Event()
        self._topics: set[str] = set()  # to be looked at
        self._touched: set[str] = set()  # to be read again
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
        self._mark(Duty.CLAIM)
        try:
            await self._do_what_is_due()
        except (KafkaError, CoordinationError) as error:
            _log.warning("the controller's duties wait: %s", error)
            self._is_waiting = True
        return self._controllership.find_term()

    async def run(self) -> None:
        """Do what becomes due, until cancelled.

        When it fails the term is over: the next one, here or elsewhere, plans from the whole image.
        """
        if not self._watches:  # begun again
            self._watch()
            self._mark(Duty.CLAIM)
        try:
            while True:
                await self._woken.wait()
                self._woken.clear()
                await self._do_with_retries()
        except (Exception, asyncio.CancelledError):
            self._end_watches()
            if self._recovering is not None:
                self._recovering.cancel()
            await self._controllership.resign()
            raise

    # What is due

    def _mark(self, *duties: Duty) -> None:
        self._due.update(dict.fromkeys(duties))
        self._woken.set()

    def _mark_topics(self, names: Collection[str]) -> None:
        self._topics.update(names)
        self._mark(Duty.TOPICS)

    def _on_image(
        self, former: MetadataImage, image: MetadataImage, changed: frozenset[str]
    ) -> None:
        if image.controller_id != former.controller_id or image.controller_id == NO_BROKER:
            self._mark(Duty.CLAIM)
        if self._controllership.find_term() is None:
            return  # everything is due when a term begins
        if image.brokers != former.brokers:
            self._mark(Duty.BROKERS)
        if changed:
            self._mark_topics(changed)
        if image.deleting.keys() - former.deleting.keys():
            self._mark(Duty.DELETIONS)
        if (
            image.default_broker_config != former.default_broker_config
            or image.broker_configs != former.broker_configs
        ):
            self._mark_topics(image.topics.keys())  # unclean election may be allowed now

    def _watch(self) -> None:
        def marking(duty: Duty) -> Callable[[], None]:
            return lambda: self._mark(duty)

        watch_data = self._coordination.watch_data
        watch_children = self._coordination.watch_children
        self._watches += [
            watch_children(znodes.DELETE_TOPICS, marking(Duty.DELETIONS)),
            watch_data(znodes.REASSIGN_PARTITIONS, marking(Duty.REASSIGNMENT)),
            watch_data(znodes.PREFERRED_ELECTION, marking(Duty.PREFERRED_LEADERS)),
            watch_children(znodes.LOG_DIR_EVENTS, marking(Duty.LOG_DIR_EVENTS)),
        ]

    def _end_watches(self) -> None:
        for watch in self._watches:
            watch.cancel()
        self._watches.clear()
        self._forget_topics()
        for timer in (self._balance_timer, self._recovery_timer):
            if timer is not None:
                timer.cancel()

    # Doing it

    async def _do_with_retries(self) -> None:
        try:
            await self._do_what_is_due()
            self._is_waiting = False
        except NotControllerError as error:
            _log.info("%s", error)
            self._controllership.end_term()
        except SessionExpiredError:
            self._controllership.end_term()  # all is due again in the next term
        except CoordinationError as error:  # nobody answers, or others write the same nodes
            level = logging.DEBUG if self._is_waiting else logging.WARNING
            _log.log(level, "the controller's duties wait: %s", error)
            self._is_waiting = True
            await self._publisher.clock.sleep(RETRY_SECONDS)
            self._woken.set()
        except Exception:  # noqa: BLE001 of one duty, which comes after the others from now on
            _log.exception("the controller could not do something, and tries again soon")
            await self._publisher.clock.sleep(RETRY_SECONDS)
            self._woken.set()

    async def _do_what_is_due(self) -> None:
        while self._due:
            duty = Duty.CLAIM if Duty.CLAIM in self._due else next(iter(self._due))
            del self._due[duty]
            try:
                await self._do(duty)
            except Exception:
                self._due[duty] = None
                raise

    async def _do(self, duty: Duty) -> None:
        if duty is Duty.CLAIM:
            await self._maybe_claim()
            return
        term = self._controllership.find_term()
        if term is None:
            self._forget_topics()
        else:
            await self._duties[duty](term)

    async def _maybe_claim(self) -> None:
        image = self._publisher.image
        broker_id = self._controllership.broker_id
        if self._publisher.is_held:
            return  # it is not known whose store this is; due again when it is read
        if image.controller_id != broker_id:
            self._controllership.end_term()
        if image.controller_id not in (NO_BROKER, broker_id) or broker_id not in image.brokers:
            return
        if self._controllership.find_term() is None:
            term = await self._controllership.claim()
            if term is not None:
                self._begin_term(term)

    def _begin_term(self, term: ControllerTerm) -> None:
        _log.info("this broker is the controller, epoch %d", term.epoch)
        image = self._publisher.image
        self._touched.clear()
        self._due.clear()
        self._mark(*(duty for duty in Duty if duty not in (Duty.CLAIM, Duty.BALANCE)))
        self._mark_topics(image.topics.keys())
        self._arm_balance()

    async def _read_touched_topics(self, term: ControllerTerm) -> None:
        touched, self._touched = self._touched, set()
        try:
            await self._publisher.refresh_topics(touched)
        except BaseException:
            self._touched |= touched
            raise

    async def _look_at_deletions(self, term: ControllerTerm) -> None:
        is_enabled = self._settings().deletes_topics
        await self.deletion.honour_requests(term, is_enabled=is_enabled)
        await self.deletion.finish(term)

    async def _look_at_brokers(self, term: ControllerTerm) -> None:
        """One came, went or was restarted: each partition may need another leader."""
        self._mark_topics(self._publisher.image.topics.keys())
        await self.deletion.finish(term)

    async def _look_at_topics(self, term: ControllerTerm) -> None:
        names, self._topics = self._topics, set()
        try:
            await self._name_topics(term, names)
            await self.elections.elect(term, names)
            await self.reassignments.advance(term, names)
            # A request for each topic, which elections do not wait for.
            await self._look_for_touched(self._watch_topics(names))
        except BaseException:
            self._topics |= names
            raise
        if self.recovery.is_needed(names):
            self._failed_recoveries = 0
            self._to_recover |= names
            self._mark(Duty.RECOVERY)
        if self._has_reassignment:
            self._mark(Duty.REASSIGNMENT)  # something may have arrived

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
                    znodes.topic_path(name), self._touching(name)
                )
                watched.append(name)
        return watched

    async def _look_for_touched(self, names: Sequence[str]) -> None:
        """What was written before the topic was watched: while there was no controller, perhaps."""
        nodes = await self._coordination.get_many([znodes.topic_path(name) for name in names])
        topics = self._publisher.image.topics
        for name, node in zip(names, nodes, strict=True):
            if node is not None and name in topics and node.version != topics[name].version:
                self._touching(name)()

    def _forget_topics(self) -> None:
        for watch in self._topic_watches.values():
            watch.cancel()
        self._topic_watches.clear()

    def _touching(self, name: str) -> Callable[[], None]:
        def touch() -> None:
            self._touched.add(name)
            self._mark(Duty.TOUCHED_TOPICS)

        return touch

    async def _name_topics(self, term: ControllerTerm, names: Collection[str]) -> None:
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
            write = topic_operations.assignment_write(named, node.version)
            told = topic_operations.notification([topic.name])
            try:
                await self._controllership.transact(term, (write, told))
            except (BadVersionError, NoNodeError):
                await self._publisher.refresh_topics((topic.name,))
            else:
                present = self._publisher.image.topics.get(topic.name, topic)  # newer states
                self._publisher.apply_topics((replace(named, partitions=present.partitions),))

    async def _begin_recovery(self, term: ControllerTerm) -> None:
        """Not in turn with the other duties: a broker that does not answer must not hold them."""
        if self._recovering is None and self._to_recover:
            names, self._to_recover = self._to_recover, set()
            self._recovering = asyncio.create_task(self._recover(term, names))

    async def _recover(self, term: ControllerTerm, names: set[str]) -> None:
        is_done = False
        try:
            is_done = await self.recovery.recover(term, names)
        except (KafkaError, CoordinationError) as error:
            _log.warning("leaders cannot be recovered yet: %s", error)
        except Exception:  # noqa: BLE001 the controller has other duties, and this one comes again
            _log.exception("leaders could not be recovered, which is tried again soon")
        finally:
            self._recovering = None
        if is_done:
            self._failed_recoveries = 0
            self._mark(Duty.RECOVERY)  # of others meanwhile
            return
        self._to_recover |= names
        pause_seconds = RETRY_SECONDS * 2 ** min(self._failed_recoveries, 5)
        self._failed_recoveries += 1
        if self._recovery_timer is not None:
            self._recovery_timer.cancel()
        self._recovery_timer = self._publisher.clock.call_later(
            pause_seconds, lambda: self._mark(Duty.RECOVERY)
        )

    async def _honour_reassignment(self, term: ControllerTerm) -> None:
        self._has_reassignment = await self.reassignments.honour_request(term)

    async def _honour_preferred_election(self, term: ControllerTerm) -> None:
        node = await self._coordination.get(znodes.PREFERRED_ELECTION)
        if node is None:
            return
        try:
            wanted = decode_preferred_election(node.data)
        except MalformedNodeError as error:
            _log.error("a request for preferred leaders is dropped: %s", error)
            wanted = []
        await self.elections.prefer(term, wanted)
        try:
            deletion = Delete(path=znodes.PREFERRED_ELECTION, version=node.version)
            await self._controllership.transact(term, (deletion,))
        except (BadVersionError, NoNodeError):
            self._mark(Duty.PREFERRED_LEADERS)  # a tool was faster

    def _arm_balance(self) -> None:
        if self._balance_timer is not None:
            self._balance_timer.cancel()
        self._balance_timer = self._publisher.clock.call_later(
            self._settings().rebalance_interval_seconds, lambda: self._mark(Duty.BALANCE)
        )

    async def _balance(self, term: ControllerTerm) -> None:
        self._arm_balance()
        settings = self._settings()
        if settings.rebalances:
            await self.elections.rebalance(term, settings.accepted_imbalance_percentage)

    async def _forget_log_dir_events(self, term: ControllerTerm) -> None:
        """The broker that lost a directory has handed its partitions over itself."""
        for name in await self._coordination.children(znodes.LOG_DIR_EVENTS):
            try:
                await self._coordination.delete(f"{znodes.LOG_DIR_EVENTS}/{name}")
            except NoNodeError:
                continue
