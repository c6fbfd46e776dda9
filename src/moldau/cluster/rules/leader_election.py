"""Who leads a partition: elections, eligible leaders, preferred leaders, unclean recovery. Rules.

A plan is the next state of each partition, with the state that it was decided from: it is written
with compare-and-set, and whoever is overtaken reads and plans again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import NamedTuple

from moldau.cluster.rules.metadata_image import NO_NODE, MetadataImage, PartitionState, TopicState
from moldau.errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    KafkaError,
    LeaderNotAvailableError,
    PreferredLeaderNotAvailableError,
    UnknownTopicError,
)
from moldau.model import NO_BROKER, BrokerId, LeaderEpoch, TopicPartition

# Who may lead although it is not in sync: eligible leader replicas (KIP-966). A rule.
#
# While fewer than `min.insync.replicas` are in sync nothing new is committed: the high watermark
# stands still (ELR-1, `Partition` keeps it). So a replica that leaves the in-sync set then still
# has every committed record, and stays so until enough are in sync again. Such replicas are
# eligible: they are elected when nobody in sync lives (ELR-2).
#
#   in sync ── leaves, too few are left ──> eligible ── comes in again, or enough are in sync ──> .
#      └───────────── has a hole ──────────────┴──> last known ── a leader has enough in sync ──> .
#
# A replica that comes back with a hole at its end is neither; it is remembered as one of the last
# that were known to have everything (ELR-3). When nobody else is left, the best log among those
# remembered is the best that there is (`recover_leader`). They are remembered although others are
# in sync still: when a whole cluster loses power, its brokers say so one after the other, and
# whoever was the first to say so may have kept the most. Only a leader, which lives and has it all,
# forgets them.
#
# `min.insync.replicas` counts at most the number of replicas, as in Kafka 4.


MinInSync = Callable[[TopicState], int]
"""`min.insync.replicas` of a topic."""


def effective_min_in_sync(min_in_sync: int, replica_count: int) -> int:
    """How many must be in sync: no more than there are."""
    return min(min_in_sync, replica_count)


def with_in_sync(
    state: PartitionState,
    isr: tuple[BrokerId, ...],
    *,
    min_in_sync: int,
    holed: Collection[BrokerId] = (),
) -> PartitionState:
    """The state with another in-sync set, and what this makes of those that are not in it.

    `holed` are replicas that may lack records at their end.
    """
    known = _ordered(state.isr, state.elr)
    is_short = len(isr) < effective_min_in_sync(min_in_sync, len(state.replicas))
    elr = _replicas_of(state, known, {*isr, *holed}) if is_short else ()
    last_known = (*state.last_known_elr, *(broker for broker in known if broker in holed))
    return replace(
        state,
        isr=isr,
        elr=elr,
        last_known_elr=_replicas_of(state, _ordered(last_known), {*isr, *elr}),
    )


def with_in_sync_by_leader(
    state: PartitionState, isr: tuple[BrokerId, ...], *, min_in_sync: int
) -> PartitionState:
    """As `with_in_sync`, written by the leader itself: with enough in sync, the last known ones
    are history."""
    changed = with_in_sync(state, isr, min_in_sync=min_in_sync)
    if len(isr) < effective_min_in_sync(min_in_sync, len(state.replicas)):
        return changed
    return replace(changed, last_known_elr=())


def with_leader(state: PartitionState, leader: BrokerId) -> PartitionState:
    """Another leader, under a new epoch; with nobody, who led last is remembered."""
    last = state.last_known_leader if state.leader == NO_BROKER else state.leader
    return replace(
        state,
        leader=leader,
        leader_epoch=LeaderEpoch(state.leader_epoch + 1),
        last_known_leader=last if leader == NO_BROKER else NO_BROKER,
    )


def last_known_replicas(state: PartitionState) -> tuple[BrokerId, ...]:
    """The replicas that were the last to have everything, whatever became of their logs.

    Where nothing was noted (an older broker wrote the state), it may be any of them.
    """
    last = _ordered(state.last_known_elr, (state.last_known_leader,))
    return _replicas_of(state, last) or state.replicas


def _replicas_of(
    state: PartitionState, brokers: Iterable[BrokerId], others: Collection[BrokerId] = ()
) -> tuple[BrokerId, ...]:
    return tuple(broker for broker in brokers if broker in state.replicas and broker not in others)


def _ordered(*brokers: Iterable[BrokerId]) -> tuple[BrokerId, ...]:
    """All of them, each once."""
    return tuple(dict.fromkeys(broker for some in brokers for broker in some))


# Who leads a partition. A rule.
#
# A leader comes from the in-sync set, in the order of the assignment, so that the preferred replica
# wins when it can. When no in-sync replica is alive, one that is eligible leads, and is the in-sync
# set (ELR-2). When none of these is alive either nobody leads, and the sets are
# kept as they were: their members alone are known to have every committed record. Another replica
# takes over only where data may be lost (`recover_leader`, CTL-2). Every election adds one to the
# leader epoch, also the one of "nobody", since replicas compare epochs to find where logs part.
#
# Replicas that are gone leave the in-sync set of a living leader too, so that it need not wait for
# them; but never the last one. This is no election, and the epoch stays.
#
# Writing the outcome with version checks is the controller's work.


class Election(NamedTuple):
    """The outcome: a leader and the in-sync set it starts with."""

    leader: BrokerId
    isr: tuple[BrokerId, ...]


class PlannedState(NamedTuple):
    """A partition's next state, to be written over `former`'s version."""

    topic: TopicState
    partition: int
    former: PartitionState
    state: PartitionState


def elect_leader(
    replicas: Sequence[BrokerId],
    isr: Collection[BrokerId],
    alive: Collection[BrokerId],
    *,
    eligible: Collection[BrokerId] = (),
) -> Election | None:
    """Choose the leader of a partition that had one before; None when nobody may lead.

    Who is elected has every committed record: it is in sync or eligible.
    """
    in_sync = tuple(broker for broker in isr if broker in alive)
    for broker in replicas:
        if broker in in_sync:
            return Election(broker, in_sync)
    for broker in replicas:
        if broker in eligible and broker in alive:
            return Election(broker, (broker,))
    return None


def first_partition_state(
    replicas: Sequence[BrokerId], alive: Collection[BrokerId], controller_epoch: int
) -> PartitionState:
    """The state of a partition that never had a leader: all replicas are equally empty."""
    in_sync = tuple(broker for broker in replicas if broker in alive)
    return PartitionState(
        leader=in_sync[0] if in_sync else NO_BROKER,
        leader_epoch=LeaderEpoch(0),
        isr=in_sync,
        replicas=tuple(replicas),
        controller_epoch=controller_epoch,
    )


def decide_partition_state(
    state: PartitionState,
    alive: Collection[BrokerId],
    *,
    min_in_sync: int,
    controller_epoch: int,
) -> PartitionState | None:
    """The next state of a partition, or None when it stays as it is. A living leader stays."""
    if state.version == NO_NODE:
        first = replace(
            first_partition_state(state.replicas, alive, controller_epoch),
            adding_replicas=state.adding_replicas,
            removing_replicas=state.removing_replicas,
        )
        return None if first.leader == NO_BROKER else first
    if state.leader in alive:
        return _without_the_dead(state, alive, min_in_sync, controller_epoch)
    election = elect_leader(state.replicas, state.isr, alive, eligible=state.elr)
    if election is None and state.leader == NO_BROKER:
        return None
    if election is None:
        next_state = with_leader(state, NO_BROKER)
    else:
        changed = with_in_sync(state, election.isr, min_in_sync=min_in_sync)
        next_state = with_leader(changed, election.leader)
    return replace(next_state, controller_epoch=controller_epoch)


def _without_the_dead(
    state: PartitionState,
    alive: Collection[BrokerId],
    min_in_sync: int,
    controller_epoch: int,
) -> PartitionState | None:
    in_sync = tuple(broker for broker in state.isr if broker in alive)
    if not in_sync or in_sync == state.isr:
        return None
    changed = with_in_sync(state, in_sync, min_in_sync=min_in_sync)
    return replace(changed, controller_epoch=controller_epoch)


def plan_elections(
    topics: Iterable[TopicState],
    alive: Collection[BrokerId],
    *,
    min_in_sync_of: MinInSync,
    controller_epoch: int,
) -> list[PlannedState]:
    """Every partition whose leader is gone or missing, and every one with a replica in its in-sync
    set that is gone, each with its next state.

    A leader that was restarted, and so lives, has written its new epoch itself
    (`broker_shutdown.plan_broker_start`).
    """
    plan = []
    for topic in topics:
        min_in_sync: int | None = None  # asked for where something may change: it has to be parsed
        for partition, former in enumerate(topic.partitions):
            if _is_well(former, alive):
                continue
            if min_in_sync is None:
                min_in_sync = min_in_sync_of(topic)
            state = decide_partition_state(
                former, alive, min_in_sync=min_in_sync, controller_epoch=controller_epoch
            )
            if state is not None:
                plan.append(PlannedState(topic, partition, former, state))
    return plan


def _is_well(state: PartitionState, alive: Collection[BrokerId]) -> bool:
    """Whether its leader and everybody in sync lives: then there is nothing to decide."""
    return state.leader in alive and all(broker in alive for broker in state.isr)


# Preferred leaders. Placement spreads the first replicas evenly; elections after failures undo
# that. The preferred replica takes over when it is alive and in sync, under a new epoch and with
# the same in-sync set.


def prefer_first_replica(
    state: PartitionState, alive: Collection[BrokerId], controller_epoch: int
) -> PartitionState | None:
    """The partition led by its preferred replica; None when that one cannot take over."""
    preferred = state.replicas[0]
    if preferred not in alive or preferred not in state.isr:
        return None
    return replace(with_leader(state, preferred), controller_epoch=controller_epoch)


def plan_rebalancing(
    topics: Iterable[TopicState],
    alive: Collection[BrokerId],
    *,
    accepted_percentage: int,
    controller_epoch: int,
) -> list[PlannedState]:
    """The elections of `auto.leader.rebalance.enable`.

    For each living broker the partitions are counted that prefer it, and those of them that are
    led by another one. Where the share of these is above what is accepted, it gets them back.
    Partitions that are being moved stay as they are until they have arrived.
    """
    preferring: dict[BrokerId, int] = {}
    elsewhere: dict[BrokerId, list[PlannedState]] = {}
    for topic in topics:
        for number, state in enumerate(topic.partitions):
            broker = state.replicas[0]
            preferring[broker] = preferring.get(broker, 0) + 1
            if state.leader != broker:
                elsewhere.setdefault(broker, []).append(PlannedState(topic, number, state, state))
    plan: list[PlannedState] = []
    for broker in sorted(elsewhere):
        lost = elsewhere[broker]
        if broker in alive and 100 * len(lost) > accepted_percentage * preferring[broker]:
            plan += _returned(lost, alive, controller_epoch)
    return plan


def _returned(
    lost: Iterable[PlannedState], alive: Collection[BrokerId], controller_epoch: int
) -> Iterable[PlannedState]:
    for planned in lost:
        state = planned.former
        if state.adding_replicas or state.removing_replicas:
            continue
        returned = prefer_first_replica(state, alive, controller_epoch)
        if returned is not None:
            yield planned._replace(state=returned)


# Who leads when everybody that is known to have everything is lost (KIP-966, second half). A rule.
#
# It comes to this when all machines lose power at once: each replica comes back with a hole at its
# end, leaves the in-sync set, and nobody may lead. What was acknowledged and flushed by nobody is
# gone; what at least one of them flushed need not be. Of two logs the one with the higher last
# epoch, and of those of one epoch the longer one, has all that the other has of what was ever
# committed: a log that holds a record of an epoch holds, before it, all that the leader of this
# epoch began with. So the best log of all those that were in sync last has everything that survived
# (ELR-4).
#
# - none: wait for a person (`moldau elect unclean`).
# - balanced: wait until every replica that was known last is back, then the best log leads. Nothing
#   is lost that the disks kept; the price is time. Where one of them has no log any more (its disk
#   was replaced), all replicas are waited for: one that was behind may have the most. The default.
# - aggressive: the best log of those that answer leads at once, even while replicas that have
#   everything are merely away. This is what `unclean.leader.election.enable` asks for.
#
# Asking the replicas is the shell's work (`cluster.elections`).


class RecoveryStrategy(Enum):
    """The values of `unclean.recovery.strategy`."""

    NONE = "none"
    BALANCED = "balanced"
    AGGRESSIVE = "aggressive"


class LogEnd(NamedTuple):
    """How far a replica's log goes. Ordered: the larger one has more (ELR-4)."""

    last_epoch: int  # of its last record, -1 of an empty log
    end_offset: int


