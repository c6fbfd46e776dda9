"""Which replicas to move, and which leaders to change, so that brokers carry alike. A rule.

What Cruise Control is used for, in small: brokers get as much load as the others, replicas of a
partition are in different racks where there are enough, and as little as possible is moved.

1. A replica that shares a rack with another one, while a rack is without one, goes there; one on a
   broker that is to be left goes elsewhere.
2. While a broker exceeds the mean by more than the tolerance, in bytes on disk or in bytes written
   per second, the replica goes from there by whose move the excess shrinks the most, the busiest
   broker first; of moves that do the same, the one that copies less.
3. Leaders are spread last, by changing the order of replicas, which moves no data: by the traffic
   they cause, then by their number as far as the traffic allows it.

The excess of a thing is what a broker has of it, over the mean, beyond the tolerance; excesses are
squared, so that two small ones are better than a large one, and added up. No move is made that does
not make this sum smaller, so that planning ends, and never leaves it larger than it was.

A broker that was looked at, and that nothing can go from, is looked at again only for brokers that
have become lighter since: a heavier one takes no load that it did not take before. So the plan is
the one that looking at everything each time would find, at a fraction of the cost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from moldau.model import TopicPartition

Replicas = tuple[int, ...]
Load = tuple[int, int]  # of the two things that are spread
Ratios = tuple[float, float]  # the same over their means

DEFAULT_TOLERANCE: Final = 0.1
_NOTHING: Final = (0, 0)
_NO_RATIOS: Final = (0.0, 0.0)
_FIRST_KEY: Final = TopicPartition("", -1)
_DIGITS: Final = 9
"""Gains are rounded to these: less is what arithmetic leaves, and worth no move."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLoad:
    """What there is. Sizes and rates are whole numbers, so that sums of them are exact."""

    replicas: Mapping[TopicPartition, Replicas]  # the preferred leader first
    sizes: Mapping[TopicPartition, int]  # bytes of each replica of the partition
    racks: Mapping[int, str | None]  # of the brokers that live
    rates: Mapping[TopicPartition, int] = field(default_factory=dict)  # bytes/s written to it
    leave: Collection[int] = ()  # brokers that shall hold nothing


class BrokerLoad(NamedTuple):
    """What one broker carries."""

    size_bytes: int
    bytes_in: int  # per second, by producers and from leaders
    leaders: int
    leader_bytes: int  # per second, in from producers and out to followers, of what it leads


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalancePlan:
    """What shall be: only partitions whose replicas change, or their order."""

    targets: Mapping[TopicPartition, Replicas]
    moved_bytes: int  # of replicas that are made anew
    before: Mapping[int, BrokerLoad]
    after: Mapping[int, BrokerLoad]


def plan_rebalance(cluster: ClusterLoad, tolerance: float = DEFAULT_TOLERANCE) -> RebalancePlan:
    """The same answer for the same cluster, and nothing to do for what it has made."""
    moves = _Moves(cluster)
    moves.leave_brokers()
    moves.spread_over_racks()
    moves.level_load(tolerance)
    leaders = _Leaders(cluster, moves.replicas, tolerance)
    leaders.spread()
    planned = leaders.replicas
    targets = {
        key: replicas
        for key, replicas in sorted(planned.items())
        if replicas != cluster.replicas[key]
    }
    moved = sum(
        cluster.sizes.get(key, 0) * len(set(replicas) - set(cluster.replicas[key]))
        for key, replicas in targets.items()
    )
    return RebalancePlan(
        targets=targets,
        moved_bytes=moved,
        before=_broker_loads(cluster.replicas, cluster),
        after=_broker_loads(planned, cluster),
    )


