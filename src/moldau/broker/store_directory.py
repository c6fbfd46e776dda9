"""Where a broker alone has its store: in the first of its log directories, and nowhere else.

Topics, their settings and the users are there. A broker that finds no store begins one. If its own
is merely on a disk that is not mounted, or in a folder that `log.dirs` does not name any more, it
would have a second one, with topics guessed from the logs on the other disks (DEL-3). So each of
its log directories has a note of which one has the store:

    {"version":1,"directory":"uZ3…","path":"/disks/one"}

and a start compares. A directory is known by its id, wherever it is mounted. Whose directory was
given up (`log.dirs.lost`) begins again with the logs of the others.

A shell; `note_store_directory` waits for workers, the others read a few small files at the start.
"""

from __future__ import annotations

import json
import logging
from functools import partial
from pathlib import Path
from typing import NamedTuple

from moldau.cluster import layout
from moldau.config.broker_options import BrokerOptions
from moldau.errors import StartupError
from moldau.storage.files import Files
from moldau.storage.log_directory import LogDirectory
from moldau.storage.log_store import LogStore
from moldau.storage.rules.file_names import STORE_DIRECTORY_FILE

_log = logging.getLogger("moldau.broker")

_VERSION = 1
_WHAT_IS_THERE = "its topics, their settings and its users"


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
    from moldau.coordination.database import Database  # only a broker alone needs it
    from moldau.coordination.embedded import FILE_NAME

    path = directory.folder / FILE_NAME
    if directory.failure is not None or not directory.files.exists(path):
        return False
    try:
        database, tree = Database.open(path)
    except StartupError as error:
        _log.error("%s", error)
        return False
    database.close()
    return tree.find(layout.CLUSTER_ID) is not None


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
