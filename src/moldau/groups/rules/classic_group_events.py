"""What happens to a classic group: the way of an event to the rule that handles it. A rule."""

from __future__ import annotations

from moldau.errors import ErrorCode
from moldau.groups.rules import commits, membership, share_group_events
from moldau.groups.rules.answers import CodeAnswer
from moldau.groups.rules.events import (
    Abandon,
    AppendFailed,
    DeleteGroup,
    DeleteTopics,
    ExpireOffsets,
    GroupEvent,
    GroupTimer,
    GroupTimerKind,
    Heartbeat,
    Leave,
    Sync,
    TimerFired,
)
from moldau.groups.rules.group import ClassicGroupState, Group
from moldau.groups.rules.outcome import GroupTurn
from moldau.groups.rules.records import GroupRecord


def handle(group: Group, event: GroupEvent, turn: GroupTurn) -> None:
    match event:
        case Sync():
            membership.sync(group, event, turn)
        case Heartbeat():
            membership.heartbeat(group, event, turn)
        case Leave():
            membership.leave(group, event, turn)
        case Abandon():
            membership.abandon(group, event, turn.outcome)
        case TimerFired(timer=timer):
            _time_is_over(group, timer, turn)
        case AppendFailed() if group.state is not ClassicGroupState.EMPTY:
            group.start_over(turn)
        case DeleteGroup():
            _delete(group, turn)
        case ExpireOffsets():
            _expire(group, turn)
        case DeleteTopics(topics=topics):
            commits.forget_topics(group, topics, turn)
        case _:
            share_group_events.refuse_without(event, "is a classic group", turn)


def _time_is_over(group: Group, timer: GroupTimer, turn: GroupTurn) -> None:
    match timer.kind:
        case GroupTimerKind.JOIN:
            group.join_time_is_over(turn)
        case GroupTimerKind.SYNC:
            membership.sync_time_is_over(group, turn)
        case GroupTimerKind.SESSION:
            membership.session_is_over(group, timer.member_id, turn)


def _expire(group: Group, turn: GroupTurn) -> None:
    is_bare = commits.expire(group, turn)
    if is_bare and group.state is ClassicGroupState.EMPTY and not group.pending:
        turn.outcome.records.append(GroupRecord(group.group_id, None))


def _delete(group: Group, turn: GroupTurn) -> None:
    if group.state is not ClassicGroupState.EMPTY:
        turn.answer(CodeAnswer(error=ErrorCode.non_empty_group))
        return
    for member_id in sorted(group.pending):
        turn.outcome.disarm(group.session_timer(member_id))
    commits.forget_all(group, turn.outcome)
    turn.outcome.records.append(GroupRecord(group.group_id, None))
    turn.answer(CodeAnswer())
