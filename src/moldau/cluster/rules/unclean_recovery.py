"""Who leads when everybody that is known to have everything is lost (KIP-966, second half). A rule.

It comes to this when all machines lose power at once: each replica comes back with a hole at its
end, leaves the in-sync set, and nobody may lead. What was acknowledged and flushed by nobody is
gone; what at least one of them flushed need not be. Of two logs the one with the higher last epoch,
and of those of one epoch the longer one, has all that the other has of what was ever committed: a
log that holds a record of an epoch holds, before it, all that the leader of this epoch began with.
So the best log of all those that were in sync last has everything that survived (ELR-4).

- none: wait for a person (`moldau elect unclean`).
- balanced: wait until every replica that was known last is back, then the best log leads. Nothing
  is lost that the disks kept; the price is time. Where one of them has no log any more (its disk
  was replaced), all replicas are waited for: one that was behind may have the most. The default.
- aggressive: the best log of those that answer leads at once, even while replicas that have
  everything are merely away. This is what `unclean.leader.election.enable` asks for.

Asking the replicas is the shell's work (`cluster.log_recovery`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from enum import Enum
from typing import NamedTuple

from moldau.cluster.rules.eligible_leaders import last_known_replicas, led_by
from moldau.cluster.rules.leader_election import elect
from moldau.cluster.rules.metadata_image import NO_NODE, PartitionState
from moldau.model import BrokerId


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
    if elect(state.replicas, state.isr, alive, eligible=state.elr) is not None:
        return ()  # somebody has everything, and is about to be elected
    if strategy is RecoveryStrategy.BALANCED:
        if state.isr or state.elr:
            return ()  # somebody has everything, and may come back
        if not all(broker in alive for broker in last_known_replicas(state)):
            return ()
    return tuple(broker for broker in state.replicas if broker in alive)


def recover(
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
    return led_uncleanly(state, best, controller_epoch)


def _are_enough(state: PartitionState, ends: Mapping[BrokerId, LogEnd]) -> bool:
    """Whether everybody has answered whose log may be the best."""
    last_known = last_known_replicas(state)
    if not all(broker in ends for broker in last_known):
        return False
    is_one_empty = any(ends[broker].last_epoch < 0 for broker in last_known)
    return not is_one_empty or all(broker in ends for broker in state.replicas)


def led_uncleanly(state: PartitionState, leader: BrokerId, controller_epoch: int) -> PartitionState:
    """A leader that may lack committed records, alone in sync."""
    recovered = replace(led_by(state, leader), isr=(leader,), elr=(), last_known_elr=())
    return replace(recovered, controller_epoch=controller_epoch)
