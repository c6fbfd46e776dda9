"""Groups that change between the classic and the consumer protocol while members are in (KIP-848).

The first member of the new protocol makes a consumer group of a classic one: who is in stays in,
with the partitions it has, and is served through its own protocol (`classic_consumers`). When the
last member of the new protocol goes, the group is classic again. Either way the group's epoch is
the generation, and the other way round, so members notice no more than a rebalance. A rule.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.coordinators.groups.rules.assigned_partitions import (
    AssignedPartitions,
    assigned_in,
    partitions_of,
)
from moldau.coordinators.groups.rules.classic_group import ClassicGroup, Member
from moldau.coordinators.groups.rules.consumer_group import ConsumerGroup
from moldau.coordinators.groups.rules.consumer_records import (
    ClassicMember,
    ConsumerGroupRecord,
    ConsumerSubscription,
    GroupEpoch,
    GroupEpochRecord,
    MemberAssignment,
    MemberAssignmentRecord,
    MemberSubscriptionRecord,
    TargetAssignmentRecord,
    TargetEpochRecord,
)
from moldau.coordinators.groups.rules.events import (
    GroupTimer,
    GroupTimerKind,
    JoinAnswer,
    Leave,
    LeavingMember,
    SyncAnswer,
)
from moldau.coordinators.groups.rules.offsets import CONSUMER_PROTOCOL_TYPE
from moldau.coordinators.groups.rules.outcome import GroupLimits, GroupTurn
from moldau.coordinators.groups.rules.records import GroupMetadata, GroupRecord, StoredMember
from moldau.errors import ErrorCode, MalformedFrameError
from moldau.model import TopicPartition
from moldau.wire.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

_AGAIN = ErrorCode.rebalance_in_progress


# Classic members in terms of topics' ids


def named_partitions(partitions: AssignedPartitions, image: MetadataImage) -> list[TopicPartition]:
    """By the names of topics; those that are gone have none."""
    return [
        TopicPartition(topic.name, number)
        for topic_id, some in partitions.items()
        if (topic := image.topics_by_id.get(topic_id)) is not None
        for number in sorted(some)
    ]


def partitions_by_id(
    partitions: Iterable[TopicPartition], image: MetadataImage
) -> AssignedPartitions:
    return partitions_of(
        (topic.topic_id, number)
        for name, number in partitions
        if (topic := image.topics.get(name)) is not None and topic.find_partition(number)
    )


def assignment_bytes(partitions: AssignedPartitions, image: MetadataImage) -> bytes:
    return encode_assignment(Assignment(tuple(named_partitions(partitions, image))))


# To the consumer protocol


def find_upgrade_fault(group: ClassicGroup, limits: GroupLimits) -> str | None:
    """Why members of the new protocol may not join this one."""
    if not limits.allows_upgrade:
        return "group.consumer.migration.policy of the broker does not allow it to be joined"
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return f"its members are no consumers but speak {group.protocol_type!r}"
    if len(group.members) >= limits.consumer_max_size:
        return "it has as many members as group.consumer.max.size allows"
    try:
        for member in group.members:
            decode_subscription(member.protocols[0].metadata)
            decode_assignment(member.assignment)
    except MalformedFrameError as error:
        return f"what its members say to each other cannot be read: {error}"
    return None


def become_consumer_group(group: ClassicGroup, turn: GroupTurn) -> ConsumerGroup:
    """The group as it will be. Whoever waits for the classic rebalance is told to join again."""
    outcome = turn.outcome
    records = _upgrade_records(group, turn.image)
    converted = ConsumerGroup(group.group_id)
    for record in records:
        converted.apply(record)
    if group.stored is not None:
        outcome.records.append(GroupRecord(group.group_id, None))
    outcome.records += records
    for kind in (GroupTimerKind.JOIN, GroupTimerKind.SYNC):
        outcome.disarm(GroupTimer(kind, group.group_id))
    for member in group.members:
        again = JoinAnswer(error=_AGAIN, member_id=member.member_id)
        group.answer_join(member, again, outcome)
        group.answer_sync(member, SyncAnswer(error=_AGAIN), outcome)
        group.await_sign_of_life(member, outcome)
    outcome.log(group.group_id, "a member of the consumer protocol joins, the group changes to it")
    return converted


def _upgrade_records(group: ClassicGroup, image: MetadataImage) -> list[ConsumerGroupRecord]:
    group_id, epoch = group.group_id, max(1, group.generation)
    wanted: list[ConsumerGroupRecord] = []
    targets: list[ConsumerGroupRecord] = []
    held: list[ConsumerGroupRecord] = []
    taken: set[TopicPartition] = set()
    for member in group.members:
        member_id = member.member_id
        own = [one for one in _partitions_of(member) if one not in taken]
        taken.update(own)  # a leader of their own may have given some out twice
        assigned = partitions_by_id(own, image)
        wanted.append(MemberSubscriptionRecord(group_id, member_id, _subscription_of(member)))
        targets.append(TargetAssignmentRecord(group_id, member_id, assigned))
        current = MemberAssignment(
            epoch=epoch,
            previous_epoch=epoch,
            assigned=assigned,
            assignment_epochs=assigned_in(epoch, assigned),
        )
        held.append(MemberAssignmentRecord(group_id, member_id, current))
    return [
        *wanted,
        GroupEpochRecord(group_id, GroupEpoch(epoch, 0)),
        *targets,
        TargetEpochRecord(group_id, epoch),
        *held,
    ]


def _partitions_of(member: Member) -> Iterable[TopicPartition]:
    """What it was assigned last, and what it owned as it joined again: a cooperative member goes on
    reading while a rebalance runs, also when that has taken its assignment back (CGR-1)."""
    said = decode_subscription(member.protocols[0].metadata)
    return (*decode_assignment(member.assignment).partitions, *said.owned_partitions)


def _subscription_of(member: Member) -> ConsumerSubscription:
    said = decode_subscription(member.protocols[0].metadata)
    return ConsumerSubscription(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=said.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=frozenset(said.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMember(
            session_timeout_ms=member.session_timeout_ms,
            protocols=tuple((one.name, one.metadata) for one in member.protocols),
        ),
    )


# Back to the classic protocol


def become_classic(group: ConsumerGroup, leaving: Collection[str], turn: GroupTurn) -> None:
    """The members that stay are a generation of their own, in which those who leave are for a
    moment: whoever coordinates the group next finds them gone, and has the others rebalance."""
    outcome, group_id = turn.outcome, group.group_id
    for member_id in group.subscriptions:
        outcome.disarm(group.revocation_timer(member_id))
        outcome.disarm(group.join_timer(member_id))
        outcome.disarm(group.sync_timer(member_id))
        outcome.records += group.removal_records(member_id)
    outcome.records += group.end_records()
    staying = [one for one in group.subscriptions.values() if one.member_id not in leaving]
    protocol = common_protocol(staying)
    metadata = GroupMetadata(
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        generation=group.epoch,
        protocol=protocol,
        leader=staying[0].member_id,
        state_timestamp_ms=turn.now_ms,
        members=tuple(
            _stored(one, group.assignment_of(one.member_id), protocol, turn)
            for one in group.subscriptions.values()
        ),
    )
    outcome.records.append(GroupRecord(group_id, metadata))
    outcome.log(group_id, "only members of the classic protocol are left, the group changes to it")
    gone = tuple(LeavingMember(member_id) for member_id in leaving)
    outcome.follow(Leave(group_id=group_id, members=gone))


def common_protocol(members: Collection[ConsumerSubscription]) -> str:
    """The first one that all classic members speak; they were let in on that condition."""
    spoken = [_protocols_of(one) for one in members if one.classic is not None]
    for name in spoken[0]:
        if all(name in others for others in spoken):
            return name
    return next(iter(spoken[0]))


def _protocols_of(member: ConsumerSubscription) -> Mapping[str, bytes]:
    return {} if member.classic is None else dict(member.classic.protocols)


def _stored(
    member: ConsumerSubscription, current: MemberAssignment, protocol: str, turn: GroupTurn
) -> StoredMember:
    said = Subscription(topics=tuple(sorted(member.topics)))
    timeout_ms = turn.limits.consumer_session_timeout_ms
    return StoredMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=timeout_ms
        if member.classic is None
        else member.classic.session_timeout_ms,
        subscription=_protocols_of(member).get(protocol) or encode_subscription(said),
        assignment=assignment_bytes(current.assigned, turn.image),
    )
