"""Unclean shutdown: what the logs of a broker may have lost, and who has to know of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from moldau.broker.missing_log_dirs import MissingLogDirs
from moldau.cluster.rules.broker_shutdown import ReplicaCondition, decide_condition, has_only_copy
from moldau.cluster.rules.metadata_image import NO_NODE, MetadataImage, PartitionState, TopicState
from moldau.errors import StorageError
from moldau.model import NO_BROKER, BrokerId, TopicPartition
from moldau.replication.replica_logs import StrayReplicas
from moldau.replication.rules.stray_replicas import is_same_topic
from moldau.storage.files import Files
from moldau.storage.log import Log
from moldau.storage.log_store import LogStore
from moldau.storage.rules.file_names import LOCK_FILE

SESSION_FILE = "presence.json"
SESSION_FILE_VERSION = 1

_log = logging.getLogger("moldau.broker")


class SessionNote(NamedTuple):
    """What a broker notes in each of its log directories about its presence in the cluster.

        {"version":1,"session_id":72057594037927936,"boot_id":"0f1c…","lock":"803:2a41"}

    `session_id` is that of its last session with the coordination store. `boot_id` is that of the
    machine when all that its logs had lost was reported to the cluster: with another one, a log
    that was not closed may have lost its end. `lock` tells the folder's lock file from copies of
    it: a process that holds the same one in the same boot of the machine knows that the process of
    that session is gone, and may delete the registration that it left behind. In a copy of the
    folder this is not known: the broker that it was copied from may be at work. Reading and writing
    it blocks, so it is done in a worker.
    """

    session_id: int
    boot_id: str
    is_of_this_folder: bool = True
    """And not of one that the folder was copied from."""

    def is_of_dead_process(self, boot_id: str) -> bool:
        """Whether its process is surely gone, for who holds the folder's lock in this boot."""
        return self.is_of_this_folder and boot_id != "" and boot_id == self.boot_id


def write_session_note(files: Files, folder: Path, note: SessionNote) -> None:
    """Blocks until it is on disk."""
    fields = {
        "version": SESSION_FILE_VERSION,
        "session_id": note.session_id,
        "boot_id": note.boot_id,
        "lock": files.identify(folder / LOCK_FILE),
    }
    files.replace(folder / SESSION_FILE, json.dumps(fields, separators=(",", ":")).encode())


def find_session_note(files: Files, folder: Path) -> SessionNote | None:
    """None where there is none that can be read: then nothing is known."""
    path = folder / SESSION_FILE
    if not files.exists(path):
        return None
    try:
        fields: object = json.loads(files.read(path))
    except ValueError:
        return None
    if not isinstance(fields, dict):
        return None
    session_id, boot_id = fields.get("session_id"), fields.get("boot_id")
    if type(session_id) is not int or not isinstance(boot_id, str):
        return None
    return SessionNote(
        session_id=session_id,
        boot_id=boot_id,
        is_of_this_folder=fields.get("lock") == files.identify(folder / LOCK_FILE),
    )


