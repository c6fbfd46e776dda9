"""Who takes from what in a share group: the simple assignor (KIP-932). A rule.

Every partition is taken from by somebody who wants it, and everybody who wants anything has
something to take from. Where there are more members than partitions several share one, as many as
share the others, give or take one; where there are more partitions than members, each member has
as many as the others who want the same, give or take one (SHG-4). Whoever has something keeps it
as far as that allows.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from moldau.groups.rules.assigned_partitions import AssignedPartitions, partitions_of
from moldau.groups.rules.server_assignors import Targets

_Partition = tuple[UUID, int]


class Taker(NamedTuple):
    """A member, with what it wants and what it had before."""

    member_id: str
    topics: frozenset[UUID]
    former: AssignedPartitions


def assign_simply(takers: Sequence[Taker], assignable: AssignedPartitions) -> Targets:
    """`assignable` are the partitions that may be given to somebody."""
    targets: Targets = {}
    for component, partitions in _components(takers, assignable):
        targets |= _Simple(component, partitions).assign()
    return targets


def _components(
    takers: Sequence[Taker], assignable: AssignedPartitions
) -> list[tuple[list[Taker], list[_Partition]]]:
    """Members that want the same topics, with those topics' partitions. Each set of wishes is
    dealt with by itself, so that one who wants more does not come short of what others want."""
    by_wish: dict[frozenset[UUID], list[Taker]] = {}
    for taker in sorted(takers):
        by_wish.setdefault(taker.topics, []).append(taker)
    return [
        (
            members,
            [
                (topic_id, partition)
                for topic_id in sorted(wish, key=lambda one: one.int)
                for partition in sorted(assignable.get(topic_id, ()))
            ],
        )
        for wish, members in by_wish.items()
    ]


class _Simple:
    """One assignment in the making, among members that want the same."""

    def __init__(self, takers: Sequence[Taker], partitions: Sequence[_Partition]) -> None:
        self._takers = takers
        self._partitions = partitions
        self._given: dict[str, set[_Partition]] = {one.member_id: set() for one in takers}
        self._shared_by = dict.fromkeys(partitions, 0)

    def assign(self) -> Targets:
        if self._partitions:
            self._keep()
            if len(self._takers) <= len(self._partitions):
                self._deal_partitions()
            else:
                self._deal_members()
        return {member_id: partitions_of(some) for member_id, some in self._given.items()}

    def _keep(self) -> None:
        """What they had, unless it is more than their part."""
        member_quota = _Quota(max(len(self._partitions), len(self._takers)), len(self._takers))
        sharing_quota = _Quota(max(len(self._partitions), len(self._takers)), len(self._partitions))
        for taker in self._takers:
            for topic_id in sorted(taker.former, key=lambda one: one.int):
                for number in sorted(taker.former[topic_id]):
                    partition = (topic_id, number)
                    if partition not in self._shared_by:
                        continue
                    has = len(self._given[taker.member_id])
                    if member_quota.allows(has) and sharing_quota.allows(
                        self._shared_by[partition]
                    ):
                        member_quota.take(has)
                        sharing_quota.take(self._shared_by[partition])
                        self._give(taker.member_id, partition)

    def _give(self, member_id: str, partition: _Partition) -> None:
        self._given[member_id].add(partition)
        self._shared_by[partition] += 1

    def _deal_partitions(self) -> None:
        """Those that nobody takes from yet, to who has least."""
        loads = [
            (len(self._given[one.member_id]), place, one.member_id)
            for place, one in enumerate(self._takers)
        ]
        heapq.heapify(loads)
        for partition in self._partitions:
            if self._shared_by[partition] == 0:
                load, place, member_id = heapq.heappop(loads)
                self._give(member_id, partition)
                heapq.heappush(loads, (load + 1, place, member_id))

    def _deal_members(self) -> None:
        """Those that have nothing yet, to what is shared by fewest."""
        shares = [(self._shared_by[one], place, one) for place, one in enumerate(self._partitions)]
        heapq.heapify(shares)
        for taker in self._takers:
            if not self._given[taker.member_id]:
                count, place, partition = heapq.heappop(shares)
                self._give(taker.member_id, partition)
                heapq.heappush(shares, (count + 1, place, partition))


class _Quota:
    """`total` dealt out evenly among `holders`: so many may have one more than the others."""

    def __init__(self, total: int, holders: int) -> None:
        self._least, self._spare = divmod(total, holders)

    def allows(self, has: int) -> bool:
        return has < self._least or (has == self._least and self._spare > 0)

    def take(self, has: int) -> None:
        if has == self._least:
            self._spare -= 1


def wanted_partitions(
    topics: Mapping[UUID, int], initialized: AssignedPartitions
) -> AssignedPartitions:
    """Those of some topics (their partition counts) whose state is kept (SHG-1)."""
    return {
        topic_id: some
        for topic_id, count in topics.items()
        if (some := frozenset(range(count)) & initialized.get(topic_id, frozenset()))
    }
