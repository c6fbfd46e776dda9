"""ConsumerGroupHeartbeat: how members come, live, want something else, and go (KIP-848). A rule.

One request does all of it. What it changes is worked out against the group as it is logged and
becomes records; the group changes when those are applied. Coordinator and member talk in epochs: a
member that answers for a target it has not reached, or that was replaced, is fenced and joins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from moldau.coordinators.groups.rules import migration
from moldau.coordinators.groups.rules.assigned_partitions import (
    NO_PARTITIONS,
    AssignedPartitions,
    AssignmentEpochs,
    assigned_in,
    common,
    is_within,
    overlap,
    together,
    without,
)
from moldau.coordinators.groups.rules.assignors import ASSIGNORS, AssignableMember
from moldau.coordinators.groups.rules.consumer_group import ConsumerGroup
from moldau.coordinators.groups.rules.consumer_records import (
    ClassicMember,
    ConsumerSubscription,
    MemberAssignment,
    MemberAssignmentRecord,
    MemberState,
    ResolvedRegex,
    ResolvedRegexRecord,
)
from moldau.coordinators.groups.rules.epoch_group import (
    EpochStep,
    Refused,
    preferred_assignor,
    unknown_member,
)
from moldau.coordinators.groups.rules.events import (
    JOINING_EPOCH,
    STATIC_LEAVING_EPOCH,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
)
from moldau.coordinators.groups.rules.outcome import GroupLimits, GroupTurn, Outcome
from moldau.coordinators.runtime.regular_expressions import compile_regular_expression
from moldau.errors import ErrorCode, InvalidRegularExpressionError


def heartbeat(group: ConsumerGroup, event: ConsumerHeartbeat, turn: GroupTurn) -> None:
    """`group` may be one that is not there yet: it is, once the records are applied."""
    if refuse_if_invalid(event, turn):
        return
    try:
        if event.epoch < JOINING_EPOCH:
            _leave(group, event, turn)
        else:
            _answer(group, event, turn)
    except Refused as refused:
        turn.answer(ConsumerHeartbeatAnswer(error=refused.error, message=refused.message))
    except InvalidRegularExpressionError as error:
        turn.answer(ConsumerHeartbeatAnswer(error=error.code, message=str(error)))


def refuse_if_invalid(event: ConsumerHeartbeat, turn: GroupTurn) -> bool:
    """Answer a request that makes no sense whatever the group looks like."""
    try:
        _check_request(event, turn.limits)
    except Refused as refused:
        turn.answer(ConsumerHeartbeatAnswer(error=refused.error, message=refused.message))
    except InvalidRegularExpressionError as error:
        turn.answer(ConsumerHeartbeatAnswer(error=error.code, message=str(error)))
    else:
        return False
    return True


def _check_request(event: ConsumerHeartbeat, limits: GroupLimits) -> None:
    fault = _find_request_fault(event)
    if fault is not None:
        raise Refused(ErrorCode.invalid_request, fault)
    if event.assignor is not None and event.assignor not in limits.consumer_assignors:
        known = ", ".join(limits.consumer_assignors)
        raise Refused(
            ErrorCode.unsupported_assignor,
            f"the assignor {event.assignor!r} is not offered here; these are: {known}",
        )
    if event.topics and sum(map(len, event.topics)) > limits.member_metadata_max_bytes:
        raise Refused(
            ErrorCode.invalid_request,
            f"the names of {len(event.topics)} topics are more than could be logged",
        )
    if event.regex:
        check_regex(event.regex)


def _find_request_fault(event: ConsumerHeartbeat) -> str | None:
    if not event.group_id:
        return "GroupId must not be empty"
    if not event.member_id:
        return "MemberId must not be empty"
    if event.instance_id == "" or event.rack_id == "":
        return "InstanceId and RackId are null where there is none, not empty"
    if event.epoch < STATIC_LEAVING_EPOCH:
        return f"MemberEpoch {event.epoch} means nothing"
    if event.epoch == STATIC_LEAVING_EPOCH and event.instance_id is None:
        return "only a member with an InstanceId can leave to come back"
    if event.epoch == JOINING_EPOCH:
        if event.rebalance_timeout_ms < 0:
            return "RebalanceTimeoutMs must be given when joining"
        if event.owned is None or event.owned:
            return "TopicPartitions must be empty when joining"
        if event.topics is None and event.regex is None:  # empty: it wants nothing by now
            return "SubscribedTopicNames or SubscribedTopicRegex must be given when joining"
    return None


def _answer(group: ConsumerGroup, event: ConsumerHeartbeat, turn: GroupTurn) -> None:
    step = MemberStep(group, event, turn)
    reached = step.advance()
    is_news = event.epoch == JOINING_EPOCH or event.is_full
    step.answer(reached, turn.limits.consumer_heartbeat_interval_ms, is_news=is_news)


class MemberStep(EpochStep[ConsumerGroup, ConsumerHeartbeat]):
    """One step of a member that is there or comes, whatever protocol it speaks."""

    def __init__(
        self,
        group: ConsumerGroup,
        event: ConsumerHeartbeat,
        turn: GroupTurn,
        classic: ClassicMember | None = None,
    ) -> None:
        super().__init__(group, event, turn)
        self._classic = classic
        self._regexes = dict(group.regexes)  # as they will be

    def advance(self) -> MemberAssignment:
        reached = super().advance()
        self._arm(reached)
        return reached

    # Who it is

    def _check_member(self) -> str | None:
        """Whether it may speak; the id of a static member whose place it takes."""
        group, event = self._group, self._event
        if event.instance_id is not None:
            return self._check_static(event.instance_id)
        if event.epoch == JOINING_EPOCH:
            self._check_room(self._turn.limits.consumer_max_size, "group.consumer.max.size")
        elif event.member_id not in group.subscriptions:
            raise unknown_member(event.member_id, group.group_id)
        else:
            _check_epoch(group.assignment_of(event.member_id), event)
        return None

    def _check_static(self, instance_id: str) -> str | None:
        group, event = self._group, self._event
        known = group.find_instance(instance_id)
        if event.epoch != JOINING_EPOCH:
            _check_instance(known, event)
            _check_epoch(group.assignment_of(event.member_id), event)
            return None
        if known is None:
            self._check_room(self._turn.limits.consumer_max_size, "group.consumer.max.size")
            return None
        if known == event.member_id:
            return None  # it comes again, as itself
        # Members of the classic protocol do not say that they leave to come back.
        is_classic = self._classic or group.subscriptions[known].classic
        if is_classic is None and group.assignment_of(known).epoch != STATIC_LEAVING_EPOCH:
            raise Refused(
                ErrorCode.unreleased_instance_id,
                f"instance {instance_id!r} is member {known}, which has not left",
            )
        return known

    # What it wants

    def _read_subscription(self, before: ConsumerSubscription) -> ConsumerSubscription:
        event = self._event
        is_joining = event.epoch == JOINING_EPOCH
        topics = event.topics
        if topics is None:
            topics = frozenset() if is_joining else before.topics
        regex = before.regex if event.regex is None and not is_joining else event.regex or None
        return ConsumerSubscription(
            member_id=event.member_id,
            instance_id=event.instance_id or before.instance_id,
            rack_id=event.rack_id or before.rack_id,
            client_id=event.client_id,
            client_host=event.client_host,
            topics=topics,
            regex=regex,
            rebalance_timeout_ms=before.rebalance_timeout_ms
            if event.rebalance_timeout_ms < 0
            else event.rebalance_timeout_ms,
            assignor=event.assignor or before.assignor,
            classic=self._classic,
        )

    def _wish_of(self, member: ConsumerSubscription) -> object:
        return member.topics, member.regex, member.rack_id, member.assignor

    def _find_names(self, members: Iterable[ConsumerSubscription]) -> frozenset[str]:
        return self._group.topics_wanted_by(members, self._regexes)

    def _note_epoch(self, epoch: int, *, wants_other: bool) -> None:
        if not wants_other:
            reason = "the topics that it reads have changed"
        elif self._event.member_id in self._group.subscriptions:
            reason = f"member {self._event.member_id} wants other topics"
        else:
            reason = f"member {self._event.member_id} joins"
        group_id = self._group.group_id
        self._turn.outcome.log(group_id, f"epoch {epoch}: {reason}", is_rebalance=True)

    def _must_resolve(self) -> bool:
        """Whether expressions may stand for other topics than they did: there are others, which the
        group has seen only as far as it wanted them before, or what a member may know of has
        changed, without a word."""
        group, turn = self._group, self._turn
        if not group.regexes:
            return False
        if group.resolved is None or group.resolved[0] is not turn.image.topics:
            return True
        return self._event.may_see is not None and turn.now_ms - group.resolved[1] >= REFRESH_MS

    def _resolve(self) -> bool:
        """Look regular expressions up in the topics of now; drop those that nobody uses. As in
        Kafka, they stand for the topics that the member which reports may know of."""
        group_id, may_see, image = self._group.group_id, self._event.may_see, self._turn.image
        members = self._members_to_be()
        used = {one.regex for one in members.values() if one.regex is not None}
        for regex in sorted(self._regexes.keys() - used):
            del self._regexes[regex]
            self._records.append(ResolvedRegexRecord(group_id, regex, None))
        for regex in sorted(used):
            topics = find_matching(regex, image.topics, may_see)
            known = self._regexes.get(regex)
            if known is None or known.topics != topics:
                resolved = ResolvedRegex(topics, image.version, self._turn.now_ms)
                self._regexes[regex] = resolved
                self._records.append(ResolvedRegexRecord(group_id, regex, resolved))
        self._group.resolved = image.topics, self._turn.now_ms
        return self._regexes != self._group.regexes

    # What it gets

    @property
    def _interval_ms(self) -> int:
        return self._turn.limits.consumer_assignment_interval_ms

    def _compute_targets(
        self,
        members: Mapping[str, ConsumerSubscription],
        topic_ids: Mapping[str, frozenset[UUID]],
    ) -> Mapping[str, AssignedPartitions]:
        own_id, group = self._event.member_id, self._group
        assignable = [
            AssignableMember(
                member_id=member_id,
                instance_id=one.instance_id,
                rack_id=one.rack_id,
                topics=topic_ids[member_id],
                former=self._target if member_id == own_id else group.target_of(member_id),
            )
            for member_id, one in members.items()
        ]
        assign = ASSIGNORS[preferred_assignor(members, self._turn.limits)]
        return assign(assignable, self._see_topics().by_id)

    def _reach(self) -> MemberAssignment:
        return reconcile(
            self.current,
            self._target_epoch,
            self._target,
            self._group.is_free,
            self._event.owned,
        )

    def _arm(self, reached: MemberAssignment) -> None:
        group, member_id, outcome = self._group, self._event.member_id, self._turn.outcome
        session_ms = session_timeout_ms(self._wanted, self._turn.limits)
        outcome.arm(group.session_timer(member_id), session_ms)
        timer = group.revocation_timer(member_id)
        if reached.state is not MemberState.UNREVOKED_PARTITIONS:
            outcome.disarm(timer)
        elif reached.revoking != group.assignment_of(member_id).revoking:
            outcome.arm(timer, self._wanted.rebalance_timeout_ms)


def session_timeout_ms(member: ConsumerSubscription, limits: GroupLimits) -> int:
    if member.classic is not None:
        return member.classic.session_timeout_ms
    return limits.consumer_session_timeout_ms


def await_signs_of_life(group: ConsumerGroup, limits: GroupLimits, outcome: Outcome) -> None:
    """After loading: as if every member had just been heard."""
    for member_id, subscription in group.subscriptions.items():
        outcome.arm(group.session_timer(member_id), session_timeout_ms(subscription, limits))
        if group.assignment_of(member_id).state is MemberState.UNREVOKED_PARTITIONS:
            outcome.arm(group.revocation_timer(member_id), subscription.rebalance_timeout_ms)


# Going


def _leave(group: ConsumerGroup, event: ConsumerHeartbeat, turn: GroupTurn) -> None:
    member_id = event.member_id
    if event.instance_id is not None:
        _check_instance(group.find_instance(event.instance_id), event)
    elif member_id not in group.subscriptions:
        raise unknown_member(member_id, group.group_id)
    if event.epoch == STATIC_LEAVING_EPOCH:
        # Its partitions wait for it, until its session is over.
        before = group.assignment_of(member_id)
        current = replace(
            before,
            epoch=STATIC_LEAVING_EPOCH,
            previous_epoch=STATIC_LEAVING_EPOCH,
            revoking=NO_PARTITIONS,
            state=MemberState.STABLE,
            assignment_epochs=assigned_in(JOINING_EPOCH, before.assigned),
        )
        turn.outcome.records.append(MemberAssignmentRecord(group.group_id, member_id, current))
        turn.outcome.disarm(group.revocation_timer(member_id))
    else:
        turn.outcome.log(group.group_id, f"member {member_id} leaves", is_rebalance=True)
        remove(group, (member_id,), turn)
    turn.answer(ConsumerHeartbeatAnswer(member_id=member_id, epoch=event.epoch))


def session_is_over(group: ConsumerGroup, member_id: str, turn: GroupTurn) -> None:
    if member_id in group.subscriptions:
        message = f"member {member_id} has given no sign of life"
        turn.outcome.log(group.group_id, message, is_rebalance=True)
        remove(group, (member_id,), turn)


def revocation_time_is_over(group: ConsumerGroup, member_id: str, turn: GroupTurn) -> None:
    if group.assignment_of(member_id).state is MemberState.UNREVOKED_PARTITIONS:
        message = f"member {member_id} has not given partitions up within its time-out"
        turn.outcome.log(group.group_id, message, is_rebalance=True)
        remove(group, (member_id,), turn)


def remove(group: ConsumerGroup, member_ids: Collection[str], turn: GroupTurn) -> None:
    """Their partitions are free, and others get them with their next heartbeats. A group in which
    only members of the classic protocol are left is one of theirs from then on."""
    outcome = turn.outcome
    for member_id in member_ids:
        for timer in group.member_timers(member_id):
            outcome.disarm(timer)
    rest = [one for one in group.subscriptions.values() if one.member_id not in member_ids]
    if rest and turn.limits.allows_downgrade and all(one.classic for one in rest):
        migration.become_classic(group, member_ids, turn)
        return
    for member_id in member_ids:
        outcome.records += group.removal_records(member_id)
    used = {one.regex for one in rest}
    for regex in sorted(group.regexes.keys() - used):
        outcome.records.append(ResolvedRegexRecord(group.group_id, regex, None))
    topics = group.see_topics(group.topics_wanted_by(rest, group.regexes), turn.image)
    outcome.records.append(group.next_epoch_record(topics.metadata_hash))


# Checks


def _check_instance(known: str | None, event: ConsumerHeartbeat) -> None:
    if known is None:
        raise Refused(
            ErrorCode.unknown_member_id, f"no member has the instance id {event.instance_id!r}"
        )
    if known != event.member_id:
        raise Refused(
            ErrorCode.fenced_instance_id,
            f"instance {event.instance_id!r} is member {known} by now",
        )


def _check_epoch(current: MemberAssignment, event: ConsumerHeartbeat) -> None:
    """Its own epoch, or the one before, if it owns nothing that it was not given since: the answer
    that told it of the new one was lost."""
    if event.epoch == current.epoch:
        return
    is_late = (
        event.epoch == current.previous_epoch
        and event.owned is not None
        and is_within(event.owned, current.assigned)
    )
    if not is_late:
        raise Refused(
            ErrorCode.fenced_member_epoch,
            f"member {event.member_id} is in epoch {current.epoch} and not in {event.epoch}; it "
            "must join again",
        )


# A step never gives a member a partition that somebody else may still read (CGR-1): first the one
# who loses a partition says that it has given it up, then the other gets it. The member's epoch
# becomes the target's as soon as nothing is left that it must give up. A rule.


IsFree = Callable[[UUID, int], bool]
"""Whether nobody has a partition or is still giving it up."""


def reconcile(
    current: MemberAssignment,
    target_epoch: int,
    target: AssignedPartitions,
    is_free: IsFree,
    owned: AssignedPartitions | None,
) -> MemberAssignment:
    """The next step; the same value when there is none to take.

    `owned` is what the member says it owns; None when it said nothing, so that it may own all that
    it was given.
    """
    match current.state:
        case MemberState.STABLE:
            # It may want less than its target, when the next one is delayed (KIP-1263).
            if current.epoch == target_epoch and is_within(current.assigned, target):
                return current
            return _reconcile_towards(current, target_epoch, target, is_free, owned)
        case MemberState.UNREVOKED_PARTITIONS:
            if _owns(current.revoking, owned):
                return current
            return _reconcile_towards(current, target_epoch, target, is_free, owned)
        case MemberState.UNRELEASED_PARTITIONS:
            return _reconcile_towards(current, target_epoch, target, is_free, owned)


def _reconcile_towards(
    current: MemberAssignment,
    target_epoch: int,
    target: AssignedPartitions,
    is_free: IsFree,
    owned: AssignedPartitions | None,
) -> MemberAssignment:
    kept = common(current.assigned, target)
    leaving = without(current.assigned, kept)
    if leaving and _owns(leaving, owned):
        stays = replace(
            current,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=kept,
            revoking=leaving,
            assignment_epochs=_epochs_of(current, current.epoch, kept, leaving),
        )
        return _in_epoch(stays, current.epoch)
    coming = without(target, kept)
    free = {
        topic_id: some
        for topic_id, partitions in coming.items()
        if (
            some := frozenset(
                one
                for one in partitions
                # What it has just given up is its own again.
                if is_free(topic_id, one) or one in current.revoking.get(topic_id, ())
            )
        )
    }
    is_complete = free == coming
    assigned = together(kept, free)
    moved = replace(
        current,
        state=MemberState.STABLE if is_complete else MemberState.UNRELEASED_PARTITIONS,
        assigned=assigned,
        revoking=NO_PARTITIONS,
        assignment_epochs=_epochs_of(current, target_epoch, assigned),
    )
    return _in_epoch(moved, target_epoch)


def _epochs_of(
    current: MemberAssignment, epoch: int, *parts: AssignedPartitions
) -> AssignmentEpochs:
    """A partition that the member keeps, or has to revoke, keeps its epoch; a new one has this."""
    epochs: dict[UUID, dict[int, int]] = {}
    for partitions in parts:
        for topic_id, some in partitions.items():
            had = current.assigned.get(topic_id, frozenset())
            known = current.assignment_epochs.get(topic_id, {})
            epochs.setdefault(topic_id, {}).update(
                (one, known.get(one, epoch) if one in had else epoch) for one in some
            )
    return epochs


def _in_epoch(assignment: MemberAssignment, epoch: int) -> MemberAssignment:
    """`epoch` is its own or the target's, which is the latest (CGR-2)."""
    if epoch == assignment.epoch:
        return assignment
    return replace(assignment, epoch=epoch, previous_epoch=assignment.epoch)


