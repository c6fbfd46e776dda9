"""Short ways to write partitions and topics in the tests of the rules."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from moldau.cluster.rules.metadata_image import PartitionState, TopicState
from moldau.model import NO_BROKER, BrokerId, LeaderEpoch, TopicId

NOBODY = NO_BROKER


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(number) for number in numbers)


def partition(
    leader: int,
    isr: Sequence[int],
    replicas: Sequence[int],
    *,
    adding: Sequence[int] = (),
    removing: Sequence[int] = (),
    version: int = 7,
    elr: Sequence[int] = (),
    last_known: Sequence[int] = (),
    last_leader: int = NO_BROKER,
) -> PartitionState:
    return PartitionState(
        leader=BrokerId(leader),
        leader_epoch=LeaderEpoch(5),
        isr=ids(*isr),
        replicas=ids(*replicas),
        controller_epoch=3,
        version=version,
        adding_replicas=ids(*adding),
        removing_replicas=ids(*removing),
        elr=ids(*elr),
        last_known_elr=ids(*last_known),
        last_known_leader=BrokerId(last_leader),
    )


def topic(*partitions: PartitionState, name: str = "clicks") -> TopicState:
    return TopicState(name=name, topic_id=TopicId(UUID(int=1)), partitions=partitions)
