"""ShareGroupHeartbeat: how members of a share group come, live, want something else, and go
(KIP-932). A rule.

As with consumer groups, one request does all of it and becomes records. What is simpler: nobody
gives anything up before others get it, since partitions are shared; so a member has its whole
target as soon as it hears of it.
"""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from moldau.errors import ErrorCode
from moldau.groups.rules.answers import ConsumerHeartbeatAnswer
from moldau.groups.rules.assigned_partitions import only_topics
from moldau.groups.rules.consumer_group_records import (
    ConsumerSubscription,
    GroupEpoch,
    MemberAssignment,
)
from moldau.groups.rules.consumer_membership import Refused
from moldau.groups.rules.epoch_group import wanted_by, was_assigned_just_now
from moldau.groups.rules.events import JOINING_EPOCH, LEAVING_EPOCH, ShareHeartbeat
from moldau.groups.rules.limits import GroupLimits
from moldau.groups.rules.outcome import GroupTurn, Outcome
from moldau.groups.rules.share_assignor import Taker, assign_simply, wanted_partitions
from moldau.groups.rules.share_group import ShareGroup
from moldau.groups.rules.share_group_records import (
    ShareAssignmentRecord,
    ShareEpochRecord,
    ShareGroupRecord,
    ShareSubscriptionRecord,
    ShareTargetEpochRecord,
    ShareTargetRecord,
    removal_of_taker,
)
from moldau.groups.rules.share_states import initialize_missing
from moldau.groups.rules.wanted_topics import WantedTopics


def heartbeat(group: ShareGroup, event: ShareHeartbeat, turn: GroupTurn) -> None:
    """`group` may be one that is not there yet: it is, once the records are applied."""
    if refuse_if_invalid(event, turn):
        return
    try:
        if event.epoch == LEAVING_EPOCH:
            _leave(group, event, turn)
        else:
            _Step(group, event, turn).take()
    except Refused as refused:
        turn.answer(ConsumerHeartbeatAnswer(error=refused.error, message=refused.message))


def refuse_if_invalid(event: ShareHeartbeat, turn: GroupTurn) -> bool:
    """Answer a request that makes no sense whatever the group looks like."""
    fault = _find_fault(event, turn.limits)
    if fault is not None:
        turn.answer(ConsumerHeartbeatAnswer(error=ErrorCode.invalid_request, message=fault))
    return fault is not None


def _find_fault(event: ShareHeartbeat, limits: GroupLimits) -> str | None:
    fault = None
    if not event.group_id:
        fault = "GroupId must not be empty"
    elif not event.member_id:
        fault = "MemberId must not be empty"
    elif event.rack_id == "":
        fault = "RackId is null where there is none, not empty"
    elif event.epoch < LEAVING_EPOCH:
        fault = f"MemberEpoch {event.epoch} means nothing"
    elif event.epoch == JOINING_EPOCH and not event.topics:
        fault = "SubscribedTopicNames must be given when joining"
    elif event.topics and sum(map(len, event.topics)) > limits.member_metadata_max_bytes:
        fault = f"the names of {len(event.topics)} topics are more than could be logged"
    return fault


