"""Log directories that this broker had and does not find any more (DEL-3).

The folder of a disk that is not mounted is there, and empty; and a folder that `log.dirs` does not
name any more is not looked into. A broker that took no notice would make the logs anew that are on
the disk, without their records. So the store keeps the ids of the directories that each broker had
last (`/brokers/log_dirs/N`), and a broker that comes compares:

- A directory is missing: the logs in it are lost, as far as anybody can know. If others have
  everything, the broker leaves the in-sync sets of their partitions (REP-6) and copies them again.
  Where it may have the only complete copy, it does not start; `log.dirs.lost` says that it is gone
  for good.
- A directory is there that it did not have last: a new one, or one that was missing before. Logs in
  that are as old as they are, whatever the machine has noted: they are not whole.
- A directory has logs and no `meta.properties`: somebody has moved that file away. Nobody makes
  logs in a folder before the file is there, so it is no mount point, but the directory itself.

The check is made for the very states by which the broker leaves the sets: of two brokers that miss
a disk each, one is the last to have everything, and does not start.

A broker alone has its store in its first log directory, and without it could not compare: see
`check_store_directory`.

A shell; `cluster.rules.broker_shutdown` says what is the only copy.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from moldau.cluster import znodes
from moldau.cluster.rules.broker_shutdown import find_only_copies
from moldau.cluster.rules.metadata_image import MetadataImage, TopicState
from moldau.cluster.znodes import NodeFields
from moldau.config.broker_options import BrokerOptions
from moldau.coordination.embedded import FILE_NAME, Database
from moldau.coordination.port import Coordination, NodeExistsError
from moldau.errors import MalformedNodeError, StartupError
from moldau.model import BrokerId, TopicPartition
from moldau.replication.rules.stray_replicas import is_same_topic
from moldau.storage.files import Files
from moldau.storage.log_directory import LogDirectory
from moldau.storage.log_store import LogStore
from moldau.storage.rules.file_names import STORE_DIRECTORY_FILE

_log = logging.getLogger("moldau.broker")

_MOST_NAMES = 5
_UNKNOWN = "unknown"
"""In `log.dirs.lost`: a directory whose id nobody has noted."""

_VERSION = 1
_WHAT_IS_THERE = "its topics, their settings and its users"


class MissingLogDirs:
    """Of one broker, while it comes into the cluster: `read`, then the questions, then `note`."""

    def __init__(
        self,
        coordination: Coordination,
        log_store: LogStore,
        broker_id: BrokerId,
        options: Callable[[], BrokerOptions],
    ) -> None:
        self._coordination = coordination
        self._log_store = log_store
        self._broker_id = broker_id
        self._options = options
        self._path = znodes.broker_log_dirs_path(broker_id)
        self._known: Mapping[str, str] | None = None  # id to path; None: nobody has noted them
        self._missing: Mapping[str, str] = {}
        self._unlabelled: frozenset[Path] = (
            frozenset()
        )  # known ones whose `meta.properties` is gone
        self._is_read = False

    async def read(self) -> None:
        """Compare what the store knows with the folders that are there: once, before `note`.

        While one cannot be read, nothing is missing for certain: it may be that one.
        """
        if self._is_read:
            return
        self._known = await self._find_known()
        self._is_read = True
        if self._log_store.has_offline_folder:
            self._missing = {}
        elif self._known is not None:
            present = set(self._present())
            missing = {one: at for one, at in self._known.items() if one not in present}
            self._missing = self._without_unlabelled(missing)
        else:
            blank = self._log_store.identities.blank_folders
            self._missing = {_UNKNOWN: ", ".join(map(str, blank))} if blank else {}

    def _without_unlabelled(self, missing: Mapping[str, str]) -> Mapping[str, str]:
        """Those that are not here without an id: where the broker had them last, or elsewhere if
        there is no doubt which is which."""
        blank = self._log_store.identities.blank_folders
        unlabelled = {str(folder): folder for folder in blank if self._log_store.logs_in(folder)}
        if len(unlabelled) != len(missing):
            last_paths = set(missing.values())
            unlabelled = {at: folder for at, folder in unlabelled.items() if at in last_paths}
            missing = {one: at for one, at in missing.items() if at not in unlabelled}
        else:
            missing = {}
        self._unlabelled = frozenset(unlabelled.values())
        return missing

    async def _find_known(self) -> Mapping[str, str] | None:
        node = await self._coordination.get(self._path)
        if node is None:
            return None
        try:
            return NodeFields(self._path, node.data).text_map("directories")
        except MalformedNodeError as error:
            _log.error("which log directories this broker had is not known: %s", error)
            return None

    def _present(self) -> dict[str, str]:
        """Id to path of the folders that can be read and are not new."""
        found = {}
        for directory in self._log_store.directories:
            identity = self._log_store.identities.id_of(directory.folder)
            if identity is not None:
                found[identity] = str(directory.folder)
        return found

    def was_in_use(self, folder: Path) -> bool:
        """Whether this broker had a folder when it was last in the cluster, as far as is known."""
        if self._known is None or folder in self._unlabelled:
            return True
        return self._log_store.identities.id_of(folder) in self._known

    def _is_lost(self, topic: TopicState, number: int) -> bool:
        key = TopicPartition(topic.name, number)
        log = self._log_store.logs.get(key)
        if log is not None and is_same_topic(log.topic_id, topic.topic_id):
            return not self.was_in_use(log.directory.folder)
        return not self._log_store.stray_logs.has(key, topic.topic_id)

    def refuse_only_copies(self, image: MetadataImage) -> None:
        """Raise `StartupError` if somebody's only copy of a partition is in a missing directory.

        A topic whose node cannot be read may be one of them.
        """
        given_up = set(self._options().log_dirs_lost)
        missing = {one: at for one, at in self._missing.items() if one not in given_up}
        if not missing:
            return
        lost = find_only_copies(image.topics.values(), self._broker_id, self._is_lost)
        names = [*map(str, lost), *sorted(image.unreadable)]
        if names:
            raise StartupError(
                f"{_describe(missing)} is missing, where this broker may have the only complete "
                f"copy of {_join(names)}. If its disk is not mounted, mount it; if log.dirs does "
                "not name it any more, name it; then start again. If it is lost for good, start "
                f"with --set log.dirs.lost={','.join(missing)}: partitions without other replicas "
                "begin again without their records. No log was touched"
            )

    async def note(self, image: MetadataImage) -> None:
        """Make the folders this broker's, and write down that it has these from now on.

        Called when the cluster knows what the missing ones have cost, and before a log is made.
        """
        if self._missing:
            self._tell_of_lost(image)
        await self._log_store.write_identity(self._broker_id, image.cluster_id)
        await note_store_directory(self._log_store, self._options())
        directories = self._present()
        if self._log_store.has_offline_folder:  # it is none of the others, and may come back
            directories = {**(self._known or {}), **directories}
        if directories != self._known:
            await self._write({"version": 1, "directories": directories})

    def _tell_of_lost(self, image: MetadataImage) -> None:
        lost = [
            f"{topic.name}-{number}"
            for topic in image.topics.values()
            for number, state in enumerate(topic.partitions)
            if self._broker_id in state.replicas and self._is_lost(topic, number)
        ]
        if lost:
            _log.error(
                "%s is missing. Its partitions (%s) are copied from other replicas again, or begin "
                "without their records where there are none. If it comes back, its logs do not "
                "count as whole",
                _describe(self._missing),
                _join(lost),
            )

    async def _write(self, fields: Mapping[str, object]) -> None:
        data = json.dumps(fields, separators=(",", ":")).encode()
        try:
            await self._coordination.create(self._path, data)
        except NodeExistsError:
            await self._coordination.set(self._path, data)


def _describe(missing: Mapping[str, str]) -> str:
    known = [f"{at} (id {one})" for one, at in missing.items() if one != _UNKNOWN]
    return "the log directory " + ", ".join(known or missing.values())


def _join(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"{', '.join(names[:_MOST_NAMES])}{more}"


# Where a broker alone has its store: in the first of its log directories, and nowhere else.
#
# Topics, their settings and the users are there. A broker that finds no store begins one. If its
# own is merely on a disk that is not mounted, or in a folder that `log.dirs` does not name any
# more, it would have a second one, with topics guessed from the logs on the other disks (DEL-3). So
# each of its log directories has a note of which one has the store:
#
#     {"version":1,"directory":"uZ3…","path":"/disks/one"}
#
# and a start compares. A directory is known by its id, wherever it is mounted. Whose directory was
# given up (`log.dirs.lost`) begins again with the logs of the others.
#
# A shell; `note_store_directory` waits for workers, the others read a few small files at the start.


class StoreNote(NamedTuple):
    """Which log directory has the store."""

    directory: str
    path: str


def check_store_directory(log_store: LogStore, options: BrokerOptions, *, is_new: bool) -> None:
    """Before a store is used, and filled where it `is_new`: the broker's own may be elsewhere."""
    if not options.is_alone:
        return
    if is_new and options.adopt_topics_enable:
        return
    _check_notes(log_store, options, is_new=is_new)
    if is_new:
        _check_folders(log_store, options)


