"""Members of the classic protocol in a consumer group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

Nobody of them leads. A join is the member's step towards its target, answered at once: the member's
epoch is its generation, and SyncGroup gives it what it was assigned by the coordinator. Heartbeats
tell a member to join again when there is a step to take. A rule.
"""

from __future__ import annotations

from moldau.coordinators.groups.rules.assigned_partitions import without
from moldau.coordinators.groups.rules.consumer_group import ConsumerGroup
from moldau.coordinators.groups.rules.consumer_membership import (
    MemberStep,
    remove,
    session_timeout_ms,
)
from moldau.coordinators.groups.rules.consumer_records import (
    ClassicMember,
    ConsumerSubscription,
    MemberAssignment,
    MemberState,
)
from moldau.coordinators.groups.rules.epoch_group import Refused
from moldau.coordinators.groups.rules.events import (
    JOINING_EPOCH,
    UNKNOWN_MEMBER,
    CodeAnswer,
    ConsumerHeartbeat,
    Heartbeat,
    Join,
    JoinAnswer,
    Leave,
    LeaveAnswer,
    LeavingMember,
    LeftMember,
    Sync,
    SyncAnswer,
)
from moldau.coordinators.groups.rules.migration import (
    assignment_bytes,
    common_protocol,
    partitions_by_id,
)
from moldau.coordinators.groups.rules.offsets import CONSUMER_PROTOCOL_TYPE
from moldau.coordinators.groups.rules.outcome import GroupTurn
from moldau.errors import ErrorCode, MalformedFrameError
from moldau.wire.consumer_protocol import Subscription, decode_subscription

_AGAIN = ErrorCode.rebalance_in_progress


def join(group: ConsumerGroup, event: Join, turn: GroupTurn) -> None:
    try:
        _join(group, event, turn)
    except Refused as refused:
        turn.answer(JoinAnswer(error=refused.error, member_id=event.member_id))


def _join(group: ConsumerGroup, event: Join, turn: GroupTurn) -> None:
    said = _read(group, event)
    member_id = event.member_id
    if member_id == UNKNOWN_MEMBER:
        member_id = event.new_member_id
        if event.needs_member_id and event.instance_id is None:
            turn.answer(JoinAnswer(error=ErrorCode.member_id_required, member_id=member_id))
            return
    elif event.instance_id is not None:
        _check_instance(group, member_id, event.instance_id)
    beat = ConsumerHeartbeat(
        group_id=group.group_id,
        member_id=member_id,
        epoch=JOINING_EPOCH,
        instance_id=event.instance_id,
        rack_id=said.rack_id,
        client_id=event.client_id,
        client_host=event.client_host,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        topics=frozenset(said.topics),
        owned=partitions_by_id(said.owned_partitions, turn.image),
        may_see=event.may_see,
    )
    classic = ClassicMember(
        session_timeout_ms=event.session_timeout_ms,
        protocols=tuple((one.name, one.metadata) for one in event.protocols),
    )
    reached = MemberStep(group, beat, turn, classic).advance()
    group.told_to_join.discard(member_id)
    turn.outcome.disarm(group.join_timer(member_id))
    turn.outcome.arm(group.sync_timer(member_id), event.rebalance_timeout_ms)
    turn.answer(
        JoinAnswer(
            generation=reached.epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol=event.protocols[0].name,
            member_id=member_id,
        )
    )


def _read(group: ConsumerGroup, event: Join) -> Subscription:
    """What a member says, if the others could understand it."""
    if event.protocol_type != CONSUMER_PROTOCOL_TYPE or not event.protocols:
        raise Refused(ErrorCode.inconsistent_group_protocol, "it is no consumer")
    spoken = {one.name for one in event.protocols}
    for member_id, other in group.subscriptions.items():
        if other.classic is not None and member_id != event.member_id:
            spoken &= {name for name, _ in other.classic.protocols}
    if not spoken:
        raise Refused(ErrorCode.inconsistent_group_protocol, "no assignor that all speak")
    try:
        return decode_subscription(event.protocols[0].metadata)
    except MalformedFrameError as error:
        raise Refused(ErrorCode.inconsistent_group_protocol, str(error)) from None


def handle(group: ConsumerGroup, event: Sync | Heartbeat | Leave, turn: GroupTurn) -> None:
    match event:
        case Sync():
            _sync(group, event, turn)
        case Heartbeat():
            _heartbeat(group, event, turn)
        case Leave():
            _leave(group, event, turn)


def _sync(group: ConsumerGroup, event: Sync, turn: GroupTurn) -> None:
    fault = _find_fault(group, event)
    if fault is not None:
        turn.answer(SyncAnswer(error=fault))
        return
    current = group.assignment_of(event.member_id)
    if _is_behind(group, current, turn) and current.state is not MemberState.UNREVOKED_PARTITIONS:
        _tell_to_join(group, event.member_id, turn)
        turn.answer(SyncAnswer(error=_AGAIN))
        return
    turn.outcome.disarm(group.sync_timer(event.member_id))
    _note_sign_of_life(group, event.member_id, turn)
    turn.answer(
        SyncAnswer(
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol=event.protocol or common_protocol([group.subscriptions[event.member_id]]),
            assignment=assignment_bytes(current.assigned, turn.image),
        )
    )


