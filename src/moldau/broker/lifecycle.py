"""This broker's place in the cluster: it comes, comes back after a lost session, and goes.

Coming: a registration that its former life left behind is ended; then it writes down what became of
its replicas (`cluster.rules.broker_shutdown`), and only then it registers. The order matters: who
sees the new registration, sees the states too; and while states are written, no former
registration lets anybody take the broker for the one it was.

A lost session: partitions are suspended in the same step; a new session is begun, everything is
read again, the broker registers, and partitions go on. A registration that is gone while its
session lasts was taken away by somebody, perhaps with the whole store: the same, without a new
session.

Going: what it leads is handed over to others in sync.

A shell. One task runs `run`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from moldau.broker.control_plane import min_in_sync_of
from moldau.broker.missing_log_dirs import MissingLogDirs
from moldau.broker.unclean_shutdown import (
    ReplicaLosses,
    SessionNote,
    find_session_note,
    write_session_note,
)
from moldau.clock import Clock, finish_within
from moldau.cluster import znodes
from moldau.cluster.broker_registration import (
    BrokerRegistration,
    ensure_znodes,
    require_same_cluster,
)
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.cluster.rules.broker_shutdown import (
    plan_broker_start,
    plan_controlled_shutdown,
    plan_regressed_store,
)
from moldau.cluster.rules.leader_election import PlannedState
from moldau.cluster.rules.metadata_image import BrokerState, PartitionState, TopicState
from moldau.cluster.state_writer import StateWriter
from moldau.cluster.znodes import encode_log_dir_failure
from moldau.config.broker_options import BrokerOptions
from moldau.coordination.port import (
    Coordination,
    CoordinationError,
    NoNodeError,
    SessionExpiredError,
    StoreLostError,
)
from moldau.errors import ForeignStoreError, InvariantViolation, MoldauError, StorageError
from moldau.model import TopicPartition
from moldau.replication.partitions import Partitions
from moldau.replication.rules.stray_replicas import is_same_topic
from moldau.storage.files import Files
from moldau.storage.log_store import LogStore
from moldau.workers import Workers

_log = logging.getLogger("moldau.broker")

_RETRY_SECONDS = 0.5
_FOREIGN_SECONDS = 5.0
"""Until a store that is not this cluster's is looked at again, and said to be so again."""

_LOOK_SECONDS = 0.02
_CATCH_UP_SECONDS = 2.0
"""So long does a leader that stops wait until its followers have everything."""

_HAND_OVER_SECONDS = 10.0
"""In all; then the broker stops anyway, and the end of its session does the rest."""

_TIMEOUT_FACTOR = 1.5
"""How many session time-outs to wait for a registration that may be one's own."""

PlanStates = Callable[[], list[PlannedState]]


