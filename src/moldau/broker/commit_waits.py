"""Waits until batches are committed: acks=all, of producers and of transaction coordinators.

A shell over the purgatory; what can be said of a batch is decided in
`replication.rules.replica`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from moldau.broker.api import Services
from moldau.errors import (
    KafkaError,
    NotEnoughReplicasAfterAppendError,
    NotLeaderError,
    RequestTimedOutError,
)
from moldau.model import TopicPartition
from moldau.replication.partition import Partition
from moldau.replication.rules.replica import Acknowledgement


class Uncommitted(NamedTuple):
    """A batch that not every in-sync replica may have yet."""

    partition: Partition
    leader_epoch: int  # in which it was appended
    end_offset: int


async def wait_until_committed(
    batches: Sequence[Uncommitted], deadline: float, services: Services
) -> list[KafkaError | None]:
    """Return when each batch is committed (None), has no chance to be, or the time is over.

    `deadline` is in monotonic seconds of the clock.
    """
    clock = services.clock
    errors: list[KafkaError | None] = [None] * len(batches)
    pending = list(enumerate(batches))
    while True:
        pending = [(place, one) for place, one in pending if not _is_known(one, errors, place)]
        left_seconds = deadline - clock.monotonic()
        if not pending or left_seconds <= 0:
            break
        ends: dict[TopicPartition, int] = {}
        for _, one in pending:
            key = one.partition.topic_partition
            ends[key] = max(one.end_offset, ends.get(key, 0))
        await services.purgatory.wait_until_committed(ends, left_seconds * 1000)
    for place, one in pending:
        errors[place] = RequestTimedOutError(
            f"{one.partition.topic_partition} is not replicated in time"
        )
    return errors


def _is_known(one: Uncommitted, errors: list[KafkaError | None], place: int) -> bool:
    """Whether the batch's fate is known; an error is put in its place."""
    partition = one.partition
    match partition.state.acknowledgement(one.leader_epoch, one.end_offset):
        case Acknowledgement.PENDING:
            return False
        case Acknowledgement.COMMITTED:
            pass
        case Acknowledgement.TOO_FEW:
            errors[place] = NotEnoughReplicasAfterAppendError(
                f"{partition.topic_partition} has too few in-sync replicas now"
            )
        case Acknowledgement.LEADER_CHANGED:
            errors[place] = NotLeaderError(f"{partition.topic_partition} has another leader now")
    return True
