"""Which replicas to move, and which leaders to change, so that brokers carry alike. A rule.

What Cruise Control is used for, in small: brokers get as much load as the others, replicas of a
partition are in different racks where there are enough, and as little as possible is moved.

1. A replica that shares a rack with another one, while a rack is without one, goes there; one on a
   broker that is to be left goes elsewhere.
2. While the busiest broker carries more than the mean by the tolerance, the replica goes from there
   to the idlest broker that may have it by which the difference between the two shrinks the most;
   one whose move would not shrink it stays.
3. Leaders are spread last, by changing the order of replicas, which moves no data.

Load is whatever the caller measured, such as bytes on disk; it is the same for each replica of a
partition.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from moldau.model import TopicPartition

Replicas = tuple[int, ...]

DEFAULT_TOLERANCE: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLoad:
    """What there is."""

    replicas: Mapping[TopicPartition, Replicas]  # the preferred leader first
    loads: Mapping[TopicPartition, float]  # of each replica of the partition
    racks: Mapping[int, str | None]  # of the brokers that live
    leave: Collection[int] = ()  # brokers that shall hold nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalancePlan:
    """What shall be: only partitions whose replicas change, or their order."""

    targets: Mapping[TopicPartition, Replicas]
    moved_load: float  # of replicas that are made anew
    before: Mapping[int, float]  # load of each broker
    after: Mapping[int, float]
    leaders_before: Mapping[int, int]
    leaders_after: Mapping[int, int]


def plan_rebalance(cluster: ClusterLoad, tolerance: float = DEFAULT_TOLERANCE) -> RebalancePlan:
    """The same answer for the same cluster, and nothing to do for what it has made."""
    work = _Work(cluster)
    work.leave_brokers()
    work.spread_over_racks()
    work.level_load(tolerance)
    work.spread_leaders()
    targets = {
        key: replicas
        for key, replicas in sorted(work.replicas.items())
        if replicas != cluster.replicas[key]
    }
    moved = sum(
        cluster.loads.get(key, 0.0) * len(set(replicas) - set(cluster.replicas[key]))
        for key, replicas in targets.items()
    )
    return RebalancePlan(
        targets=targets,
        moved_load=moved,
        before=_load_of(cluster.replicas, cluster),
        after=_load_of(work.replicas, cluster),
        leaders_before=_leaders_of(cluster.replicas, cluster),
        leaders_after=_leaders_of(work.replicas, cluster),
    )


class _Work:
    """The replicas as they are planned so far. Invariant: `load` is theirs."""

    def __init__(self, cluster: ClusterLoad) -> None:
        self._cluster = cluster
        self.replicas = dict(cluster.replicas)
        self._targets = sorted(set(cluster.racks) - set(cluster.leave))
        self._load = _load_of(cluster.replicas, cluster)
        self._count = dict.fromkeys(self._load, 0)
        for replicas in self.replicas.values():
            for broker in replicas:
                if broker in self._count:
                    self._count[broker] += 1

    def leave_brokers(self) -> None:
        for key in sorted(self.replicas):
            for broker in self.replicas[key]:
                if broker in self._cluster.leave:
                    self._move_to_best(key, broker)

    def spread_over_racks(self) -> None:
        racks = self._cluster.racks
        if any(rack is None for rack in racks.values()):
            return
        for key in sorted(self.replicas):
            for broker in self.replicas[key][::-1]:
                used = [racks.get(one) for one in self.replicas[key]]
                if used.count(racks.get(broker)) > 1:
                    fresh = [one for one in self._targets if racks[one] not in used]
                    self._move_to_best(key, broker, fresh)

    def level_load(self, tolerance: float) -> None:
        if len(self._targets) < 2:
            return
        mean = sum(self._load[one] for one in self._targets) / len(self._targets)
        for _ in range(sum(map(len, self.replicas.values()))):
            busiest = max(self._targets, key=lambda one: (self._load[one], -one))
            if self._load[busiest] <= mean * (1 + tolerance):
                return
            best = self._find_best_move(busiest)
            if best is None:
                return
            self._move(*best)

    def _find_best_move(self, source: int) -> tuple[TopicPartition, int, int] | None:
        """The move from a broker after which it and the target differ the least."""
        best: tuple[float, TopicPartition, int] | None = None
        targets = sorted(self._targets, key=lambda one: (self._load[one], one))
        for key in sorted(self.replicas):
            load = self._cluster.loads.get(key, 0.0)
            if source not in self.replicas[key] or load <= 0:
                continue
            for target in targets:
                gap = self._load[source] - self._load[target]
                if gap <= load:
                    break  # those behind it carry more
                if self._may_move(key, source, target):
                    left = abs(gap - 2 * load)
                    if best is None or left < best[0]:
                        best = left, key, target
                    break
        return None if best is None else (best[1], source, best[2])

    def _may_move(self, key: TopicPartition, source: int, target: int) -> bool:
        replicas, racks = self.replicas[key], self._cluster.racks
        if target in replicas:
            return False
        before = {racks.get(one) for one in replicas}
        after = {racks.get(target if one == source else one) for one in replicas}
        return len(after) >= len(before)

    def _move_to_best(
        self, key: TopicPartition, source: int, allowed: Collection[int] | None = None
    ) -> None:
        targets = self._targets if allowed is None else allowed
        free = [one for one in targets if one not in self.replicas[key]]
        if not free:
            return
        racks = self._cluster.racks
        others = {racks.get(one) for one in self.replicas[key] if one != source}
        best = min(
            free, key=lambda one: (racks[one] in others, self._load[one], self._count[one], one)
        )
        self._move(key, source, best)

    def _move(self, key: TopicPartition, source: int, target: int) -> None:
        load = self._cluster.loads.get(key, 0.0)
        self.replicas[key] = tuple(target if one == source else one for one in self.replicas[key])
        if source in self._load:
            self._load[source] -= load
            self._count[source] -= 1
        self._load[target] += load
        self._count[target] += 1

    def spread_leaders(self) -> None:
        leaders = _leaders_of(self.replicas, self._cluster)
        for _ in range(len(self.replicas)):
            swap = self._find_best_leader(leaders)
            if swap is None:
                return
            key, target = swap
            former = self.replicas[key][0]
            rest = tuple(one for one in self.replicas[key] if one != target)
            self.replicas[key] = (target, *rest)
            leaders[former] -= 1
            leaders[target] += 1

    def _find_best_leader(self, leaders: Mapping[int, int]) -> tuple[TopicPartition, int] | None:
        """A change by which two brokers lead alike; the largest difference first."""
        best: tuple[int, TopicPartition, int] | None = None
        for key in sorted(self.replicas):
            first, *others = self.replicas[key]
            for other in others:
                gap = leaders.get(first, 0) - leaders.get(other, 0)
                if other in leaders and gap > 1 and (best is None or gap > best[0]):
                    best = gap, key, other
        return None if best is None else best[1:]


def _load_of(replicas: Mapping[TopicPartition, Replicas], cluster: ClusterLoad) -> dict[int, float]:
    load = dict.fromkeys(sorted(cluster.racks), 0.0)
    for key, brokers in replicas.items():
        for broker in brokers:
            if broker in load:
                load[broker] += cluster.loads.get(key, 0.0)
    return load


def _leaders_of(
    replicas: Mapping[TopicPartition, Replicas], cluster: ClusterLoad
) -> dict[int, int]:
    leaders = dict.fromkeys(sorted(cluster.racks), 0)
    for brokers in replicas.values():
        if brokers and brokers[0] in leaders:
            leaders[brokers[0]] += 1
    return leaders
