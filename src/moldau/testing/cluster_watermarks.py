"""Looks at the offsets that the brokers of a simulated cluster keep in memory (HW-1, HW-2, HW-4).

What is wrong there may never be seen by a client, or much later, when the replica happens to lead;
so it is looked at where it is, whenever something was promised. A rule over what brokers hold; it
changes nothing and waits for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol
from uuid import UUID

from moldau.model import Offset, TopicPartition
from moldau.testing.cluster_history import ClusterHistory


class HeldLog(Protocol):
    @property
    def log_start_offset(self) -> Offset: ...
    @property
    def log_end_offset(self) -> Offset: ...


class HeldReplica(Protocol):
    """As much as is looked at of `moldau.replication.partition.Partition`."""

    @property
    def log(self) -> HeldLog: ...
    @property
    def topic_partition(self) -> TopicPartition: ...
    @property
    def topic_id(self) -> UUID: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def is_leader(self) -> bool: ...
    @property
    def high_watermark(self) -> Offset: ...
    @property
    def last_stable_offset(self) -> Offset: ...


class _Led(NamedTuple):
    leader_epoch: int
    high_watermark: int


class ClusterWatermarks:
    """One for each run."""

    def __init__(self, history: ClusterHistory) -> None:
        self._history = history
        self._led: dict[tuple[str, UUID, int], _Led] = {}  # by broker and partition

    def see(self, host: str, replicas: Iterable[HeldReplica]) -> None:
        for replica in replicas:
            self._see_bounds(host, replica)
            if replica.is_leader:
                self._see_leader(host, replica)

    def _see_bounds(self, host: str, replica: HeldReplica) -> None:
        start, end = replica.log.log_start_offset, replica.log.log_end_offset
        high_watermark, stable = replica.high_watermark, replica.last_stable_offset
        if not start <= high_watermark <= end:
            self._history.report(
                "HW-1",
                f"{host} has the high watermark {high_watermark} of {replica.topic_partition}, "
                f"whose log goes from {start} to {end}",
            )
        if stable > high_watermark:
            self._history.report(
                "HW-4",
                f"{host} has the last stable offset {stable} of {replica.topic_partition} past "
                f"the high watermark {high_watermark}",
            )

    def _see_leader(self, host: str, replica: HeldReplica) -> None:
        place = host, replica.topic_id, replica.topic_partition.partition
        now = _Led(replica.leader_epoch, replica.high_watermark)
        former = self._led.get(place)
        is_same = former is not None and former.leader_epoch == now.leader_epoch
        if former is not None and is_same and now.high_watermark < former.high_watermark:
            self._history.report(
                "HW-2",
                f"{host}, leader of {replica.topic_partition} in epoch {now.leader_epoch}, "
                f"went back from {former.high_watermark} to {now.high_watermark}",
            )
        self._led[place] = now