def _check_notes(log_store: LogStore, options: BrokerOptions, *, is_new: bool) -> None:
    first = Path(options.log_dirs[0])
    identities = log_store.identities
    # A store in a folder whose `meta.properties` was moved away is the one that is missed.
    is_known = is_new or identities.id_of(first) is not None
    present = {identities.id_of(each.folder): each.folder for each in log_store.directories}
    for directory in log_store.directories:
        note = None if directory.failure is not None else _read_note(directory)
        if note is None or note.directory in (identities.id_of(first), *options.log_dirs_lost):
            continue
        folder = present.get(note.directory)
        if folder is not None:
            raise StartupError(
                f"this broker has {_WHAT_IS_THERE} in {folder}, and the first of log.dirs, where "
                f"they are looked for, is {first}. Name {folder} first and start again. If what is "
                f"in there is of no use, start with --set log.dirs.lost={note.directory}: the "
                f"store in {first} is used. No log was touched"
            )
        if is_known and not log_store.has_offline_folder:  # else it may be that one
            raise StartupError(
                f"the log directory {note.path} (id {note.directory}) is missing, where this "
                f"broker has {_WHAT_IS_THERE}. If its disk is not mounted, mount it; if log.dirs "
                "does not name it any more, name it first; then start again. If it is lost for "
                f"good, start with --set log.dirs.lost={note.directory}: the topics are made of "
                "the logs in the other directories, and what was in this one is gone. No log was "
                "touched"
            )


