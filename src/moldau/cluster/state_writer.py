"""Writes partition states: compare-and-set on each node, with one notification. A shell.

The controller (under its term), a leader (its in-sync set, its hand-over) and a broker that comes
back (leaving in-sync sets) all write through here. A state is written over the version that the
plan was based on, so who was overtaken changes nothing (ISR-3). States that go together are one
transaction, as far as ZooKeeper takes them in one.

A write whose answer was lost may have happened. It is repeated with the same versions until the
answer is definite: "bad version" then means that somebody wrote, and the nodes tell who. It is not
repeated in another session: that may lead to a store that was set back, in which the same versions
are those of other states (DEL-2).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from moldau.cluster import topic_operations, znodes
from moldau.cluster.controller_election import ControllerTerm, transact_in_term
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.cluster.rules.leader_election import PlannedState
from moldau.cluster.rules.metadata_image import NO_NODE, MetadataImage, PartitionState, TopicState
from moldau.coordination.port import (
    BadVersionError,
    Coordination,
    Create,
    NodeExistsError,
    NoNodeError,
    Operation,
    SessionExpiredError,
    StoreLostError,
)
from moldau.errors import InvariantViolation
from moldau.model import NO_BROKER

_log = logging.getLogger("moldau.cluster.controller")

MAX_WRITE_BYTES = 500_000
"""Of paths and data in one transaction; ZooKeeper refuses a request of more than 1 MB."""

_BYTES_AROUND_STATE = 500  # folders that may be missing, ACLs, versions, the notification's share
RETRY_SECONDS = 0.1


class StateWriter:
    """Safe to call from many tasks of one loop at once."""

    def __init__(self, coordination: Coordination, publisher: MetadataPublisher) -> None:
        self._coordination = coordination
        self._publisher = publisher

    async def write(
        self, plan: Sequence[PlannedState], *, term: ControllerTerm | None = None
    ) -> bool:
        """Write all of it; the published image shows it when this returns True.

        False when somebody else was faster with at least one of the partitions: their topics have
        been read again then, and what is published says what became of each. With a term it is the
        controller who writes, and `NotControllerError` says that the term is over.
        `SessionExpiredError` is raised as it comes.
        """
        return not await self.find_overtaken(plan, term=term)

    async def find_overtaken(
        self, plan: Sequence[PlannedState], *, term: ControllerTerm | None = None
    ) -> list[PlannedState]:
        """As `write`; returns those that are not written, whose topics have been read again."""
        overtaken: list[PlannedState] = []
        for part in parts_of(plan):
            attempt = partial(self._write_part, part, term)
            if not await self._until_known(attempt):
                overtaken += part
        if overtaken:
            await self._read_again({planned.topic.name for planned in overtaken})
        return overtaken

    async def move(self, plan: Sequence[PlannedState], *, term: ControllerTerm) -> bool:
        """Write states of one topic together with the replicas that they name.

        In one transaction: `parts_of` gives parts that fit into one. False as in `write`.
        """
        if await self._until_known(lambda: self._try_move(plan, term)):
            return True
        await self._read_again({plan[0].topic.name})
        return False

    async def _until_known(self, attempt: Callable[[], Awaitable[bool]]) -> bool:
        session_id = self._coordination.session_id
        level = logging.WARNING
        while True:
            try:
                return await attempt()
            except StoreLostError as error:
                _log.log(level, "writing partition states again, to know: %s", error)
                level = logging.DEBUG  # a store on a full disk may be as it is for hours
                await self._publisher.clock.sleep(RETRY_SECONDS)
            if self._coordination.session_id != session_id:
                raise SessionExpiredError("partition states were planned in a session that is over")

    async def _write_part(self, part: Sequence[PlannedState], term: ControllerTerm | None) -> bool:
        folders = topic_operations.list_state_folders(part)
        nodes = await self._coordination.get_many(folders)
        missing = [p for p, node in zip(folders, nodes, strict=True) if node is None]
        operations = [Create(path=path) for path in missing]
        return await self._transact(operations, part, term)

    async def _try_move(self, plan: Sequence[PlannedState], term: ControllerTerm) -> bool:
        name = plan[0].topic.name
        topic = self._publisher.image.topics.get(name)
        node = await self._coordination.get(znodes.topic_path(name))
        if topic is None or node is None or topic.topic_id != plan[0].topic.topic_id:
            return False
        if node.version != topic.version:  # the replicas of other partitions may be older than it
            return await self._came_through(plan, is_move=True)
        states = list(topic.partitions)
        for planned in plan:
            states[planned.partition] = planned.state
        moved = replace(topic, partitions=tuple(states))
        operations = (topic_operations.write_assignment(moved, node.version),)
        return await self._transact(operations, plan, term, moved_version=node.version + 1)

    async def _came_through(self, part: Sequence[PlannedState], *, is_move: bool) -> bool:
        """Whether a write that is refused now came through before, and only its answer did not.

        Somebody else may have written the same states. That is as good, unless the replicas were
        to change; and they may have changed with it, so the topics are read (META-4).
        """
        if not await self._is_written(part):
            return False
        await self._publisher.refresh_topics({planned.topic.name for planned in part})
        image = self._publisher.image
        return not is_move or all(
            _has_replicas_of(
                image.find_partition(planned.topic.name, planned.partition), planned.state
            )
            for planned in part
        )

    async def _transact(
        self,
        operations: Sequence[Operation],
        part: Sequence[PlannedState],
        term: ControllerTerm | None,
        *,
        moved_version: int | None = None,
    ) -> bool:
        """`moved_version` is that of the topic's node, if it is written too."""
        told = (
            topic_operations.notify_states(part)
            if moved_version is None
            else topic_operations.notify_topics([part[0].topic.name])
        )
        # Who has a term deletes topics, and knows which are there.
        alive = topic_operations.require_undeleted(part) if term is None else ()
        writes = (*alive, *operations, *map(topic_operations.write_state, part), told)
        for planned in part:
            _require_epoch(planned, is_move=moved_version is not None)
            _require_leader(planned)
        async with self._publisher.announcing:
            try:
                paths = await transact_in_term(self._coordination, term, writes)
            except (BadVersionError, NodeExistsError, NoNodeError) as error:
                # A leader changed its in-sync set, or a topic went; or this very write has
                # happened.
                _log.info("a partition state is not what it was: %s", error)
            else:
                self._publisher.skip_partition_change(paths[-1])
                written = _with_states(self._publisher.image, part, moved_version)
                self._publisher.apply_topics(written)
                return True
        return await self._came_through(part, is_move=moved_version is not None)

    async def _is_written(self, part: Sequence[PlannedState]) -> bool:
        paths = [znodes.partition_state_path(p.topic.name, p.partition) for p in part]
        nodes = await self._coordination.get_many(paths)
        return all(
            node is not None
            and node.version == _next_version(planned)
            and node.data == znodes.encode_partition_state(planned.state)
            for planned, node in zip(part, nodes, strict=True)
        )

    async def _read_again(self, names: set[str]) -> None:
        async def read() -> bool:
            await self._publisher.refresh_topics(names)
            return True

        await self._until_known(read)


