"""What must hold for a topic to be branched, and what the branch is. A rule.

A branch has the partitions, the replicas and the configs of its origin. Each partition is led by
the broker that leads the origin's, which alone is in sync at first: what it has taken of the origin
is the branch. The others take what they have of it, too, and catch up as followers do.

Epochs of the branch begin behind all of the origin's. So a batch with an older one is the origin's,
and two replicas that took different amounts of it agree as far as both go (BRA-2).
"""

from __future__ import annotations

from collections.abc import Collection

from moldau.cluster.rules.metadata_image import BranchOrigin, PartitionState, TopicState
from moldau.cluster.rules.topic_creation import USE_DEFAULT, TopicSpec, check_name, require_values
from moldau.errors import (
    InvalidRequestError,
    InvalidTopicError,
    LeaderNotAvailableError,
    ReassignmentInProgressError,
)
from moldau.model import INTERNAL_TOPICS, NO_BROKER, LeaderEpoch, TopicId


def plan_topic_branch(
    spec: TopicSpec,
    source: TopicState,
    *,
    existing: Collection[str],
    topic_id: TopicId,
    controller_epoch: int,
) -> TopicState:
    check_name(spec.name, existing)
    if {spec.name, source.name} & INTERNAL_TOPICS:
        raise InvalidTopicError("what brokers keep in topics of their own cannot be branched")
    counts = {spec.partition_count, spec.replication_factor}
    if spec.assignments or counts != {USE_DEFAULT}:
        raise InvalidRequestError(
            f"a branch has the partitions and replicas of {source.name!r}; the request gives others"
        )
    for number, state in enumerate(source.partitions):
        if state.leader == NO_BROKER:
            raise LeaderNotAvailableError(f"partition {number} of {source.name!r} has no leader")
        if state.adding_replicas or state.removing_replicas:
            raise ReassignmentInProgressError(
                f"partition {number} of {source.name!r} is being moved; branch it afterwards"
            )
    newest = LeaderEpoch(max(state.leader_epoch for state in source.partitions))
    return TopicState(
        name=spec.name,
        topic_id=topic_id,
        partitions=tuple(
            PartitionState(
                leader=state.leader,
                leader_epoch=LeaderEpoch(newest + 1),
                isr=(state.leader,),
                replicas=state.replicas,
                controller_epoch=controller_epoch,
            )
            for state in source.partitions
        ),
        configs={**source.configs, **require_values(spec.configs)},
        origin=BranchOrigin(
            topic=source.name,
            topic_id=source.topic_id,
            partitions=len(source.partitions),
            newest_epoch=newest,
        ),
    )
