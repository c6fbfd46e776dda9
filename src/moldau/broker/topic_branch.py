"""A topic made of another one's files, for replaying real data in a test. A shell.

Works on the data folder of a broker alone that has stopped in good order: nobody writes, and every
file is whole. Closed segments are linked, not copied: two names for the same bytes, which cost
nothing until one of the topics lets go of them. Nothing writes into a closed segment in place
(retention removes names, compaction writes new files), so the topics go their own ways from then
on. The segment that is written to is copied, and so are the small files beside it.

The copies are made under names that a start of the broker would clear away, then get their real
ones, and last the topic is registered: what a crash leaves in between is cleared away, or is a log
without a topic, of which the broker tells at its start.

Not done: several log directories, brokers that share a store, ZooKeeper. There the files of a topic
are on several machines, and only brokers know when they are whole.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

from moldau.clock import SystemClock
from moldau.cluster.cluster_identity import new_topic_id
from moldau.cluster.metadata_reader import MetadataReader
from moldau.cluster.rules.metadata_image import TopicState
from moldau.cluster.topic_operations import creation
from moldau.coordination.embedded import FILE_NAME, EmbeddedStore
from moldau.coordination.port import Coordination
from moldau.errors import (
    ConfigurationError,
    InvalidTopicError,
    TopicExistsError,
    UnknownTopicError,
)
from moldau.model import TopicId, TopicPartition
from moldau.model.topic_names import INTERNAL_TOPICS, find_name_fault
from moldau.storage.checkpoint_files import read_offset_checkpoint, write_offsets
from moldau.storage.directory_loader import lock_folder
from moldau.storage.files import Files, RealFiles
from moldau.storage.partition_metadata import write_partition_metadata
from moldau.storage.rules.file_names import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_OFFSETS_FILE,
    HIGH_WATERMARKS_FILE,
    LOG_START_OFFSETS_FILE,
    LOG_SUFFIX,
    PARTITION_METADATA_FILE,
    PRODUCER_SNAPSHOT_SUFFIX,
    RECOVERY_POINTS_FILE,
    deleted_folder_name,
    find_segment_file,
    partition_folder_name,
)
from moldau.workers import ThreadWorkers

_CHECKPOINTS = (
    RECOVERY_POINTS_FILE,
    HIGH_WATERMARKS_FILE,
    LOG_START_OFFSETS_FILE,
    CLEANER_OFFSETS_FILE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchReport:
    """What a branch cost."""

    topic: str
    partitions: int
    linked_bytes: int
    copied_bytes: int


async def branch_topic(folder: Path, source: str, target: str) -> BranchReport:
    """Make `target` in the data folder of a stopped broker, with everything that is in `source`."""
    fault = find_name_fault(target)
    if fault is not None:
        raise InvalidTopicError(fault)
    if {source, target} & INTERNAL_TOPICS:
        raise InvalidTopicError("what the broker keeps in topics of its own cannot be branched")
    if not (folder / FILE_NAME).exists():
        raise ConfigurationError(
            f"{folder} is not the data folder of a broker alone: there is no {FILE_NAME} in it"
        )
    files, workers = RealFiles(), ThreadWorkers(1, "moldau-branch")
    lock = lock_folder(files, folder)
    try:
        if not (folder / CLEAN_SHUTDOWN_FILE).exists():
            raise ConfigurationError(
                f"the broker of {folder} was not stopped in good order; start and stop it first"
            )
        store = await EmbeddedStore.open(folder / FILE_NAME, clock=SystemClock(), workers=workers)
        try:
            session = store.session()
            report = await _branch(session, files, folder, source, target)
            await session.close()
            return report
        finally:
            await store.close()
    finally:
        lock.release()
        workers.close()


async def _branch(
    coordination: Coordination, files: Files, folder: Path, source: str, target: str
) -> BranchReport:
    read = await MetadataReader(coordination).read_topics([source, target])
    topics = {topic.name: topic for topic in read.topics}
    if source not in topics:
        raise UnknownTopicError(f"there is no topic {source!r} in {folder}")
    if target not in read.missing:
        raise TopicExistsError(f"there is a topic {target!r} already")
    branch = _describe(topics[source], target)
    numbers = range(len(branch.partitions))
    for number in numbers:
        if not (folder / partition_folder_name(TopicPartition(source, number))).exists():
            raise ConfigurationError(
                f"{source}-{number} is not in {folder}: a topic with replicas on other brokers or "
                "in other log directories cannot be branched"
            )
        if (folder / partition_folder_name(TopicPartition(target, number))).exists():
            raise TopicExistsError(f"there are files of a topic {target!r} in {folder} already")
    made = {}
    linked = copied = 0
    for number in numbers:
        copy = folder / deleted_folder_name(TopicPartition(target, number), uuid4().hex)
        sizes = _copy_partition(
            files, folder / partition_folder_name(TopicPartition(source, number)), copy, branch
        )
        linked, copied = linked + sizes[0], copied + sizes[1]
        made[copy] = folder / partition_folder_name(TopicPartition(target, number))
    _add_checkpoints(files, folder, source, target)
    for copy, name in made.items():
        files.rename(copy, name)
    files.sync_folder(folder)
    await coordination.transact(creation(branch, None))
    return BranchReport(
        topic=target, partitions=len(numbers), linked_bytes=linked, copied_bytes=copied
    )


def _describe(source: TopicState, target: str) -> TopicState:
    """Led as the source is; nobody has written a state of it yet."""
    return replace(
        source,
        name=target,
        topic_id=new_topic_id(),
        partitions=tuple(replace(one, version=-1) for one in source.partitions),
        version=-1,
    )


def _copy_partition(
    files: Files, source: Path, target: Path, branch: TopicState
) -> tuple[int, int]:
    """Returns how many bytes were linked, and copied."""
    target.mkdir()
    linked = copied = 0
    for path, is_closed in _files_of(source):
        if is_closed and _link(path, target / path.name):
            linked += path.stat().st_size
            continue
        shutil.copyfile(path, target / path.name)
        with contextlib.closing(files.open(target / path.name)) as file:
            file.sync()
        copied += path.stat().st_size
    _write_id(files, target, branch.topic_id)
    files.sync_folder(target)
    return linked, copied


def _files_of(folder: Path) -> Iterator[tuple[Path, bool]]:
    """The files that make up a log, and whether each belongs to a closed segment."""
    found = {path: find_segment_file(path.name) for path in sorted(folder.iterdir())}
    bases = [one.base_offset for one in found.values() if one and one.suffix == LOG_SUFFIX]
    active = max(bases, default=0)
    for path, segment in found.items():
        if path.name == PARTITION_METADATA_FILE or (segment is not None and segment.stage):
            continue
        is_closed = (
            segment is not None
            and segment.base_offset < active
            and segment.suffix != PRODUCER_SNAPSHOT_SUFFIX
        )
        yield path, is_closed


def _link(source: Path, target: Path) -> bool:
    """False where the file system knows no links."""
    try:
        os.link(source, target)
    except OSError:
        return False
    return True


def _write_id(files: Files, folder: Path, topic_id: TopicId) -> None:
    write_partition_metadata(files, folder / PARTITION_METADATA_FILE, topic_id)


def _add_checkpoints(files: Files, folder: Path, source: str, target: str) -> None:
    """What was vouched for in the source is in the branch."""
    for name in _CHECKPOINTS:
        offsets = read_offset_checkpoint(files, folder / name)
        own = {
            TopicPartition(target, key.partition): offset
            for key, offset in offsets.items()
            if key.topic == source
        }
        if own:
            write_offsets(files, folder / name, {**offsets, **own})
