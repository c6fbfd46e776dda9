"""The logs that a store serves, by their partitions.

A log is in the table from the moment in which it can be used until its folder has another name. At
most one is made for a partition at a time. A shell, owned by the event loop.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from moldau.errors import StartupError, StorageError
from moldau.model import TopicPartition
from moldau.storage.log import Log
from moldau.storage.log_directory import LogDirectory


class LogTable:
    """See the module."""

    def __init__(self) -> None:
        self._logs: dict[TopicPartition, Log] = {}
        self._made: dict[TopicPartition, LogDirectory | None] = {}  # right now, by somebody; where
        self.clean_folders: set[Path] = set()  # had the marker of a clean stop
        self.logs: Mapping[TopicPartition, Log] = MappingProxyType(self._logs)

    @contextlib.contextmanager
    def making(self, topic_partition: TopicPartition) -> Iterator[None]:
        """While it lasts, nobody else makes a log of this partition; there must not be one."""
        if topic_partition in self._logs or topic_partition in self._made:
            raise StorageError(f"there is a log of {topic_partition} already")
        self._made[topic_partition] = None
        try:
            yield
        finally:
            del self._made[topic_partition]

    def note_choice(self, topic_partition: TopicPartition, directory: LogDirectory) -> None:
        """A log that is being made is counted in its directory from now on."""
        self._made[topic_partition] = directory

    def count_logs(self, directory: LogDirectory) -> int:
        """Those of a directory, with those that are being made in it."""
        return directory.log_count + sum(one is directory for one in self._made.values())

    def add(self, log: Log) -> None:
        other = self._logs.setdefault(log.topic_partition, log)
        if other is not log:
            raise StartupError(
                f"{log.topic_partition} is in two log directories, {other.folder} and "
                f"{log.folder}; move the one that is out of date away"
            )
        log.directory.log_count += 1
        log.was_closed = log.directory.folder in self.clean_folders
        log.flushing.resume()

    def take_out(self, log: Log, name: str) -> Path:
        """Close a log and give its folder another name; returns that folder."""
        del self._logs[log.topic_partition]
        log.close()
        directory = log.directory
        directory.log_count -= 1
        directory.require_online()
        target = directory.folder / name
        try:
            directory.files.rename(log.folder, target)
        except OSError as error:
            raise directory.fail(error) from error
        directory.checkpoint_soon()
        return target
