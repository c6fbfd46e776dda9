"""Which brokers hold which replicas of a new topic. A rule.

The algorithm is Kafka's (`AdminUtils.assignReplicasToBrokers`), so that a cluster of both spreads
its topics in one way. Leaders go round the brokers, one after the other, beginning at
`start_index`. The followers of a partition are the brokers after its leader, at a distance that
grows by one each time all brokers have led (`replica_shift` to begin with): so the partitions of a
broker that dies have their next leaders on many brokers, not on one.

With racks the brokers are first put in an order that alternates between the racks, and a follower
goes to a rack without a replica as long as there is one. Racks count only when every broker names
its own. The two start values are random in production and are handed in.

Where fewer brokers are alive than a partition needs, it has a replica on each of them, and the rest
on brokers that are registered and away, as in Kafka's own quorum. These are chosen by turns, first
those in racks without a living broker. All of them take turns as the preferred leader: a broker
that is restarted while a topic is created leads its share of it afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest
from typing import NamedTuple

from moldau.model import BrokerId


class BrokerRack(NamedTuple):
    """What placement knows of a broker."""

    id: BrokerId
    rack: str | None = None


Assignment = tuple[tuple[BrokerId, ...], ...]
"""The replicas of each partition, in the order of the partitions; the first of each leads."""


def place_replicas(
    brokers: Sequence[BrokerRack],
    *,
    partition_count: int,
    replication_factor: int,
    start_index: int,
    replica_shift: int,
    first_partition: int = 0,
    away: Sequence[BrokerRack] = (),
) -> Assignment:
    """Place `partition_count` partitions, numbered from `first_partition`.

    `replication_factor` is at most the number of brokers, with those that are `away`;
    `topic_creation` has checked that.
    """
    missing = replication_factor - len(brokers)
    if missing > 0:
        return tuple(
            place_replicas(
                [*brokers, *_choose_away(brokers, away, missing, start_index + partition)],
                partition_count=1,
                replication_factor=replication_factor,
                start_index=start_index,
                replica_shift=replica_shift + partition // replication_factor,
                first_partition=partition,
            )[0]
            for partition in range(first_partition, first_partition + partition_count)
        )
    racks = {broker.id: broker.rack for broker in brokers if broker.rack is not None}
    rack_aware = len(racks) == len(brokers)
    ring = alternate_racks(racks) if rack_aware else sorted(broker.id for broker in brokers)
    rounds_before = max(0, first_partition - 1) // len(ring)
    assignment = []
    for partition in range(first_partition, first_partition + partition_count):
        leader_index = (partition + start_index) % len(ring)
        shift = replica_shift + partition // len(ring) - rounds_before
        if rack_aware:
            replicas = _replicas_over_racks(ring, racks, leader_index, shift, replication_factor)
        else:
            replicas = _replicas(ring, leader_index, shift, replication_factor)
        assignment.append(replicas)
    return tuple(assignment)


def _choose_away(
    brokers: Sequence[BrokerRack], away: Sequence[BrokerRack], count: int, turn: int
) -> list[BrokerRack]:
    ring = sorted(away)
    start = turn % len(ring)
    left = [*ring[start:], *ring[:start]]
    racks = {broker.rack for broker in brokers}
    chosen = []
    for _ in range(count):
        broker = next((each for each in left if each.rack not in racks), left[0])
        left.remove(broker)
        racks.add(broker.rack)
        chosen.append(broker)
    return chosen


def alternate_racks(racks: Mapping[BrokerId, str]) -> list[BrokerId]:
    """Order the brokers so that neighbours are in different racks as far as possible."""
    members: dict[str, list[BrokerId]] = {}
    for broker in sorted(racks):
        members.setdefault(racks[broker], []).append(broker)
    rounds = zip_longest(*(members[rack] for rack in sorted(members)))
    return [broker for broker in chain.from_iterable(rounds) if broker is not None]


def _follower_index(leader_index: int, shift: int, follower: int, broker_count: int) -> int:
    distance = 1 + (shift + follower) % (broker_count - 1)
    return (leader_index + distance) % broker_count


def _replicas(
    ring: Sequence[BrokerId], leader_index: int, shift: int, replication_factor: int
) -> tuple[BrokerId, ...]:
    followers = (
        ring[_follower_index(leader_index, shift, follower, len(ring))]
        for follower in range(replication_factor - 1)
    )
    return (ring[leader_index], *followers)


def _replicas_over_racks(
    ring: Sequence[BrokerId],
    racks: Mapping[BrokerId, str],
    leader_index: int,
    shift: int,
    replication_factor: int,
) -> tuple[BrokerId, ...]:
    rack_count = len(set(racks.values()))
    replicas = [ring[leader_index]]
    racks_used = {racks[ring[leader_index]]}
    follower = 0
    while len(replicas) < replication_factor:
        broker = ring[_follower_index(leader_index, shift * rack_count, follower, len(ring))]
        follower += 1
        new_rack = racks[broker] not in racks_used or len(racks_used) == rack_count
        if new_rack and broker not in replicas:
            replicas.append(broker)
            racks_used.add(racks[broker])
    return tuple(replicas)