def find_recovery_candidates(
    state: PartitionState, alive: Collection[BrokerId], strategy: RecoveryStrategy
) -> tuple[BrokerId, ...]:
    """The replicas to be asked for the ends of their logs; none where it is not time for it."""
    if state.version == NO_NODE or strategy is RecoveryStrategy.NONE:
        return ()
    if state.leader in alive:
        return ()
    if elect_leader(state.replicas, state.isr, alive, eligible=state.elr) is not None:
        return ()  # somebody has everything, and is about to be elected
    if strategy is RecoveryStrategy.BALANCED:
        if state.isr or state.elr:
            return ()  # somebody has everything, and may come back
        if not all(broker in alive for broker in last_known_replicas(state)):
            return ()
    return tuple(broker for broker in state.replicas if broker in alive)


def recover_leader(
    state: PartitionState,
    alive: Collection[BrokerId],
    strategy: RecoveryStrategy,
    ends: Mapping[BrokerId, LogEnd],
    controller_epoch: int,
) -> PartitionState | None:
    """The partition led by the best of the logs whose ends are known; None to go on waiting.

    Nobody is eligible any more: what others have that the new leader has not is given up.
    """
    candidates = find_recovery_candidates(state, alive, strategy)
    known = [broker for broker in candidates if broker in ends]
    if not known:
        return None
    if strategy is RecoveryStrategy.BALANCED and not _are_enough(state, ends):
        return None
    best = max(known, key=lambda broker: (ends[broker], -state.replicas.index(broker)))
    return with_unclean_leader(state, best, controller_epoch)


