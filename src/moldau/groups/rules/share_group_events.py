"""What happens to a share group: the way of an event to the rule that handles it, and what is
answered to those who take one for a group of another kind. A rule."""

from __future__ import annotations

from moldau.errors import ErrorCode
from moldau.groups.rules import membership, share_membership, share_states
from moldau.groups.rules.answers import (
    CodeAnswer,
    ConsumerHeartbeatAnswer,
    JoinAnswer,
    PartitionsAnswer,
    StateTopicsAnswer,
    StreamsHeartbeatAnswer,
)
from moldau.groups.rules.events import (
    AlterShareOffsets,
    AppendFailed,
    CommitOffsets,
    CommitTransactionOffsets,
    ConsumerHeartbeat,
    DeleteGroup,
    DeleteOffsets,
    DeleteStates,
    DeleteTopics,
    GroupEvent,
    Heartbeat,
    Join,
    Leave,
    ShareHeartbeat,
    StatesDeleted,
    StatesInitialized,
    StreamsHeartbeat,
    Sync,
    TimerFired,
)
from moldau.groups.rules.outcome import GroupTurn
from moldau.groups.rules.share_group import ShareGroup


def handle(group: ShareGroup, event: GroupEvent, turn: GroupTurn) -> None:
    match event:
        case ShareHeartbeat():
            share_membership.heartbeat(group, event, turn)
        case StatesInitialized():
            share_states.states_initialized(group, event, turn)
        case AlterShareOffsets():
            share_states.alter_offsets(group, event, turn)
        case DeleteStates():
            share_states.delete_states(group, event, turn)
        case StatesDeleted():
            share_states.states_deleted(group, event, turn)
        case TimerFired(timer=timer):
            share_membership.session_is_over(group, timer.member_id, turn)
        case AppendFailed():
            # As before: nobody is waited for without an end, and nobody was asked for anything.
            group.initializing_now.clear()
            group.deleting_now.clear()
            share_membership.await_signs_of_life(group, turn.limits, turn.outcome)
        case DeleteGroup():
            _delete(group, turn)
        case DeleteTopics():
            share_states.forget_topics(group, turn.image, turn)
        case _:
            _refuse_others(event, turn)


def _delete(group: ShareGroup, turn: GroupTurn) -> None:
    """Its states are deleted before (`DeleteStates`), so that none is left behind (SHG-3)."""
    if group.subscriptions or group.state_topics.everything:
        turn.answer(CodeAnswer(error=ErrorCode.non_empty_group))
        return
    turn.outcome.records += group.end_records()
    turn.answer(CodeAnswer())


def _refuse_others(event: GroupEvent, turn: GroupTurn) -> None:
    """Kafka's codes for a group of another kind."""
    not_found = ErrorCode.group_id_not_found
    match event:
        case ConsumerHeartbeat():
            message = f"group {event.group_id!r} is a share group, and no consumer group"
            turn.answer(ConsumerHeartbeatAnswer(error=not_found, message=message))
        case StreamsHeartbeat():
            message = f"group {event.group_id!r} is a share group, and no streams group"
            turn.answer(StreamsHeartbeatAnswer(error=not_found, message=message))
        case Join():
            turn.answer(
                JoinAnswer(error=ErrorCode.inconsistent_group_protocol, member_id=event.member_id)
            )
        case Sync() | Heartbeat() | Leave():
            membership.refuse_stranger(event, turn)
        case CommitOffsets() | CommitTransactionOffsets() | DeleteOffsets():
            turn.answer(PartitionsAnswer(error=not_found))
        case _:
            pass  # offsets that expire, requests that were given up: there are none here


def refuse_without(event: GroupEvent, what: str, turn: GroupTurn) -> None:
    """There is no share group of this id; `what` says what the group is instead."""
    not_found = ErrorCode.group_id_not_found
    match event:
        case ShareHeartbeat() if not share_membership.refuse_if_invalid(event, turn):
            message = f"group {event.group_id!r} {what}"
            turn.answer(ConsumerHeartbeatAnswer(error=not_found, message=message))
        case AlterShareOffsets() | DeleteStates():
            turn.answer(StateTopicsAnswer(error=not_found))
        case StatesInitialized() | StatesDeleted():
            turn.answer(CodeAnswer(error=not_found))
        case _:
            pass
