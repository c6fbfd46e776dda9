"""What happens to a streams group (KIP-1071): the way of an event to the rule that handles it, and
what is answered to those who take a group of another kind for one. A rule."""

from __future__ import annotations

from moldau.errors import ErrorCode
from moldau.groups.rules import (
    commits,
    membership,
    share_group_events,
    streams_membership,
    streams_targets,
)
from moldau.groups.rules.answers import CodeAnswer, StreamsHeartbeatAnswer
from moldau.groups.rules.events import (
    AppendFailed,
    DeleteGroup,
    DeleteTopics,
    ExpireOffsets,
    GroupEvent,
    Heartbeat,
    Leave,
    StreamsHeartbeat,
    Sync,
    TasksAssigned,
    TimerFired,
)
from moldau.groups.rules.outcome import GroupTurn
from moldau.groups.rules.streams_group import StreamsGroup


def handle(group: StreamsGroup, event: GroupEvent, turn: GroupTurn) -> None:
    match event:
        case StreamsHeartbeat():
            streams_membership.heartbeat(group, event, turn)
        case TimerFired(timer=timer):
            streams_membership.time_is_over(group, timer.kind, timer.member_id, turn)
        case TasksAssigned():
            streams_targets.tasks_assigned(group, event, turn)
        case Sync() | Heartbeat() | Leave():
            membership.refuse_stranger(event, turn)
        case AppendFailed():
            # Who was about to go, or to come, is as before: nobody is waited for without an end,
            # and nobody was asked to assign tasks.
            group.is_assigning = False
            streams_membership.await_signs_of_life(group, turn.limits, turn.outcome)
        case DeleteGroup():
            _delete(group, turn)
        case ExpireOffsets():
            if commits.expire(group, turn) and not group.members:
                turn.outcome.records += group.end_records()
        case DeleteTopics(topics=topics):
            commits.forget_topics(group, topics, turn)
        case _:  # nobody waits here for others
            share_group_events.refuse_without(event, "is a streams group", turn)


def _delete(group: StreamsGroup, turn: GroupTurn) -> None:
    if group.members:
        turn.answer(CodeAnswer(error=ErrorCode.non_empty_group))
        return
    commits.forget_all(group, turn.outcome)
    turn.outcome.records += group.end_records()
    turn.answer(CodeAnswer())


def refuse_streams_member(event: StreamsHeartbeat, what: str, turn: GroupTurn) -> None:
    """There is no streams group of this id; `what` says what the group is instead."""
    if not streams_membership.refuse_if_invalid(event, turn):
        turn.answer(
            StreamsHeartbeatAnswer(
                error=ErrorCode.group_id_not_found, message=f"group {event.group_id!r} {what}"
            )
        )