class _Step:
    """One step of a member that is there or comes."""

    def __init__(self, group: ShareGroup, event: ShareHeartbeat, turn: GroupTurn) -> None:
        self._group = group
        self._event = event
        self._turn = turn
        self._records: list[ShareGroupRecord] = []
        self._wanted = ConsumerSubscription(member_id=event.member_id)
        self._target = group.target_of(event.member_id)
        self._target_epoch = group.target_epoch

    def take(self) -> None:
        group, event, turn = self._group, self._event, self._turn
        member_id = event.member_id
        self._check_member()
        former = group.subscriptions.get(member_id)
        current = group.assignment_of(member_id)
        self._wanted = self._subscribe(former)
        topics = self._see_topics(is_as_before=former == self._wanted)
        wants_other = former is None or former.topics != self._wanted.topics
        epoch = self._find_epoch(topics, wants_other=wants_other)
        if epoch > group.target_epoch:
            interval_ms = turn.limits.share_assignment_interval_ms
            if was_assigned_just_now(group.assigned_ms, turn.now_ms, interval_ms):
                self._target = only_topics(self._target, topics.ids_of(self._wanted.topics))
            else:
                self._assign(epoch, topics)
        reached = self._reach(current)
        turn.outcome.records += self._records
        turn.outcome.arm(group.session_timer(member_id), turn.limits.share_session_timeout_ms)
        initialize_missing(group, topics, epoch, turn)
        # One that says what it wants, or is behind, may not have heard the answer before.
        is_news = event.topics is not None or event.epoch != current.epoch
        turn.answer(
            ConsumerHeartbeatAnswer(
                member_id=member_id,
                epoch=reached.epoch,
                heartbeat_interval_ms=turn.limits.share_heartbeat_interval_ms,
                assigned=reached.assigned
                if is_news or reached.assigned != current.assigned
                else None,
            )
        )

    def _check_member(self) -> None:
        group, event = self._group, self._event
        is_known = event.member_id in group.subscriptions
        if event.epoch == JOINING_EPOCH:
            if not is_known and len(group.subscriptions) >= self._turn.limits.share_max_size:
                raise Refused(
                    ErrorCode.group_max_size_reached,
                    f"group {group.group_id!r} has {len(group.subscriptions)} members, as many as "
                    "group.share.max.size allows",
                )
            return
        if not is_known:
            raise _unknown_member(event.member_id, group.group_id)
        current = group.assignment_of(event.member_id)
        # The one before: the answer that told it of the new one was lost.
        if event.epoch not in (current.epoch, current.previous_epoch):
            raise Refused(
                ErrorCode.fenced_member_epoch,
                f"member {event.member_id} is in epoch {current.epoch} and not in {event.epoch}; "
                "it must join again",
            )

    def _subscribe(self, former: ConsumerSubscription | None) -> ConsumerSubscription:
        event = self._event
        before = former or ConsumerSubscription(member_id=event.member_id)
        wanted = ConsumerSubscription(
            member_id=event.member_id,
            rack_id=event.rack_id or before.rack_id,
            client_id=event.client_id,
            client_host=event.client_host,
            topics=before.topics if event.topics is None else event.topics,
        )
        if wanted != former:
            group_id = self._group.group_id
            self._records.append(ShareSubscriptionRecord(group_id, event.member_id, wanted))
        return wanted

    def _members_to_be(self) -> dict[str, ConsumerSubscription]:
        return {**self._group.subscriptions, self._event.member_id: self._wanted}

    def _see_topics(self, *, is_as_before: bool) -> WantedTopics:
        group = self._group
        names = group.wanted_topics if is_as_before else wanted_by(self._members_to_be().values())
        return group.see_topics(names, self._turn.image)

    def _find_epoch(self, topics: WantedTopics, *, wants_other: bool) -> int:
        """The group's, or the next one if something has changed that assignments depend on."""
        group = self._group
        if not wants_other and topics.metadata_hash == group.metadata_hash:
            return group.epoch
        value = GroupEpoch(group.epoch + 1, topics.metadata_hash)
        self._records.append(ShareEpochRecord(group.group_id, value))
        return value.epoch

    def _assign(self, epoch: int, topics: WantedTopics) -> None:
        """New targets for everybody, of what is initialized (SHG-1)."""
        group = self._group
        counts = {topic_id: count for topic_id, (_, count) in topics.partition_counts.items()}
        initialized = {
            topic_id: topic.partitions for topic_id, topic in group.state_topics.initialized.items()
        }
        ids: dict[frozenset[str], frozenset[UUID]] = {}
        takers = []
        for member_id, one in self._members_to_be().items():
            if one.topics not in ids:
                ids[one.topics] = topics.ids_of(one.topics)
            takers.append(Taker(member_id, ids[one.topics], group.target_of(member_id)))
        targets = assign_simply(takers, wanted_partitions(counts, initialized))
        for member_id in sorted(targets):
            if targets[member_id] != group.targets.get(member_id):
                target = targets[member_id]
                self._records.append(ShareTargetRecord(group.group_id, member_id, target))
        self._records.append(ShareTargetEpochRecord(group.group_id, epoch, self._turn.now_ms))
        self._target_epoch = epoch
        self._target = targets[self._event.member_id]

    def _reach(self, current: MemberAssignment) -> MemberAssignment:
        """The target, at once."""
        group, member_id = self._group, self._event.member_id
        reached = MemberAssignment(
            epoch=self._target_epoch,
            previous_epoch=current.epoch
            if self._target_epoch != current.epoch
            else current.previous_epoch,
            assigned=self._target,
        )
        if reached != current or member_id not in group.assignments:
            self._records.append(ShareAssignmentRecord(group.group_id, member_id, reached))
        return reached


# Going


def _leave(group: ShareGroup, event: ShareHeartbeat, turn: GroupTurn) -> None:
    if event.member_id not in group.subscriptions:
        raise _unknown_member(event.member_id, group.group_id)
    turn.outcome.log(group.group_id, f"member {event.member_id} leaves", is_rebalance=True)
    remove(group, (event.member_id,), turn)
    turn.answer(ConsumerHeartbeatAnswer(member_id=event.member_id, epoch=event.epoch))


def session_is_over(group: ShareGroup, member_id: str, turn: GroupTurn) -> None:
    if member_id in group.subscriptions:
        message = f"member {member_id} has given no sign of life"
        turn.outcome.log(group.group_id, message, is_rebalance=True)
        remove(group, (member_id,), turn)


def remove(group: ShareGroup, member_ids: Collection[str], turn: GroupTurn) -> None:
    """Others get what they took from with their next heartbeats."""
    outcome = turn.outcome
    for member_id in member_ids:
        outcome.disarm(group.session_timer(member_id))
        outcome.records += removal_of_taker(group.group_id, member_id)
    rest = [one for one in group.subscriptions.values() if one.member_id not in member_ids]
    topics = group.see_topics(wanted_by(rest), turn.image)
    value = GroupEpoch(group.epoch + 1, topics.metadata_hash)
    outcome.records.append(ShareEpochRecord(group.group_id, value))


def await_signs_of_life(group: ShareGroup, limits: GroupLimits, outcome: Outcome) -> None:
    """After loading: as if every member had just been heard."""
    for member_id in group.subscriptions:
        outcome.arm(group.session_timer(member_id), limits.share_session_timeout_ms)


def _unknown_member(member_id: str, group_id: str) -> Refused:
    return Refused(ErrorCode.unknown_member_id, f"group {group_id!r} has no member {member_id!r}")