class _Carried:
    """What brokers carry of two things, and how that compares."""

    def __init__(self, brokers: Iterable[int], shared_by: int) -> None:
        """The mean is for so many brokers."""
        self._loads: dict[int, Load] = dict.fromkeys(brokers, _NOTHING)
        self._shared_by = shared_by
        self._totals: Load = _NOTHING

    def add(self, broker: int, load: Load) -> None:
        """Nothing where the broker is not alive. A load that is taken away is negative."""
        if broker in self._loads:
            self._loads[broker] = _sum(self._loads[broker], load)
            self._totals = _sum(self._totals, load)

    def move(self, load: Load, source: int, target: int) -> None:
        self.add(source, _negative(load))
        self.add(target, load)

    def ratios(self, load: Load) -> Ratios:
        """A load over the mean of the brokers."""
        first, second = (
            one * self._shared_by / total if total else 0.0
            for one, total in zip(load, self._totals, strict=True)
        )
        return first, second

    def of(self, broker: int) -> Ratios:
        return self.ratios(self._loads[broker])


class _Moves:
    """The replicas as they are planned so far. Invariant: what is carried is theirs."""

    def __init__(self, cluster: ClusterLoad) -> None:
        self._cluster = cluster
        self._keys = sorted(cluster.replicas)
        self.replicas = dict(cluster.replicas)
        self._targets = sorted(set(cluster.racks) - set(cluster.leave))
        self._carried = _Carried(cluster.racks, len(self._targets))
        self._held: dict[int, set[TopicPartition]] = {one: set() for one in cluster.racks}
        self._hopeless = _Hopeless()
        for key, replicas in self.replicas.items():
            for broker in replicas:
                self._carried.add(broker, self._load_of(key))
                if broker in self._held:
                    self._held[broker].add(key)

    def _load_of(self, key: TopicPartition) -> Load:
        return self._cluster.sizes.get(key, 0), self._cluster.rates.get(key, 0)

    def leave_brokers(self) -> None:
        for key in self._keys:
            for broker in self.replicas[key]:
                if broker in self._cluster.leave:
                    self._move_to_best(key, broker)

    def spread_over_racks(self) -> None:
        racks = self._cluster.racks
        if any(rack is None for rack in racks.values()):
            return
        for key in self._keys:
            for broker in self.replicas[key][::-1]:
                used = [racks.get(one) for one in self.replicas[key]]
                if used.count(racks.get(broker)) > 1:
                    fresh = [one for one in self._targets if racks[one] not in used]
                    self._move_to_best(key, broker, fresh)

    def level_load(self, tolerance: float) -> None:
        self._hopeless = _Hopeless()
        self._ratios = {key: self._carried.ratios(self._load_of(key)) for key in self._keys}
        for _ in range(sum(map(len, self.replicas.values()))):
            move = self._find_move(1 + tolerance)
            if move is None:
                return
            self._move(*move)

    def _find_move(self, bound: float) -> tuple[TopicPartition, int, int] | None:
        carried = {broker: self._carried.of(broker) for broker in self._targets}
        busiest_first = sorted(self._targets, key=lambda one: (-max(carried[one]), one))
        for source in busiest_first:
            if max(carried[source]) <= bound:
                return None
            move = self._find_best_move(source, carried, bound)
            if move is not None:
                return move
        return None

    def _find_best_move(
        self, source: int, carried: Mapping[int, Ratios], bound: float
    ) -> tuple[TopicPartition, int, int] | None:
        """The move from a broker that takes away most of the excess."""
        targets = self._hopeless.find_others(source, self._targets)
        if not targets:
            return None
        excess = {one: _excess(ratios, _NO_RATIOS, bound) for one, ratios in carried.items()}
        best: tuple[float, Load, float, TopicPartition, int] | None = None
        for reached, key in self._reliefs(source, carried[source], bound):
            if best is not None and reached > best[0]:
                break  # no target could make it, or one of those behind it, the best
            load, more = self._load_of(key), self._ratios[key]
            relief = excess[source] - _excess(carried[source], (-more[0], -more[1]), bound)
            for target in targets:
                burden = _excess(carried[target], more, bound) - excess[target]
                change = round(burden - relief, _DIGITS)
                if change >= 0 or (best is not None and change > best[0]):
                    continue
                found = change, load, max(carried[target]), key, target
                if (best is None or found < best) and self._may_move(key, source, target):
                    best = found
        if best is None:
            self._hopeless.add_targets(source, targets)
            return None
        return best[3], source, best[4]

    def _reliefs(
        self, source: int, ratios: Ratios, bound: float
    ) -> list[tuple[float, TopicPartition]]:
        """Partitions whose going does a broker good, most first, with the change it makes there."""
        found = []
        before, (first, second) = _excess(ratios, _NO_RATIOS, bound), ratios
        for key in self._held[source]:
            more = self._ratios[key]
            relief = before - (
                max(0.0, first - more[0] - bound) ** 2 + max(0.0, second - more[1] - bound) ** 2
            )
            if relief > 0:
                found.append((round(-relief, _DIGITS), key))
        found.sort()
        return found

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
            free,
            key=lambda one: (
                racks[one] in others,
                max(self._carried.of(one)),
                len(self._held[one]),
                one,
            ),
        )
        self._move(key, source, best)

    def _move(self, key: TopicPartition, source: int, target: int) -> None:
        load = self._load_of(key)
        self.replicas[key] = tuple(target if one == source else one for one in self.replicas[key])
        self._carried.move(load, source, target)
        if source in self._held:
            self._held[source].remove(key)
        self._held[target].add(key)
        # Those who hold the partition, too, may part with it where its racks have changed.
        self._hopeless.remove_sources(source, target, *self.replicas[key])
        self._hopeless.remove_target(source)