def _are_enough(state: PartitionState, ends: Mapping[BrokerId, LogEnd]) -> bool:
    """Whether everybody has answered whose log may be the best."""
    last_known = last_known_replicas(state)
    if not all(broker in ends for broker in last_known):
        return False
    is_one_empty = any(ends[broker].last_epoch < 0 for broker in last_known)
    return not is_one_empty or all(broker in ends for broker in state.replicas)


def with_unclean_leader(
    state: PartitionState, leader: BrokerId, controller_epoch: int
) -> PartitionState:
    """A leader that may lack committed records, alone in sync."""
    recovered = replace(with_leader(state, leader), isr=(leader,), elr=(), last_known_elr=())
    return replace(recovered, controller_epoch=controller_epoch)


# Elections that a client requests (ElectLeaders): of the preferred replicas, or unclean ones. They
# are decided partition by partition, with the reason where there is none to hold.


DecideElection = Callable[[TopicState, int, PartitionState], PartitionState]
"""The next state of a partition; raises why there is none."""


class RequestedElections(NamedTuple):
    """What becomes of the partitions that were asked for; each is in one of the two."""

    plan: list[PlannedState]
    refused: dict[TopicPartition, KafkaError]


def plan_requested_elections(
    image: MetadataImage, wanted: Iterable[TopicPartition], decide: DecideElection
) -> RequestedElections:
    """Decide for each of these partitions."""
    found = RequestedElections([], {})
    for key in wanted:
        topic = image.topics.get(key.topic)
        former = None if topic is None else topic.find_partition(key.partition)
        if topic is None or former is None:
            found.refused[key] = UnknownTopicError(f"there is no partition {key}")
        elif former.version == NO_NODE:
            found.refused[key] = LeaderNotAvailableError(f"{key} is being made")
        else:
            try:
                state = decide(topic, key.partition, former)
            except KafkaError as refusal:
                found.refused[key] = refusal
            else:
                found.plan.append(PlannedState(topic, key.partition, former, state))
    return found


