"""The committed offsets of a group: one for each partition that it has committed.

Hard state, changed by `apply` alone. Who may commit is for `commits`, what is too old for `expiry`.
A rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from moldau.groups.rules.pending_offsets import PendingOffsets
from moldau.groups.rules.records import CommittedOffset

_NOTHING: Mapping[int, CommittedOffset] = MappingProxyType({})


class OffsetTable:
    """By topic, then by partition; a topic without committed offsets is not in it."""

    __slots__ = ("_by_topic",)

    def __init__(self) -> None:
        self._by_topic: dict[str, dict[int, CommittedOffset]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_topic)

    def __iter__(self) -> Iterator[tuple[str, int, CommittedOffset]]:
        for topic, partitions in self._by_topic.items():
            for partition, committed in partitions.items():
                yield topic, partition, committed

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(self._by_topic)

    def of_topic(self, topic: str) -> Mapping[int, CommittedOffset]:
        return self._by_topic.get(topic, _NOTHING)

    def find(self, topic: str, partition: int) -> CommittedOffset | None:
        return self.of_topic(topic).get(partition)

    def apply(self, topic: str, partition: int, committed: CommittedOffset | None) -> None:
        if committed is not None:
            self._by_topic.setdefault(topic, {})[partition] = committed
            return
        partitions = self._by_topic.get(topic)
        if partitions is not None:
            partitions.pop(partition, None)
            if not partitions:
                del self._by_topic[topic]


class WithOffsets:
    """A group of any kind, as far as its offsets go. They outlive its kind."""

    offsets: OffsetTable
    pending_offsets: PendingOffsets

    def take_offsets(self, former: WithOffsets) -> None:
        """Go on with those of the group that had this id before."""
        self.offsets = former.offsets
        self.pending_offsets = former.pending_offsets