class _Hopeless:
    """By broker: those that nothing of it can go to, by the last look at them."""

    def __init__(self) -> None:
        self._targets: dict[int, set[int]] = {}

    def find_others(self, source: int, targets: Iterable[int]) -> list[int]:
        """Those that have to be looked at."""
        known = self._targets.get(source, set())
        return [one for one in targets if one not in known and one != source]

    def add_targets(self, source: int, targets: Iterable[int]) -> None:
        self._targets.setdefault(source, set()).update(targets)

    def remove_sources(self, *sources: int) -> None:
        """What these carry has changed."""
        for source in sources:
            self._targets.pop(source, None)

    def remove_target(self, target: int) -> None:
        for targets in self._targets.values():
            targets.discard(target)


class _Leaders:
    """Who leads what, as it is planned so far. Invariant: what is carried is theirs."""

    def __init__(
        self,
        cluster: ClusterLoad,
        replicas: Mapping[TopicPartition, Replicas],
        tolerance: float,
    ) -> None:
        self.replicas = dict(replicas)
        self._rates = cluster.rates
        self._brokers = sorted(set(cluster.racks) - set(cluster.leave))
        self._carried = _Carried(cluster.racks, len(self._brokers))
        self._bound = 1 + tolerance
        self._hopeless = _Hopeless()
        self._led: defaultdict[int, set[TopicPartition]] = defaultdict(set)
        for key, brokers in replicas.items():
            for first in brokers[:1]:
                self._carried.add(first, self._load_of(key))
                self._led[first].add(key)
        self._ratios = {key: self._carried.ratios(self._load_of(key)) for key in replicas}

    def _load_of(self, key: TopicPartition) -> Load:
        return 1, _leader_rate(self._rates.get(key, 0), self.replicas[key])

    def spread(self) -> None:
        for _ in range(len(self.replicas)):
            change = self._find_change()
            if change is None:
                return
            key, target = change
            former = self.replicas[key][0]
            self._carried.move(self._load_of(key), former, target)
            self.replicas[key] = (target, *(one for one in self.replicas[key] if one != target))
            self._led[former].remove(key)
            self._led[target].add(key)
            self._hopeless.remove_sources(former, target)
            self._hopeless.remove_target(former)

    def _find_change(self) -> tuple[TopicPartition, int] | None:
        """From brokers whose leaders have much traffic, then from those with many leaders.

        Traffic differs from look to look and is levelled up to the tolerance; the number, where
        traffic stays as good as it is, to the last leader.
        """
        for first in sorted(self._brokers, key=self._rank):
            change = self._find_best_change(first)
            if change is not None:
                return change
        return None

    def _rank(self, broker: int) -> tuple[float, float, int]:
        number, rate = self._carried.of(broker)
        return -max(self._bound, rate), -number, broker

    def _find_best_change(self, first: int) -> tuple[TopicPartition, int] | None:
        """By how much the squares of traffic beyond the bound change, then those of numbers."""
        others = {
            one: self._carried.of(one) for one in self._hopeless.find_others(first, self._brokers)
        }
        if not others:
            return None
        bound, giver = self._bound, self._carried.of(first)
        given = _square(giver[1], bound), _square(giver[0], 0.0)
        taken = {
            one: (_square(ratios[1], bound), _square(ratios[0], 0.0))
            for one, ratios in others.items()
        }
        best: tuple[float, float, TopicPartition, int] = (0.0, 0.0, _FIRST_KEY, -1)
        for key in self._led[first]:
            number, rate = self._ratios[key]
            left = max(0.0, giver[1] - rate - bound) ** 2
            for other in self.replicas[key][1:]:
                taker = others.get(other)
                if taker is None:
                    continue
                grown = max(0.0, taker[1] + rate - bound) ** 2
                change = round(left + grown - given[0] - taken[other][0], _DIGITS)
                if change > best[0]:
                    continue
                numbers = _square(giver[0] - number, 0.0) + _square(taker[0] + number, 0.0)
                found = round(numbers - given[1] - taken[other][1], _DIGITS)
                best = min(best, (change, found, key, other))
        if best[:2] >= (0.0, 0.0):
            self._hopeless.add_targets(first, others)
            return None
        return best[2:]