class ReplicaLosses:
    """What the logs of a broker that joins the cluster may have lost, and who knows of it.

    A log is whole if nothing that was written to it can be lost (`cluster.rules.broker_shutdown`).
    Of one that is not, the broker says so in the state of its partition, before it registers
    (REP-6). Three kinds need more than that:

    - A log that has lost sealed segments has a hole that nothing behind its end can fill. Where
      other replicas have everything, it is taken out of service and copied anew; where it is the
      only copy, it is served as it is (LOG-13).
    - A log whose folder is gone, as its directory knows: where other replicas have everything it is
      copied anew; else no broker leads the partition before the folder is back or an operator asks
      for an unclean election (LOG-14).
    - A log whose topic is away: there is no state to say it in. Its own folder says so until there
      is. The clean stop and the boot id that the broker notes later do not speak for it.

    Owned by the broker lifecycle.
    """

    def __init__(
        self, log_store: LogStore, broker_id: BrokerId, missing: MissingLogDirs, kept: StrayReplicas
    ) -> None:
        self._log_store = log_store
        self._broker_id = broker_id
        self._missing = missing
        self._kept = kept
        self.intact_folders: Collection[Path] = ()  # folders in use since the machine was started

    def condition_of(self, topic: TopicState, number: int) -> ReplicaCondition:
        key = TopicPartition(topic.name, number)
        log = self._log_store.logs.get(key)
        return decide_condition(
            has_log=log is not None and is_same_topic(log.topic_id, topic.topic_id),
            is_disk_missing=log is None and self._log_store.has_offline_folder,
            is_missed=log is None and self._log_store.is_missed(key),
            was_served=self._kept.was_served(key),
            was_spared=log is not None and self._is_intact(log),
            has_lost_its_end=log is not None and log.has_lost_its_end,
        )

    def _is_intact(self, log: Log) -> bool:
        folder = log.directory.folder
        return self._missing.was_in_use(folder) and (
            folder in self.intact_folders or log.was_closed
        )

    # Holes inside

    async def retire_incomplete(
        self, topics: Iterable[TopicState], written: Mapping[TopicPartition, PartitionState]
    ) -> None:
        """Decide about the logs of these topics that have lost sealed segments.

        By the states that the broker has `written` when it said so, and no others: of two brokers
        that come at the same time with a hole each, both see the other one in sync before that,
        and both would put their log away.
        """
        for topic in topics:
            for number, state in enumerate(topic.partitions):
                log = self._find_log(topic, number)
                if log is None or not log.is_incomplete or not self._has_say(state):
                    continue
                told = written.get(log.topic_partition)
                if told is not None or len(state.replicas) == 1:
                    try:
                        await self._retire_or_accept(log, told or state)
                    except StorageError as error:
                        _log.error("%s has lost segments: %s", log.folder, error)

    async def _retire_or_accept(self, log: Log, state: PartitionState) -> None:
        if has_only_copy(state, self._broker_id):
            _log.error("%s has lost segments, and is served without them", log.folder)
            await self._log_store.accept_incomplete(log)
            return
        folder = await self._log_store.retire_log(log.topic_partition)
        _log.error(
            "%s has lost segments: it is copied from other replicas again. What is left of it is "
            "kept in %s; remove the folder once all replicas are in sync",
            log.topic_partition,
            folder,
        )

    # Folders that are gone

    def log_missing_folders(self, image: MetadataImage) -> None:
        """Say what has become of the partitions, and forget logs that nobody wants any more."""
        for key in sorted(self._log_store.checkpoints.missed):
            state = image.find_partition(*key)
            if key in self._log_store.logs:  # it had been set aside
                self._log_store.checkpoints.forget_missed(key)
            elif state is None or self._broker_id not in state.replicas:
                if key.topic not in image.unreadable:
                    self._log_store.checkpoints.forget_missed(key)
            elif state.leader == NO_BROKER:
                _log.error(
                    "the folder of %s is gone, with all its records, and nobody else is known to "
                    "have them: the partition is not served. Stop the broker, put the folder back "
                    "into its log directory and start again; if it is lost for good, `moldau elect "
                    "unclean %s` lets it go on with what other replicas have, or empty",
                    key,
                    key,
                )
            else:
                _log.error("the folder of %s is gone: it is copied from other replicas again", key)

    # What nobody can be told

    async def note_unreported(self, image: MetadataImage) -> None:
        """Call it when the states of an image say what the logs of their partitions are worth."""
        for key, log in tuple(self._log_store.logs.items()):
            if self._is_intact(log) and not log.has_lost_its_end:
                continue
            topic = image.topics.get(key.topic)
            if topic is None or not self._is_told(topic, key.partition):
                try:
                    await self._log_store.note_loss_of(log)
                except StorageError as error:
                    _log.error("cannot note what %s has lost: %s", key, error)
        for topic in image.topics.values():
            await self.forget_reported(topic)

    async def forget_reported(self, topic: TopicState) -> None:
        """The states of a topic say what its logs here are worth."""
        for number in range(len(topic.partitions)):
            log = self._find_log(topic, number)
            if log is not None and log.has_loss_note and self._is_told(topic, number):
                await self._log_store.forget_loss_of(log)

    def _is_told(self, topic: TopicState, number: int) -> bool:
        state = topic.find_partition(number)
        is_here = self._find_log(topic, number) is not None
        return is_here and state is not None and self._has_say(state)

    def _has_say(self, state: PartitionState) -> bool:
        """Whether this broker writes into a state what its replica is worth."""
        return state.version != NO_NODE and self._broker_id in state.replicas

    def _find_log(self, topic: TopicState, number: int) -> Log | None:
        log = self._log_store.logs.get(TopicPartition(topic.name, number))
        return log if log is not None and is_same_topic(log.topic_id, topic.topic_id) else None