class BrokerLifecycle:
    """See the module."""

    def __init__(
        self,
        broker: BrokerState,
        *,
        coordination: Coordination,
        clock: Clock,
        files: Files,
        workers: Workers,
        boot_id: str,
        options: Callable[[], BrokerOptions],
        log_store: LogStore,
        publisher: MetadataPublisher,
        partitions: Partitions,
    ) -> None:
        self._broker = broker
        self._coordination = coordination
        self._clock = clock
        self._files = files
        self._workers = workers
        self._boot_id = boot_id
        self._options = options
        self._log_store = log_store
        self._publisher = publisher
        self._partitions = partitions
        self._missing = MissingLogDirs(coordination, log_store, broker.id, options)
        self._losses = ReplicaLosses(log_store, broker.id, self._missing, partitions.strays)
        self._states = StateWriter(coordination, publisher)
        self._registration = BrokerRegistration(coordination, clock, publisher)
        self.broker_epoch = -1  # that the last registration gave, -1 before the first
        self._lost = asyncio.Event()  # the session, and it is not renewed yet
        self._is_suspended = False
        coordination.on_session_end(self._on_session_end)
        publisher.subscribe(self._on_image)

    # Coming

    async def join(self, is_stopping: Callable[[], bool]) -> None:
        """Come into the cluster: what the logs have lost is told, and the broker registered.

        Raises the error of the store when the broker `is_stopping`.
        """
        notes = await self._read_session_notes()
        while True:
            try:
                await self._prepare_registration(notes)
                await self._missing.note(self._publisher.image)
                await self._register()
                break
            except (StoreLostError, NoNodeError) as error:
                if is_stopping():
                    raise
                _log.warning("registering again soon: %s", error)
                await self._clock.sleep(_RETRY_SECONDS)
            except SessionExpiredError:
                await self._renew_session(is_stopping)
        if self._is_suspended:
            self._resume()

    async def _prepare_registration(self, notes: Mapping[Path, SessionNote]) -> None:
        """Until the store knows what this broker's logs are worth."""
        await self._missing.read()
        if self._broker.id not in self._publisher.image.brokers:  # else it waits, for a reason
            self._missing.refuse_only_copies(self._publisher.image)
        gone = {
            note.session_id for note in notes.values() if note.is_of_dead_process(self._boot_id)
        }
        for session_id in gone - {self._coordination.session_id}:
            await self._registration.end_former_session(self._broker.id, session_id)
        await self._registration.wait_until_free(self._broker.id, self._timeout_seconds)
        self._partitions.refuse_former_epochs(self._publisher.image)
        await self._finish_deletions()
        await self._restore_stray_replicas(self._publisher.image.topics.values())
        noted = {folder for folder, note in notes.items() if note.boot_id == self._boot_id}
        self._losses.intact_folders = noted if self._boot_id else ()
        written = await self._write_until_done(self._plan_return)
        await self._losses.retire_incomplete(self._publisher.image.topics.values(), written)
        self._losses.log_missing_folders(self._publisher.image)
        await self._losses.note_unreported(self._publisher.image)

    @property
    def _timeout_seconds(self) -> float:
        return _TIMEOUT_FACTOR * self._options().zookeeper_session_timeout_ms / 1000

    def _plan_return(self) -> list[PlannedState]:
        image = self._publisher.image
        self._missing.refuse_only_copies(image)
        return plan_broker_start(
            image.topics.values(),
            self._broker.id,
            image.brokers,
            self._losses.condition_of,
            self._seen_epoch_of,
            min_in_sync_of=self._min_in_sync_of,
        )

    def _min_in_sync_of(self, topic: TopicState) -> int:
        return min_in_sync_of(topic, self._options())

    def _seen_epoch_of(self, topic: TopicState, number: int) -> int:
        """The latest leader epoch that the log here, or this broker, knows of (DEL-2)."""
        key = TopicPartition(topic.name, number)
        log = self._log_store.logs.get(key)
        is_held = log is not None and is_same_topic(log.topic_id, topic.topic_id)
        seen = (
            log.latest_epoch if log is not None and is_held else None,
            self._publisher.regressed_epochs.get(key),
            self._partitions.strays.find_later_epoch(key, topic.partitions[number]),
        )
        return max((epoch for epoch in seen if epoch is not None), default=-1)

    async def _restore_stray_replicas(self, topics: Iterable[TopicState]) -> None:
        """Put logs in their place that were set aside, now that their topics are there again."""
        for topic in topics:
            for number, state in enumerate(topic.partitions):
                if self._broker.id in state.replicas:
                    try:
                        await self._partitions.restore_log(topic, number)
                    except StorageError as error:
                        _log.error("cannot take %s-%d back: %s", topic.name, number, error)

    async def reopen_topic(self, name: str) -> None:
        """A topic is there that was not when this broker came, or that had vanished meanwhile.

        What its logs are worth is written down before they are opened (REP-6).
        """
        while True:
            topic = self._publisher.image.topics.get(name)
            if topic is None:
                return
            try:
                await self._restore_stray_replicas((topic,))
                written = await self._write_until_done(partial(self._plan_reopening, name))
                await self._losses.retire_incomplete((topic,), written)
            except CoordinationError as error:
                _log.warning("%s is opened again soon: %s", name, error)
                await self._clock.sleep(_RETRY_SECONDS)
            else:
                await self._log_store.forget_losses()
                await self._losses.forget_reported(topic)
                self._partitions.on_judged(topic, self._publisher.image)
                return

    def _plan_reopening(self, name: str) -> list[PlannedState]:
        image = self._publisher.image
        topic = image.topics.get(name)
        return [
            planned
            for planned in plan_broker_start(
                () if topic is None else (topic,),
                self._broker.id,
                image.brokers,
                self._losses.condition_of,
                self._seen_epoch_of,
                min_in_sync_of=self._min_in_sync_of,
            )
            if self._partitions.strays.is_unjudged(planned.topic, planned.partition)
        ]

    async def _finish_deletions(self) -> None:
        """Delete the logs of topics that were deleted while this broker was away.

        The topics' last nodes go when it is registered.
        """
        image = self._publisher.image
        for key, log in tuple(self._log_store.logs.items()):
            topic = image.topics.get(key.topic)
            is_there = topic is not None and is_same_topic(log.topic_id, topic.topic_id)
            if not is_there and image.was_deleted(key.topic, log.topic_id):
                try:
                    await self._log_store.delete_log(key)
                except StorageError as error:
                    _log.error("cannot delete %s: %s", key, error)

    async def _write_until_done(self, plan: PlanStates) -> Mapping[TopicPartition, PartitionState]:
        """Write the plan; what somebody else was faster with is planned again.

        Returns what was written.
        """
        wanted: set[TopicPartition] | None = None  # all
        written: dict[TopicPartition, PartitionState] = {}
        while True:
            planned = [one for one in plan() if wanted is None or _key_of(one) in wanted]
            wanted = {_key_of(one) for one in await self._states.find_overtaken(planned)}
            written |= {_key_of(one): one.state for one in planned if _key_of(one) not in wanted}
            if not wanted:
                return written

    async def _register(self) -> None:
        note = SessionNote(session_id=self._coordination.session_id, boot_id=self._boot_id)
        await self._write_session_note(note)
        await self._log_store.forget_losses()
        registered = await self._registration.register(self._broker)
        self.broker_epoch = registered.epoch
        _log.info("registered as broker %d, epoch %d", registered.id, registered.epoch)

    async def _write_session_note(self, note: SessionNote) -> None:
        for folder in self._online_folders:
            try:
                await self._workers.run(partial(write_session_note, self._files, folder, note))
            except OSError as error:  # the next start has to assume the worst, and that is safe
                _log.error("cannot note the session in %s: %s", folder, error)

    @property
    def _online_folders(self) -> list[Path]:
        return [one.folder for one in self._log_store.directories if one.failure is None]

    async def _read_session_notes(self) -> Mapping[Path, SessionNote]:
        """By folder: one that was offline when the machine started has an older one."""
        notes = {}
        for folder in self._online_folders:
            try:
                note = await self._workers.run(partial(find_session_note, self._files, folder))
            except OSError as error:
                _log.error("cannot read what was noted in %s: %s", folder, error)
            else:
                if note is not None:
                    notes[folder] = note
        return notes

    # A lost session, or registration

    def _on_session_end(self) -> None:
        self._is_suspended = True
        self._partitions.suspend()
        self._publisher.hold()
        self._lost.set()

    def _on_image(self, *_: object) -> None:
        if not self._is_suspended and self.broker_epoch >= 0:  # else it is about to register
            self._check_registration()

    def _check_registration(self) -> None:
        """To the others a broker is there as long as it is registered, whatever its session does.

        So one that is not acts upon nothing that it reads: it may be an empty store.
        """
        own = self._publisher.image.brokers.get(self._broker.id)
        if own is None or own.epoch != self.broker_epoch:
            _log.error(
                "the registration of broker %d (%s) is gone or another's, and the session lasts: "
                "somebody has changed the coordination store by hand",
                self._broker.id,
                znodes.broker_path(self._broker.id),
            )
            self._on_session_end()

    def _resume(self) -> None:
        self._is_suspended = False
        self._partitions.resume(self._publisher.image)

    async def run(self) -> None:
        """Join again whenever the session is lost, until cancelled."""
        while True:
            await self._lost.wait()
            _log.warning("nothing is led and followed until the broker is registered again")
            await self._rejoin()

    async def _rejoin(self) -> None:
        while self._lost.is_set():
            try:
                await self._renew_session()
                timeout_seconds = self._timeout_seconds
                await self._registration.wait_until_free(self._broker.id, timeout_seconds)
                await self._write_until_done(self._plan_set_back)
                self._publisher.regressed_epochs.clear()
                await self._register()
                # Others may have been elected while nobody saw this broker: from the registration
                # on it is seen, and so what is read now is what it may act upon.
                await self._publisher.read_again()
                if not self._lost.is_set():
                    self._resume()
                    self._check_registration()
            except (CoordinationError, MoldauError) as error:
                _log.warning("joining the cluster again soon: %s", error)
                self._lost.set()
                await self._clock.sleep(_RETRY_SECONDS)

    def _plan_set_back(self) -> list[PlannedState]:
        topics = self._publisher.image.topics.values()
        planned = plan_regressed_store(topics, self._broker.id, self._seen_epoch_of)
        for one in planned:
            _log.error(
                "%s-%d: the coordination store was set back (its epoch is %d, this broker knows "
                "%d). Nobody leads it until the replica with the latest records is elected",
                one.topic.name,
                one.partition,
                one.former.leader_epoch,
                one.state.leader_epoch - 1,
            )
        return planned

    async def _renew_session(self, is_stopping: Callable[[], bool] = lambda: False) -> None:
        """A new session with the store of this cluster, in which everything was read again."""
        while True:
            try:
                self._lost.clear()
                await self._coordination.renew()
                cluster_id = self._publisher.image.cluster_id
                await require_same_cluster(self._coordination, cluster_id)
                # Of an older store perhaps; nobody begins anew where there is none.
                await ensure_znodes(self._coordination, cluster_id, may_be_new=False)
                await self._publisher.read_in_new_session()
                return
            except (StoreLostError, SessionExpiredError) as error:
                if is_stopping():
                    raise
                _log.warning("no new session yet: %s", error)
                await self._clock.sleep(_RETRY_SECONDS)
            except ForeignStoreError as error:
                _log.error("%s", error)
                await self._clock.sleep(_FOREIGN_SECONDS)

    # Going

    async def run_controlled_shutdown(self) -> None:
        """Controlled shutdown: leave all partitions to others, as far as there are others.

        Afterwards nothing is led and followed here. A broker alone has nobody to hand over to.
        """
        if not self._publisher.image.brokers.keys() - {self._broker.id}:
            return
        if self._options().controlled_shutdown_enable and not self._is_suspended:
            await self._finish_within(_HAND_OVER_SECONDS, self._leave_all_partitions())
        self._partitions.suspend()

    async def _leave_all_partitions(self) -> None:
        led = [one for one in self._plan_shutdown() if one.former.leader == self._broker.id]
        for one in led:
            partition = self._partitions.find(one.topic.name, one.partition)
            if partition is not None:
                partition.stop_accepting()
        await self._finish_within(_CATCH_UP_SECONDS, self._wait_until_caught_up(led))
        await self._leave_partitions(led=True)
        # Who goes on fetching would be taken back into the in-sync sets at once.
        self._partitions.suspend()
        await self._leave_partitions(led=False)

    async def _leave_partitions(self, *, led: bool) -> None:
        for _ in range(self._options().controlled_shutdown_max_retries + 1):
            plan = self._plan_shutdown()
            concerned = [one for one in plan if (one.former.leader == self._broker.id) is led]
            if not await self._states.find_overtaken(concerned):
                return

    def _plan_shutdown(self) -> list[PlannedState]:
        """What is on a failed disk is nothing that this broker still has."""
        return [*self._plan_leaving(is_whole=True), *self._plan_offline()]

    async def _wait_until_caught_up(self, leading: Sequence[PlannedState]) -> None:
        while not all(map(self._is_caught_up, leading)):
            await self._clock.sleep(_LOOK_SECONDS)

    def _is_caught_up(self, planned: PlannedState) -> bool:
        partition = self._partitions.find(planned.topic.name, planned.partition)
        if partition is None or not partition.is_leader:
            return True
        return planned.state.leader in partition.caught_up_followers()

    async def hand_over_offline_replicas(self) -> None:
        """A log directory failed: what was on it is left to others, as far as there are others.

        Nobody else would do it: to the cluster this broker is alive. So it is tried until it is
        done, in the next session if need be.
        """
        while True:
            try:
                await self._write_until_done(self._plan_offline)
                data = encode_log_dir_failure(self._broker.id)
                await self._coordination.create(znodes.LOG_DIR_EVENT_PREFIX, data, sequential=True)
                return
            except CoordinationError as error:
                _log.warning("partitions on a failed disk are handed over soon: %s", error)
                await self._clock.sleep(_RETRY_SECONDS)

    def _plan_offline(self) -> list[PlannedState]:
        return self._plan_leaving(is_whole=False)

    def _plan_leaving(self, *, is_whole: bool) -> list[PlannedState]:
        def concerns(topic: TopicState, number: int) -> bool:
            is_offline = self._partitions.is_offline(TopicPartition(topic.name, number))
            return is_offline is not is_whole

        image = self._publisher.image
        return plan_controlled_shutdown(
            image.topics.values(),
            self._broker.id,
            image.brokers,
            min_in_sync_of=self._min_in_sync_of,
            is_whole=is_whole,
            concerns=concerns,
        )

    async def _finish_within(self, seconds: float, work: Coroutine[Any, Any, None]) -> None:
        """Wait for work, but not for longer than this; its failure is no reason to stay."""
        try:
            await finish_within(work, self._clock, seconds)
        except TimeoutError:
            return
        except InvariantViolation:  # a bug, and what it would have done is not
            _log.exception("not everything was handed over")
        except Exception as failure:  # noqa: BLE001 whatever it is, the broker goes
            _log.warning("not everything was handed over: %s", failure)


def _key_of(planned: PlannedState) -> TopicPartition:
    return TopicPartition(planned.topic.name, planned.partition)