def _check_folders(log_store: LogStore, options: BrokerOptions) -> None:
    """What can be told without notes, after an older version for example."""
    first = Path(options.log_dirs[0])
    blank = log_store.identities.blank_folders
    is_given_up = any(
        note.directory in options.log_dirs_lost
        for each in log_store.directories
        if each.failure is None and (note := _read_note(each)) is not None
    )
    if first in blank and len(blank) < len(options.log_dirs) and not is_given_up:
        raise StartupError(
            f"the log directory {first} is new, though others are in use already, and it is the "
            f"first of log.dirs, where a broker has {_WHAT_IS_THERE}. If its disk is not mounted, "
            "mount it and start again. If it was added, name it behind the others. If it is lost "
            "for good, start once with --adopt-topics (adopt.topics.enable=true): the topics are "
            "made of what is in the others. No log was touched"
        )
    for directory in log_store.directories:
        lost = log_store.identities.id_of(directory.folder) in options.log_dirs_lost
        if directory.folder != first and not lost and _has_store(directory):
            raise StartupError(
                f"this broker has {_WHAT_IS_THERE} in {directory.folder}, "
                f"and the first of log.dirs, where they are looked for, is {first}. Name "
                f"{directory.folder} first and start again. If what is in there is of no use, "
                "start once with --adopt-topics (adopt.topics.enable=true): the topics are made of "
                "the logs. No log was touched"
            )


def _has_store(directory: LogDirectory) -> bool:
    """Whether a log directory has the store of a cluster, and not merely the file for one."""
    path = directory.folder / FILE_NAME
    if directory.failure is not None or not directory.files.exists(path):
        return False
    try:
        database, tree = Database.open(path)
    except StartupError as error:
        _log.error("%s", error)
        return False
    database.close()
    return tree.find(znodes.CLUSTER_ID) is not None


async def note_store_directory(log_store: LogStore, options: BrokerOptions) -> None:
    """Write down, in every log directory, which one has the store.

    A broker that has no store of its own notes nothing, and what it noted once is of no use.
    """
    first = Path(options.log_dirs[0])
    first_id = log_store.identities.id_of(first) if options.is_alone else None
    has_others = len(options.log_dirs) > 1
    note = StoreNote(first_id, str(first)) if first_id is not None and has_others else None
    for directory in log_store.directories:
        if directory.failure is not None:
            continue
        work = partial(_write_note, directory.files, directory.folder, note)
        try:
            await directory.workers.run(work)
        except OSError as error:
            raise directory.judge(error) from error


def _read_note(directory: LogDirectory) -> StoreNote | None:
    return _find_note(directory.files, directory.folder / STORE_DIRECTORY_FILE)


def _find_note(files: Files, path: Path) -> StoreNote | None:
    try:
        if not files.exists(path):
            return None
        fields = json.loads(files.read(path))
        return StoreNote(str(fields["directory"]), str(fields["path"]))
    except (ValueError, TypeError, KeyError, OSError) as error:
        _log.warning("%s is passed over: %s", path, error)
        return None


def _write_note(files: Files, folder: Path, note: StoreNote | None) -> None:
    path = folder / STORE_DIRECTORY_FILE
    if note is None:
        if files.exists(path):
            files.remove(path)
    elif _find_note(files, path) != note:
        fields = {"version": _VERSION, "directory": note.directory, "path": note.path}
        files.replace(path, json.dumps(fields, separators=(",", ":")).encode())