def _heartbeat(group: ConsumerGroup, event: Heartbeat, turn: GroupTurn) -> None:
    error = _find_fault(group, event)
    if error is None:
        _note_sign_of_life(group, event.member_id, turn)
        if _has_step_to_take(group, group.assignment_of(event.member_id), event.member_id, turn):
            _tell_to_join(group, event.member_id, turn)
            error = _AGAIN
    turn.answer(CodeAnswer(error=error or ErrorCode.none))


def _has_step_to_take(
    group: ConsumerGroup, current: MemberAssignment, member_id: str, turn: GroupTurn
) -> bool:
    if _is_behind(group, current, turn) or current.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    if current.state is MemberState.UNRELEASED_PARTITIONS:
        missing = without(group.target_of(member_id), current.assigned)
        return any(group.is_free(topic, one) for topic, some in missing.items() for one in some)
    if group.has_seen(turn.image):
        return False
    topics = group.see_topics(group.wanted_topics, turn.image)
    return topics.metadata_hash != group.metadata_hash


def _is_behind(group: ConsumerGroup, current: MemberAssignment, turn: GroupTurn) -> bool:
    """Whether there is a newer target, or one will be computed when the member joins again."""
    interval_ms = turn.limits.consumer_assignment_interval_ms
    return current.epoch < group.target_epoch or group.may_assign(turn.now_ms, interval_ms)


def _leave(group: ConsumerGroup, event: Leave, turn: GroupTurn) -> None:
    going: dict[str, None] = {}
    left = []
    for one in event.members:
        member_id, error = _find_leaving(group, one)
        if member_id is not None and error is None:
            going[member_id] = None
        left.append(LeftMember(one.member_id, one.instance_id, error or ErrorCode.none))
    if going:
        turn.outcome.log(group.group_id, f"{', '.join(going)} leave", is_rebalance=True)
        remove(group, going.keys(), turn)
    turn.answer(LeaveAnswer(members=tuple(left)))


def _find_leaving(
    group: ConsumerGroup, leaving: LeavingMember
) -> tuple[str | None, ErrorCode | None]:
    """By its id, or by its instance id alone when an administrator removes it."""
    member_id: str | None = leaving.member_id
    if leaving.instance_id is not None:
        known = group.find_instance(leaving.instance_id)
        if known is not None and member_id not in (UNKNOWN_MEMBER, known):
            return None, ErrorCode.fenced_instance_id
        member_id = known
    if member_id not in group.subscriptions:
        return None, ErrorCode.unknown_member_id
    return member_id, None


def join_time_is_over(group: ConsumerGroup, member_id: str, turn: GroupTurn) -> None:
    if member_id in group.told_to_join and member_id in group.subscriptions:
        group.told_to_join.discard(member_id)
        message = f"{member_id} has not joined again in time"
        turn.outcome.log(group.group_id, message, is_rebalance=True)
        remove(group, (member_id,), turn)


def sync_time_is_over(group: ConsumerGroup, member_id: str, turn: GroupTurn) -> None:
    if member_id in group.subscriptions:
        message = f"{member_id} has not synced in time"
        turn.outcome.log(group.group_id, message, is_rebalance=True)
        remove(group, (member_id,), turn)


def _find_fault(group: ConsumerGroup, event: Sync | Heartbeat) -> ErrorCode | None:
    member = group.subscriptions.get(event.member_id)
    if event.instance_id is not None:
        known = group.find_instance(event.instance_id)
        if known is None:
            return ErrorCode.unknown_member_id
        if known != event.member_id:
            return ErrorCode.fenced_instance_id
    if member is None or member.classic is None:
        return ErrorCode.unknown_member_id
    if event.generation != group.assignment_of(event.member_id).epoch:
        return ErrorCode.illegal_generation
    return None


def _check_instance(group: ConsumerGroup, member_id: str, instance_id: str) -> None:
    known = group.find_instance(instance_id)
    if known is None:
        raise Refused(ErrorCode.unknown_member_id, f"nobody is instance {instance_id!r}")
    if known != member_id:
        raise Refused(ErrorCode.fenced_instance_id, f"instance {instance_id!r} is {known}")


def _tell_to_join(group: ConsumerGroup, member_id: str, turn: GroupTurn) -> None:
    if member_id not in group.told_to_join:
        group.told_to_join.add(member_id)
        timeout_ms = group.subscriptions[member_id].rebalance_timeout_ms
        turn.outcome.arm(group.join_timer(member_id), timeout_ms)


def _note_sign_of_life(group: ConsumerGroup, member_id: str, turn: GroupTurn) -> None:
    member: ConsumerSubscription = group.subscriptions[member_id]
    turn.outcome.arm(group.session_timer(member_id), session_timeout_ms(member, turn.limits))