def _owns(partitions: AssignedPartitions, owned: AssignedPartitions | None) -> bool:
    return owned is None or overlap(partitions, owned)


# Regular expressions over topic names, as members of consumer groups subscribe with them. A rule.
#
# Internal topics match as others do, as in Kafka: what a member does with them is its affair.


REFRESH_MS: Final = 600_000
"""So long an expression stands for the same topics, where clients may not know of all; the default
of Kafka's `group.consumer.regex.refresh.interval.ms`."""

_REMEMBERED = 64


def find_matching(
    regex: str, names: Collection[str], may_see: Callable[[str], bool] | None = None
) -> frozenset[str]:
    """The topics whose whole name matches, and that somebody may know of. Raises
    `InvalidRegularExpressionError`."""
    matching = _pattern(regex).find_in(names)
    return matching if may_see is None else frozenset(filter(may_see, matching))


def check_regex(regex: str) -> None:
    """Raises `InvalidRegularExpressionError` if it is none."""
    compile_regular_expression(regex)


class _Pattern:
    """An expression, and what it was last asked: a broker has thousands of topics, and mostly the
    same ones as the last time."""

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self._asked: frozenset[str] = frozenset()
        self._matching: frozenset[str] = frozenset()

    def find_in(self, names: Collection[str]) -> frozenset[str]:
        asked, matches = self._asked, self._compiled.fullmatch
        new = [one for one in names if one not in asked]
        if new or len(names) != len(asked):
            kept = self._matching.intersection(names)
            self._matching = kept.union(one for one in new if matches(one))
            self._asked = frozenset(names)
        return self._matching


@lru_cache(_REMEMBERED)
def _pattern(regex: str) -> _Pattern:
    return _Pattern(compile_regular_expression(regex))