def parts_of(plan: Sequence[PlannedState]) -> Iterator[list[PlannedState]]:
    """As much as one transaction takes, one after the other."""
    part: list[PlannedState] = []
    size_bytes = 0
    for planned in plan:
        size = _size_bytes(planned)
        if part and size_bytes + size > MAX_WRITE_BYTES:
            yield part
            part, size_bytes = [], 0
        part.append(planned)
        size_bytes += size
    if part:
        yield part


def _has_replicas_of(state: PartitionState | None, other: PartitionState) -> bool:
    return state is not None and (
        (state.replicas, state.adding_replicas, state.removing_replicas)
        == (other.replicas, other.adding_replicas, other.removing_replicas)
    )


def _require_epoch(planned: PlannedState, *, is_move: bool) -> None:
    """CTL-3: replicas change with the topic's node only, and under a new epoch."""
    former, state = planned.former, planned.state
    if set(former.replicas) == set(state.replicas):
        return
    if not is_move or state.leader_epoch <= former.leader_epoch:
        raise InvariantViolation(
            f"CTL-3: {planned.topic.name}-{planned.partition} would go from {former.replicas} to "
            f"{state.replicas}, and from epoch {former.leader_epoch} to {state.leader_epoch}"
        )


def _require_leader(planned: PlannedState) -> None:
    """REP-1: epochs grow, and each has one leader. CTL-2: it is in sync when it begins."""
    former, state = planned.former, planned.state
    broken = None
    if state.leader not in (NO_BROKER, *state.isr):
        broken = "CTL-2"
    elif former.version != NO_NODE:
        is_another = state.leader not in (former.leader, NO_BROKER)
        if state.leader_epoch < former.leader_epoch + is_another:
            broken = "REP-1"
    if broken is not None:
        raise InvariantViolation(
            f"{broken}: {planned.topic.name}-{planned.partition} would go from {former} to {state}"
        )


def _size_bytes(planned: PlannedState) -> int:
    """An upper bound: the topic's name stands in the paths of the state, its two folders and in
    the notification; broker ids have up to ten digits and a comma."""
    state = planned.state
    brokers = len(state.isr) + len(state.elr) + len(state.last_known_elr)
    return _BYTES_AROUND_STATE + 4 * len(planned.topic.name) + 11 * brokers


def _next_version(planned: PlannedState) -> int:
    return 0 if planned.former.version == NO_NODE else planned.former.version + 1


def _with_states(
    image: MetadataImage, plan: Iterable[PlannedState], moved_version: int | None
) -> list[TopicState]:
    """The topics of the image with the states that were written.

    Each comes with the replicas that it was planned with: those of the state that it was written
    over, or where it was moved to (META-4).
    """
    partitions: dict[str, list[PartitionState]] = {}
    for planned in plan:
        name = planned.topic.name
        topic = image.topics.get(name)
        if topic is None or topic.topic_id != planned.topic.topic_id:
            continue  # deleted while the write was under way
        states = partitions.setdefault(name, list(topic.partitions))
        present = states[planned.partition]
        if present.version >= _next_version(planned):
            continue  # a later write was published already
        states[planned.partition] = replace(planned.state, version=_next_version(planned))
    return [
        replace(
            image.topics[name],
            partitions=tuple(states),
            version=max(
                image.topics[name].version, NO_NODE if moved_version is None else moved_version
            ),
        )
        for name, states in partitions.items()
    ]