def _square(ratio: float, bound: float) -> float:
    return max(0.0, ratio - bound) ** 2


def _excess(ratios: Ratios, more: Ratios, bound: float) -> float:
    return _square(ratios[0] + more[0], bound) + _square(ratios[1] + more[1], bound)


def _leader_rate(rate: int, replicas: Replicas) -> int:
    """In from producers, and out to each follower."""
    return rate * len(replicas)


def _sum(one: Load, other: Load) -> Load:
    return one[0] + other[0], one[1] + other[1]


def _negative(load: Load) -> Load:
    return -load[0], -load[1]


def _broker_loads(
    replicas: Mapping[TopicPartition, Replicas], cluster: ClusterLoad
) -> dict[int, BrokerLoad]:
    found = dict.fromkeys(sorted(cluster.racks), BrokerLoad(0, 0, 0, 0))
    for key, brokers in replicas.items():
        size, rate = cluster.sizes.get(key, 0), cluster.rates.get(key, 0)
        for place, broker in enumerate(brokers):
            if broker in found:
                leads = place == 0
                one = found[broker]
                found[broker] = BrokerLoad(
                    one.size_bytes + size,
                    one.bytes_in + rate,
                    one.leaders + leads,
                    one.leader_bytes + leads * _leader_rate(rate, brokers),
                )
    return found


def find_staying(load: ClusterLoad, plan: RebalancePlan) -> list[TopicPartition]:
    """What stays on brokers that are to be left: there are too few others for its replicas."""
    after = {**load.replicas, **plan.targets}
    left = set(load.leave)
    return sorted(key for key, replicas in after.items() if not left.isdisjoint(replicas))


# Kafka's protocol does not tell traffic, but it tells how large a log is and where it begins and
# ends. What a log has grown by is exact as long as nothing was taken from it meanwhile; after a
# deletion or a compaction, the new records are counted instead, each as large as the mean of what
# is there.


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReading:
    """A log at one moment. Invariant: start offset <= end offset."""

    start_offset: int
    end_offset: int
    size_bytes: int


def bytes_per_second(before: LogReading, after: LogReading, seconds: float) -> int:
    """What was written between the readings; 0 where nothing was, or the log was cut back.

    In whole bytes, so that sums over many partitions are exact.
    """
    records = after.end_offset - before.end_offset
    if records <= 0 or seconds <= 0:
        return 0
    grown_bytes = after.size_bytes - before.size_bytes
    if grown_bytes > 0 and before.start_offset == after.start_offset:
        return round(grown_bytes / seconds)
    kept = after.end_offset - after.start_offset
    mean_bytes = after.size_bytes / kept if kept > 0 else 0.0
    return round(records * mean_bytes / seconds)
