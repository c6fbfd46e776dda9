"""What a broker writes about its own partitions when it goes, and when it comes back. A rule.

Written by the broker itself, with compare-and-set (docs/replication.md):

- It stops: what it leads goes to another replica in sync, or to one that is eligible, and it leaves
  the in-sync sets, but never as the last one. It still has everything, so where it leaves too few
  behind it is eligible itself (ELR-2).
- A disk of it fails: the same, but it is not eligible.
- It is back with whole logs: what it still leads by the metadata, it leads under a new epoch, since
  it does not know any more how far the former one went (REP-1). Where it is eligible it stays so.
- It is back, and a log may have a hole at its end: it leaves the in-sync set, even as the last one,
  is not eligible, and leads nothing (REP-6); but it is remembered as one of the last that had
  everything. A partition that has no other replica keeps this one: there is nothing else. Clients
  notice by the new epoch what is lost.
- It is back, and the folder of a log is gone that had records: the same, but a partition that has
  no other replica is led by nobody, until the folder is back or somebody asks for an unclean
  election (LOG-14).

The state of a replica with a hole is written even where it is not in the set: a leader that is
about to add it, for what it knew of the log before, must lose the race.

- Its log has seen a later leader epoch than the state: the store was set back, by a restore from a
  backup perhaps, and what it says of leaders and in-sync sets was true once (DEL-2). Whoever led
  under that state could make the others truncate what was acknowledged since. So nobody does: the
  state says that nobody leads and nobody is known to be in sync, under an epoch later than any in
  this log, and what leads then is a matter of recovery, by the logs. A partition with one replica
  is led on under such an epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from enum import Enum, auto

from moldau.cluster.rules.leader_election import (
    MinInSync,
    PlannedState,
    elect_leader,
    with_in_sync,
    with_leader,
)
from moldau.cluster.rules.metadata_image import NO_NODE, PartitionState, TopicState
from moldau.model import NO_BROKER, BrokerId, LeaderEpoch, TopicPartition


class ReplicaCondition(Enum):
    """Of a replica on a broker that is back."""

    WHOLE = auto()
    HOLE = auto()  # records at its end may be missing, or all of them
    GONE = auto()  # it had records, and somebody has removed its folder
    OFFLINE = auto()  # on a disk that cannot be read


IsConcerned = Callable[[TopicState, int], bool]
"""Whether it is about this partition."""

FindCondition = Callable[[TopicState, int], ReplicaCondition]

FindEpoch = Callable[[TopicState, int], int]
"""The latest leader epoch that the replica here has seen, -1 for none."""


def decide_condition(
    *,
    has_log: bool,
    is_disk_missing: bool,
    is_missed: bool,
    was_served: bool,
    was_spared: bool,
    has_lost_its_end: bool,
) -> ReplicaCondition:
    """What a broker that is back has of a replica.

    - `has_log`: a log of this very topic is here.
    - `is_disk_missing`: no log of the name is, and a log directory cannot be read: it may be there.
    - `is_missed`: no log of the name is, though there was one with records, and its directory is.
    - `was_served`: it was in use in this life of the broker, until its topic vanished.
    - `was_spared`: nothing that was written can be lost, since its directory or the log itself was
      closed cleanly, or the machine has run ever since.
    - `has_lost_its_end`: something is lost, as was seen when it was opened.
    """
    if not has_log:
        if is_disk_missing:
            return ReplicaCondition.OFFLINE
        return ReplicaCondition.GONE if is_missed else ReplicaCondition.HOLE
    if was_served:
        return ReplicaCondition.WHOLE
    return ReplicaCondition.WHOLE if was_spared and not has_lost_its_end else ReplicaCondition.HOLE


def _has_seen_nothing(topic: TopicState, partition: int) -> int:
    return -1


def plan_controlled_shutdown(
    topics: Iterable[TopicState],
    broker: BrokerId,
    alive: Collection[BrokerId],
    *,
    min_in_sync_of: MinInSync,
    is_whole: bool = True,
    concerns: IsConcerned = lambda topic, partition: True,
) -> list[PlannedState]:
    """The states of the partitions that this broker can leave to others.

    Without `is_whole` it leaves because its logs cannot be trusted, and is not eligible.
    """
    others = [other for other in alive if other != broker]

    def decide(topic: TopicState, number: int, state: PartitionState) -> PartitionState | None:
        if not concerns(topic, number):
            return None
        return _without_broker(state, broker, others, min_in_sync_of(topic), is_whole=is_whole)

    return _plan(topics, broker, decide)


def plan_broker_start(
    topics: Iterable[TopicState],
    broker: BrokerId,
    alive: Collection[BrokerId],
    condition_of: FindCondition,
    seen_epoch_of: FindEpoch = _has_seen_nothing,
    *,
    min_in_sync_of: MinInSync,
) -> list[PlannedState]:
    """The states that a broker writes before it registers."""
    others = [other for other in alive if other != broker]

    def decide(topic: TopicState, number: int, state: PartitionState) -> PartitionState | None:
        seen_epoch = seen_epoch_of(topic, number)
        if seen_epoch > state.leader_epoch:
            return _after_regression(state, broker, seen_epoch)
        match condition_of(topic, number):
            case ReplicaCondition.WHOLE:
                return _with_new_epoch(state, broker)
            case ReplicaCondition.HOLE if len(state.replicas) == 1:
                return _with_new_epoch(state, broker)
            case ReplicaCondition.HOLE | ReplicaCondition.GONE:
                return _after_unclean_shutdown(state, broker, min_in_sync_of(topic))
            case ReplicaCondition.OFFLINE:
                return _without_broker(state, broker, others, min_in_sync_of(topic), is_whole=False)

    return _plan(topics, broker, decide)


def plan_regressed_store(
    topics: Iterable[TopicState], broker: BrokerId, seen_epoch_of: FindEpoch
) -> list[PlannedState]:
    """What a broker writes that kept running while its session was renewed.

    Also of partitions that are not here: whoever is the first to be back may be the controller,
    and would elect by what the store says before those who hold the logs can object.
    """
    plan = []
    for topic in topics:
        for number, former in enumerate(topic.partitions):
            seen_epoch = seen_epoch_of(topic, number)
            if former.version != NO_NODE and seen_epoch > former.leader_epoch:
                state = _after_regression(former, broker, seen_epoch)
                plan.append(PlannedState(topic, number, former, state))
    return plan


def find_only_copies(
    topics: Iterable[TopicState], broker: BrokerId, is_lost: IsConcerned
) -> list[TopicPartition]:
    """The partitions of which nobody else is known to have all that a lost log of this broker had.

    Where another replica is in sync or eligible, it has everything (ELR-1), and this one can be
    made again. Where nobody is, the last known are, until the partition is recovered (ELR-4).
    """
    return [
        TopicPartition(topic.name, number)
        for topic in topics
        for number, state in enumerate(topic.partitions)
        if broker in state.replicas and has_only_copy(state, broker) and is_lost(topic, number)
    ]


def has_only_copy(state: PartitionState, broker: BrokerId) -> bool:
    """Whether nobody else is known to have all that this replica of the partition had."""
    if state.replicas == (broker,):
        return True
    if state.version == NO_NODE:  # it is new, and nobody had a record of it
        return False
    whole = {*state.isr, *state.elr}
    if whole:
        return whole == {broker}
    last_known = {*state.last_known_elr, state.last_known_leader} - {NO_BROKER}
    return not last_known or broker in last_known


def _plan(
    topics: Iterable[TopicState],
    broker: BrokerId,
    decide: Callable[[TopicState, int, PartitionState], PartitionState | None],
) -> list[PlannedState]:
    plan = []
    for topic in topics:
        for number, former in enumerate(topic.partitions):
            if broker in former.replicas and former.version != NO_NODE:
                state = decide(topic, number, former)
                if state is not None:
                    plan.append(PlannedState(topic, number, former, state))
    return plan


def _without_broker(
    state: PartitionState,
    broker: BrokerId,
    others: Collection[BrokerId],
    min_in_sync: int,
    *,
    is_whole: bool,
) -> PartitionState | None:
    holed = () if is_whole else (broker,)
    remaining = _without(state.isr, broker)
    if state.leader != broker:
        leaves_in_sync = broker in state.isr and bool(remaining)
        leaves_eligible = broker in state.elr and not is_whole
        if not leaves_in_sync and not leaves_eligible:
            return None
        return with_in_sync(state, remaining, min_in_sync=min_in_sync, holed=holed)
    election = elect_leader(state.replicas, remaining, others, eligible=state.elr)
    if election is None:
        return None
    isr = remaining if election.leader in remaining else election.isr
    changed = with_in_sync(state, isr, min_in_sync=min_in_sync, holed=holed)
    return with_leader(changed, election.leader)


def _with_new_epoch(state: PartitionState, broker: BrokerId) -> PartitionState | None:
    return with_leader(state, broker) if state.leader == broker else None


def _after_unclean_shutdown(
    state: PartitionState, broker: BrokerId, min_in_sync: int
) -> PartitionState:
    isr = _without(state.isr, broker)
    changed = with_in_sync(state, isr, min_in_sync=min_in_sync, holed=(broker,))
    return with_leader(changed, NO_BROKER) if state.leader == broker else changed


def _after_regression(state: PartitionState, broker: BrokerId, seen_epoch: int) -> PartitionState:
    is_alone = state.replicas == (broker,)
    return replace(
        state,
        leader=broker if is_alone else NO_BROKER,
        leader_epoch=LeaderEpoch(seen_epoch + 1),
        isr=(broker,) if is_alone else (),
        elr=(),
        last_known_elr=(),  # it may be anybody, and so all are waited for
        last_known_leader=NO_BROKER,
    )


def _without(brokers: Iterable[BrokerId], broker: BrokerId) -> tuple[BrokerId, ...]:
    return tuple(other for other in brokers if other != broker)
