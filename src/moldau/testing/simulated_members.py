"""Members of a group in a simulated cluster: they join, share partitions, commit, crash and return.

The classic protocol, as every consumer speaks it. The leader of a generation deals the partitions
out in turn; each owner goes on from the committed position and commits the next ones under its
generation. Now and then a member is silent for a while, as if it had crashed or slept, and comes
back: under its old id, which it may have lost, or as somebody new. `group_history` knows what must
not be.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Final, cast

from moldau.errors import ErrorCode
from moldau.model import TopicPartition
from moldau.testing.cluster_history import ClusterHistory
from moldau.testing.group_history import GroupHistory
from moldau.testing.simulated_clients import (
    FIND_COORDINATOR,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    Client,
    PositionBook,
)
from moldau.testing.simulated_wire import SimulatedWire, UnansweredError

if TYPE_CHECKING:
    from kio.schema.find_coordinator.v3.response import FindCoordinatorResponse
    from kio.schema.heartbeat.v3.response import HeartbeatResponse
    from kio.schema.join_group.v5.response import JoinGroupResponse
    from kio.schema.offset_commit.v8.response import OffsetCommitResponse
    from kio.schema.offset_fetch.v7.response import OffsetFetchResponse
    from kio.schema.sync_group.v3.response import SyncGroupResponse

SESSION_MS: Final = 1_000
_JOIN: Final = (11, 5)
_HEARTBEAT: Final = (12, 3)
_SYNC: Final = (14, 3)
_SILENCE_SHARE: Final = 0.04  # of the turns
_LATE_SHARE: Final = 0.1  # of the turns, too
_LONGEST_SILENCE_SECONDS: Final = 2.5

_LATE_POSITION: Final = 0
_FENCED: Final = (ErrorCode.unknown_member_id, ErrorCode.illegal_generation)


class SimulatedMember(Client):
    """One member; all of a group share a `GroupHistory`."""

    def __init__(
        self,
        name: str,
        wire: SimulatedWire,
        history: ClusterHistory,
        random: Random,
        *,
        group: GroupHistory,
        partitions: Sequence[TopicPartition],
        positions: PositionBook,
    ) -> None:
        super().__init__(name, wire, history, random)
        self._group = group
        self._partitions = partitions
        self._book = positions
        self._coordinator = -1
        self._member_id = ""
        self._generation = -1
        self._owned: dict[TopicPartition, int] = {}  # with the position to commit next
        # As whom it owned what, and in which generation: now, and before that.
        self._last: tuple[str, int, TopicPartition] | None = None
        self._former: tuple[str, int, TopicPartition] | None = None

    async def run(self) -> None:
        while not self.is_stopping:
            if self._coordinator < 0:
                await self._find_coordinator()
            elif self._generation < 0:
                if not await self._join():
                    await self._pause()
            else:
                await self._work()

    async def _find_coordinator(self) -> None:
        await self._pause()
        values: dict[str, object] = {"key": self._group.name, "key_type": 0}
        answer = cast("FindCoordinatorResponse", await self._ask_any(FIND_COORDINATOR, values))
        self._coordinator = answer.node_id if answer.error_code.value == 0 else -1

    async def _ask(self, api: tuple[int, int], values: dict[str, object]) -> object | None:
        """Ask the coordinator; None when nobody answers."""
        try:
            return await self._wire.call(
                self._coordinator, *api, {"group_id": self._group.name, **values}
            )
        except UnansweredError:
            self._coordinator = -1
            return None

    def _heed(self, error_code: ErrorCode) -> None:
        """What an error says about the membership."""
        if error_code in _FENCED:
            self._member_id, self._generation = "", -1
        elif error_code is ErrorCode.rebalance_in_progress:
            self._generation = -1
        else:
            self._coordinator = -1

    # A generation

    async def _join(self) -> bool:
        self._owned.clear()
        values: dict[str, object] = {
            "session_timeout": SESSION_MS,
            "rebalance_timeout": SESSION_MS,
            "member_id": self._member_id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [{"name": "in turn", "metadata": b""}],
        }
        answer = cast("JoinGroupResponse | None", await self._ask(_JOIN, values))
        if answer is None:
            return False
        if answer.error_code is ErrorCode.member_id_required:
            self._member_id = answer.member_id
            return False
        if answer.error_code is not ErrorCode.none:
            self._heed(answer.error_code)
            return False
        self._member_id = answer.member_id
        members = [each.member_id for each in answer.members]
        return await self._sync(answer.generation_id, members)

    async def _sync(self, generation: int, members: Sequence[str]) -> bool:
        """`members` is known to the leader alone, who deals out."""
        values: dict[str, object] = {
            "generation_id": generation,
            "member_id": self._member_id,
            "group_instance_id": None,
            "assignments": [
                {"member_id": member, "assignment": self._share_of(number, len(members))}
                for number, member in enumerate(members)
            ],
        }
        answer = cast("SyncGroupResponse | None", await self._ask(_SYNC, values))
        if answer is None:
            return False
        if answer.error_code is not ErrorCode.none:
            self._heed(answer.error_code)
            return False
        owned = [self._partitions[number] for number in answer.assignment]
        self._group.see_assignment(generation, self._member_id, owned)
        if self._last is not None and self._last[1] < generation:
            self._former = self._last
        if owned:
            self._last = self._member_id, generation, owned[0]
        for partition in owned:
            position = await self._read_position(partition)
            if position is None:
                return False
            self._owned[partition] = position + 1
        self._generation = generation
        return True

    def _share_of(self, number: int, count: int) -> bytes:
        return bytes(range(number, len(self._partitions), count))

    async def _read_position(self, partition: TopicPartition) -> int | None:
        at_least = self._group.position(partition)
        topic = {"name": partition.topic, "partition_indexes": [partition.partition]}
        values: dict[str, object] = {"topics": [topic], "require_stable": False}
        answer = cast("OffsetFetchResponse | None", await self._ask(OFFSET_FETCH, values))
        if answer is None:
            return None
        found = None if answer.error_code.value else answer.topics[0].partitions[0]
        if found is None or found.error_code.value:
            self._coordinator = -1
            return None
        self._group.see_position(partition, found.committed_offset, at_least)
        self._book.require(self._group.name, partition, found.committed_offset, "shown")
        return max(found.committed_offset, 0)

    # Work

    async def _work(self) -> None:
        turn = self._random.random()
        if turn < _SILENCE_SHARE:
            await self._be_silent()
        elif turn < _SILENCE_SHARE + _LATE_SHARE and self._former is not None:
            await self._commit_late(*self._former)
        elif turn < 0.5 or not self._owned:
            await self._beat()
        else:
            await self._commit(self._random.choice(sorted(self._owned)))
        await self._wire.clock.sleep(self._random.uniform(0.05, SESSION_MS / 4000))

    async def _be_silent(self) -> None:
        """As if crashed, or asleep."""
        await self._wire.clock.sleep(self._random.uniform(0.2, _LONGEST_SILENCE_SECONDS))
        if self._random.random() < 0.5:
            self._member_id, self._generation = "", -1  # another process in its place

    async def _beat(self) -> None:
        values: dict[str, object] = {
            "generation_id": self._generation,
            "member_id": self._member_id,
            "group_instance_id": None,
        }
        answer = cast("HeartbeatResponse | None", await self._ask(_HEARTBEAT, values))
        if answer is None:
            return
        if answer.error_code is not ErrorCode.none:
            self._heed(answer.error_code)
        else:
            self.progress += 1

    async def _commit(self, partition: TopicPartition) -> None:
        position = self._owned[partition]
        code = await self._ask_to_commit(self._member_id, self._generation, partition, position)
        if code is ErrorCode.none:
            self._owned[partition] = position + 1
            self.progress += 1
        elif code is not None:
            self._heed(code)

    async def _commit_late(
        self, member_id: str, generation: int, partition: TopicPartition
    ) -> None:
        """As a thread would that has slept through a rebalance: nobody must take it."""
        await self._ask_to_commit(member_id, generation, partition, _LATE_POSITION)

    async def _ask_to_commit(
        self, member_id: str, generation: int, partition: TopicPartition, position: int
    ) -> ErrorCode | None:
        """Returns None when nobody answers."""
        newest = self._group.newest_generation
        row = {
            "partition_index": partition.partition,
            "committed_offset": position,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        values: dict[str, object] = {
            "generation_id_or_member_epoch": generation,
            "member_id": member_id,
            "group_instance_id": None,
            "topics": [{"name": partition.topic, "partitions": [row]}],
        }
        answer = cast("OffsetCommitResponse | None", await self._ask(OFFSET_COMMIT, values))
        if answer is None:
            return None
        code = answer.topics[0].partitions[0].error_code
        if code is ErrorCode.none:
            self._group.accept_commit(generation, newest, partition, position)
            self._book.require(self._group.name, partition, position, "committed")
        return code