def decide_preferred_election(
    state: PartitionState, alive: Collection[BrokerId], controller_epoch: int
) -> PartitionState:
    """The partition led by its preferred replica."""
    if state.leader == state.replicas[0] and state.leader in alive:
        raise ElectionNotNeededError("the preferred replica leads already")
    preferred = prefer_first_replica(state, alive, controller_epoch)
    if preferred is None:
        raise PreferredLeaderNotAvailableError(
            f"the preferred replica {state.replicas[0]} is not alive or not in sync"
        )
    return preferred


def decide_unclean_election(
    state: PartitionState,
    alive: Collection[BrokerId],
    ends: Mapping[BrokerId, LogEnd],
    *,
    min_in_sync: int,
    controller_epoch: int,
) -> PartitionState:
    """The partition led by who has everything, else by the best log of those whose ends are known,
    else by any replica that lives."""
    if state.leader in alive:
        raise ElectionNotNeededError(f"broker {state.leader} leads and is alive")
    clean = decide_partition_state(
        state, alive, min_in_sync=min_in_sync, controller_epoch=controller_epoch
    )
    if clean is not None and clean.leader in alive:
        return clean
    living = [broker for broker in state.replicas if broker in alive]
    if not living:
        raise EligibleLeadersNotAvailableError(
            f"none of the replicas {', '.join(map(str, state.replicas))} is alive"
        )
    recovered = recover_leader(state, alive, RecoveryStrategy.AGGRESSIVE, ends, controller_epoch)
    return recovered or with_unclean_leader(state, living[0], controller_epoch)


def is_unclean_election(planned: PlannedState) -> bool:
    """Whether who is to lead was not known to have every committed record."""
    return planned.state.leader not in (*planned.former.isr, *planned.former.elr)


def find_without_leader(
    image: MetadataImage, wanted: Iterable[TopicPartition]
) -> dict[TopicPartition, list[BrokerId]]:
    """The living replicas of the partitions where an unclean election may be needed."""
    found = {}
    for key in wanted:
        state = image.find_partition(*key)
        if state is not None and state.leader not in image.brokers:
            found[key] = [broker for broker in state.replicas if broker in image.brokers]
    return found
