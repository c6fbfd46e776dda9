"""What happens to a consumer group (KIP-848): the way of an event to the rule that handles it.

A rule. How somebody comes into one is in `groups`: it may have to become one first.
"""

from __future__ import annotations

from moldau.errors import ErrorCode
from moldau.groups.rules import (
    classic_consumers,
    commits,
    consumer_membership,
    share_group_events,
)
from moldau.groups.rules.answers import CodeAnswer
from moldau.groups.rules.consumer_group import ConsumerGroup
from moldau.groups.rules.events import (
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
from moldau.groups.rules.outcome import GroupTurn


def handle(group: ConsumerGroup, event: GroupEvent, turn: GroupTurn) -> None:
    match event:
        case TimerFired(timer=timer):
            _time_is_over(group, timer, turn)
        case Sync() | Heartbeat() | Leave():
            classic_consumers.handle(group, event, turn)
        case AppendFailed():
            # Who was about to go, or to come, is as before: nobody is waited for without an end.
            # Members of the classic protocol are told again, and their time begins then.
            group.told_to_join.clear()
            group.resolved = None
            consumer_membership.await_signs_of_life(group, turn.limits, turn.outcome)
        case DeleteGroup() if group.subscriptions:
            turn.answer(CodeAnswer(error=ErrorCode.non_empty_group))
        case DeleteGroup():
            commits.forget_all(group, turn.outcome)
            turn.outcome.records += group.end_records()
            turn.answer(CodeAnswer())
        case ExpireOffsets():
            if commits.expire(group, turn) and not group.subscriptions:
                turn.outcome.records += group.end_records()
        case DeleteTopics(topics=topics):
            commits.forget_topics(group, topics, turn)
        case _:  # nobody waits here for others
            share_group_events.refuse_without(event, "is a consumer group", turn)


def _time_is_over(group: ConsumerGroup, timer: GroupTimer, turn: GroupTurn) -> None:
    match timer.kind:
        case GroupTimerKind.SESSION:
            consumer_membership.session_is_over(group, timer.member_id, turn)
        case GroupTimerKind.REVOCATION:
            consumer_membership.revocation_time_is_over(group, timer.member_id, turn)
        case GroupTimerKind.JOIN:
            classic_consumers.join_time_is_over(group, timer.member_id, turn)
        case GroupTimerKind.SYNC:
            classic_consumers.sync_time_is_over(group, timer.member_id, turn)
