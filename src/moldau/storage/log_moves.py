"""The moves of logs between the log directories of a broker (AlterReplicaLogDirs).

It answers for which log moves where, how many at a time and how fast, for going on with moves after
a start, and for where logs are made that somebody has asked a directory for beforehand. How one is
moved is in `log_move`. A shell, owned by the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from moldau.clock import Clock
from moldau.config.broker_options import BrokerOptions
from moldau.errors import (
    InvalidTopicError,
    KafkaError,
    LogDirNotFoundError,
    ReplicaNotAvailableError,
    StorageError,
)
from moldau.model import TopicPartition
from moldau.storage.checkpoints import Checkpoints
from moldau.storage.log import Log
from moldau.storage.log_directory import LogDirectory, Throttler
from moldau.storage.log_move import LogMove, remove_folder
from moldau.storage.rules.file_names import future_folder_name
from moldau.tasks import TaskSupervisor

_log = logging.getLogger("moldau.storage")


class LogMoves:
    """All moves of one store. Invariant: at most one for each log."""

    def __init__(
        self,
        logs: Mapping[TopicPartition, Log],
        directories: Sequence[LogDirectory],
        checkpoints: Checkpoints,
        clock: Clock,
        options: Callable[[], BrokerOptions],
        unique_id: Callable[[], str],
    ) -> None:
        """`logs` and `directories` change as they come and go."""
        self._logs = logs
        self._directories = directories
        self._checkpoints = checkpoints
        self._options = options
        self._unique_id = unique_id
        self._pace = Throttler(
            clock, lambda: options().replica_alter_log_dirs_io_max_bytes_per_second
        )
        self._moves: dict[TopicPartition, LogMove] = {}  # in the order in which they were asked for
        self._running: dict[TopicPartition, asyncio.Task[None]] = {}
        self._requested: dict[TopicPartition, Path] = {}  # of logs that are not there yet
        self._changed = asyncio.Event()
        self._changing = asyncio.Lock()  # held while a move is begun or called off
        self._tasks = TaskSupervisor(_report)

    def find(self, topic_partition: TopicPartition) -> LogMove | None:
        return self._moves.get(topic_partition)

    def moves_to(self, folder: Path) -> tuple[LogMove, ...]:
        """Those that end in a folder."""
        moves = tuple(self._moves.values())  # may be asked for in a worker
        return tuple(move for move in moves if move.target.folder == folder)

    # Asking

    def require_directory(self, folder: Path) -> LogDirectory:
        """The directory of this name, if it can be used."""
        for directory in self._directories:
            if directory.folder == folder or directory.folder.absolute() == folder:
                directory.require_online()
                return directory
        raise LogDirNotFoundError(f"{folder} is none of the log directories of this broker")

    def request_directory(self, topic_partition: TopicPartition, folder: Path) -> None:
        """Have a log made in this directory, once it is."""
        self._requested[topic_partition] = self.require_directory(folder).folder

    def pop_requested_directory(self, topic_partition: TopicPartition) -> LogDirectory | None:
        """Where a log is to be made, if somebody has asked for a directory that can be used."""
        folder = self._requested.pop(topic_partition, None)
        for directory in self._directories:
            if directory.folder == folder and directory.failure is None:
                return directory
        return None

    async def start_move(self, log: Log, folder: Path) -> None:
        """Move a log to a directory; a move of it to another one is called off.

        Returns when the copy is there, still empty; it is filled by `run`.
        """
        key = log.topic_partition
        async with self._changing:
            target = self.require_directory(folder)
            under_way = self._moves.get(key)
            if under_way is not None and under_way.target is target:
                return
            await self._call_off(key)
            if self._logs.get(key) is not log:
                raise ReplicaNotAvailableError(f"{key} was deleted meanwhile")
            if log.directory is target:
                return
            if any(each.failure is not None for each in self._directories):
                # A copy may be in there, and a log has one at most.
                raise StorageError("nothing is moved while a log directory is offline")
            await self._create_move(log, target)

    async def _create_move(self, log: Log, target: LogDirectory) -> None:
        name = future_folder_name(log.topic_partition, self._unique_id())
        if name is None:
            raise InvalidTopicError(
                f"the name of {log.topic_partition} is too long to move it to another directory"
            )
        move = self._make_move(log, target, target.folder / name)
        try:
            await move.create()
        except KafkaError:
            self._forget(move)
            move.abandon()
            raise
        self._changed.set()

    def _make_move(self, log: Log, target: LogDirectory, folder: Path) -> LogMove:
        move = self._moves[log.topic_partition] = LogMove(
            log,
            target,
            folder,
            checkpoints=self._checkpoints,
            pace=self._pace,
            unique_id=self._unique_id,
            options=self._options,
        )
        return move

    async def cancel_move(self, topic_partition: TopicPartition) -> None:
        """Call a move off, if there is one: its log is about to go."""
        if topic_partition in self._moves or topic_partition in self._running:
            async with self._changing:  # it may be called off already
                await self._call_off(topic_partition)

    async def _call_off(self, key: TopicPartition) -> None:
        move = self._moves.pop(key, None)  # first: what is cancelled would be started again
        if move is None:
            return
        if (task := self._running.get(key)) is not None:
            task.cancel()
            await asyncio.wait([task])
            self._running.pop(key, None)  # one that has never begun could not do it itself
            self._changed.set()
        if not move.is_done:  # it may have come to its end
            with contextlib.suppress(StorageError):  # the directory has reported it
                move.abandon()

    def _forget(self, move: LogMove) -> None:
        if self._moves.get(move.topic_partition) is move:
            del self._moves[move.topic_partition]
        self._changed.set()

    # Starting again

    async def resume(self, found: Iterable[tuple[TopicPartition, LogDirectory, Path]]) -> None:
        """Go on with the moves whose copies were found when the folders were opened."""
        for key, target, folder in found:
            log = self._logs.get(key)
            if log is None:
                _log.warning(
                    "%s is kept and not served: it was to be a copy of a log that is not there; "
                    "remove the folder if nobody needs its records",
                    folder,
                )
            elif log.directory is target or key in self._moves:
                remove_folder(target, folder, key, self._unique_id())
            else:
                await self._resume(log, target, folder)

    async def _resume(self, log: Log, target: LogDirectory, folder: Path) -> None:
        move = self._make_move(log, target, folder)
        try:
            if not await move.resume():
                self._forget(move)
                move.abandon()
                await self._create_move(log, target)
        except KafkaError as error:
            self._forget(move)
            _log.error("%s is not moved to %s: %s", log.topic_partition, target.folder, error)
        self._changed.set()

    # Moving

    async def run(self) -> None:
        """Move what is to be moved, until cancelled."""
        is_discarded = False  # with its loop, on which nothing can be waited for any more
        try:
            while True:
                self._changed.clear()
                self._start_due()
                await self._changed.wait()
        except GeneratorExit:
            is_discarded = True
            raise
        finally:
            if not is_discarded:
                await self._tasks.close()

    def _start_due(self) -> None:
        limit = self._options().num_replica_alter_log_dirs_threads or len(self._directories)
        due = (move for move in self._moves.values() if move.has_copy)
        waiting = [move for move in due if move.topic_partition not in self._running]
        for move in waiting[: max(0, limit - len(self._running))]:
            key = move.topic_partition
            self._running[key] = self._tasks.spawn(f"move {key}", self._run(move))

    async def _run(self, move: LogMove) -> None:
        try:
            await move.run()
        except KafkaError as error:
            _log.error("%s is not moved to %s: %s", move.topic_partition, move.target.folder, error)
            self._give_up(move)
        except Exception:
            self._give_up(move)
            raise
        finally:  # who is cancelled goes on later
            del self._running[move.topic_partition]
            if move.is_done:
                self._forget(move)
            self._changed.set()

    def _give_up(self, move: LogMove) -> None:
        """Where the log's own directory failed, the next start begins with the copy anew."""
        self._forget(move)
        if not move.is_done and move.log.directory.failure is None:
            move.abandon()

    async def close(self) -> None:
        """Leave the copies so that the next start goes on with them. Nothing runs any more."""
        for move in tuple(self._moves.values()):
            self._forget(move)
            try:
                await move.pause()
            except KafkaError as error:
                _log.warning("the copy in %s begins anew: %s", move.folder, error)


def _report(name: str, error: BaseException) -> None:
    _log.error("the job %s failed", name, exc_info=error)
