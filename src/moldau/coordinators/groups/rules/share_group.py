"""One share group (KIP-932): what the log says of it, and what follows from that.

Its members take records of the same partitions beside each other; which partitions each of them
takes from is decided here, in the epochs of `epoch_group`. Partitions are given to members only
when a share coordinator keeps their state for the group (SHG-1).

The model is Kafka's `ShareGroup`. A rule.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Final
from uuid import UUID

from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.coordinators.groups.rules.assigned_partitions import AssignedPartitions, partitions_of
from moldau.coordinators.groups.rules.assignors import (
    AssignableShareMember,
    assign_simply,
    wanted_partitions,
)
from moldau.coordinators.groups.rules.consumer_records import ConsumerSubscription, MemberAssignment
from moldau.coordinators.groups.rules.epoch_group import (
    DescribedConsumerGroup,
    EpochGroup,
    EpochRecordKinds,
    EpochStep,
    Refused,
    WantedTopics,
    unknown_member,
    wanted_by,
)
from moldau.coordinators.groups.rules.events import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    AlterShareOffsets,
    CodeAnswer,
    ConsumerHeartbeatAnswer,
    DeleteStates,
    GroupType,
    ListedGroup,
    NewState,
    ShareHeartbeat,
    StatesDeleted,
    StatesInitialized,
    StateTopicsAnswer,
)
from moldau.coordinators.groups.rules.outcome import GroupLimits, GroupTurn, Outcome
from moldau.coordinators.groups.rules.share_records import (
    KeptTopic,
    ShareAssignmentRecord,
    ShareEpochRecord,
    ShareGroupRecord,
    ShareSubscriptionRecord,
    ShareTargetEpochRecord,
    ShareTargetRecord,
    StateTopics,
    StateTopicsRecord,
)
from moldau.errors import ErrorCode

_PROTOCOL_TYPE: Final = "share"
_MOST_ENDED: Final = 10_000
"""Groups that have ended and whose epochs are remembered."""


class ShareGroupState(Enum):
    """Of a share group (KIP-932). Follows from its members; nobody sets it. The values are Kafka's
    names."""

    EMPTY = "Empty"
    """Nobody is in it. Moves: to STABLE with the first member; to DEAD when it is deleted."""

    STABLE = "Stable"
    """It has members. Moves: to EMPTY with the last one."""

    DEAD = "Dead"
    """Deleted: nothing of it is left."""


class ShareGroup(EpochGroup):
    """A group. Invariants SHG-1 to SHG-3 hold between two events."""

    RECORDS = EpochRecordKinds(
        ShareEpochRecord,
        ShareSubscriptionRecord,
        ShareTargetEpochRecord,
        ShareTargetRecord,
        ShareAssignmentRecord,
    )

    def __init__(self, group_id: str, former_epoch: int = 0) -> None:
        """One that is not there yet; its first epoch will be that after the former one."""
        super().__init__(group_id)
        # Hard
        self.epoch = former_epoch
        self.state_topics = StateTopics()
        # Soft: what share coordinators are being asked for by this coordinator
        self.initializing_now: set[tuple[UUID, int]] = set()
        self.deleting_now: set[UUID] = set()
        self.complete_for: object = None  # topics in which every state is known to be there

    def __repr__(self) -> str:
        return f"ShareGroup({self.group_id!r}, {self.state.value}, epoch {self.epoch})"

    def apply(self, record: ShareGroupRecord) -> None:
        """Take a record of this group that is in the log. The end of the group is for `Groups`."""
        if isinstance(record, StateTopicsRecord):
            self.state_topics = record.value or StateTopics()
            self.complete_for = None
        else:
            self.apply_epochs(record)

    @property
    def state(self) -> ShareGroupState:
        if self.is_dead:
            return ShareGroupState.DEAD
        return ShareGroupState.STABLE if self.subscriptions else ShareGroupState.EMPTY

    def describe(self, limits: GroupLimits) -> DescribedConsumerGroup:
        return self.describe_as(self.state, limits.share_assignors[0])

    def listed(self) -> ListedGroup:
        return ListedGroup(self.group_id, _PROTOCOL_TYPE, self.state, GroupType.SHARE)

    def end_records(self) -> list[ShareGroupRecord]:
        """What is logged when the group, in which nobody is any more, ends."""
        return [
            StateTopicsRecord(self.group_id, None),
            ShareTargetEpochRecord(self.group_id, None),
            ShareEpochRecord(self.group_id, None),
        ]


class EndedShareGroups:
    """The last epochs of groups that have ended, as far as the log tells them; the latest ones.

    The epoch of a group is that of the states that are begun for it. One of the same name goes on
    with the next epoch (SHG-6), so that what a leader still had to write for the former one is
    fenced (SHS-2) and does not pass for its own. Kafka begins with the first epoch again.
    """

    def __init__(self) -> None:
        self._epochs: dict[str, int] = {}  # the oldest end first

    def add(self, group: ShareGroup) -> None:
        self._epochs.pop(group.group_id, None)
        self._epochs[group.group_id] = group.epoch
        if len(self._epochs) > _MOST_ENDED:
            del self._epochs[next(iter(self._epochs))]

    def last_epoch(self, group_id: str) -> int:
        return self._epochs.get(group_id, 0)


def heartbeat_share(group: ShareGroup, event: ShareHeartbeat, turn: GroupTurn) -> None:
    """`group` may be one that is not there yet: it is, once the records are applied."""
    if refuse_if_invalid_share(event, turn):
        return
    try:
        if event.epoch == LEAVING_EPOCH:
            _leave(group, event, turn)
        else:
            _ShareMemberStep(group, event, turn).advance()
    except Refused as refused:
        turn.answer(ConsumerHeartbeatAnswer(error=refused.error, message=refused.message))


def refuse_if_invalid_share(event: ShareHeartbeat, turn: GroupTurn) -> bool:
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


class _ShareMemberStep(EpochStep[ShareGroup, ShareHeartbeat]):
    """One step of a member that is there or comes. Nobody gives anything up before others get it,
    since partitions are shared; so a member has its whole target as soon as it hears of it."""

    def _check_member(self) -> None:
        group, event = self._group, self._event
        if event.epoch == JOINING_EPOCH:
            self._check_room(self._turn.limits.share_max_size, "group.share.max.size")
            return
        if event.member_id not in group.subscriptions:
            raise unknown_member(event.member_id, group.group_id)
        current = group.assignment_of(event.member_id)
        # The one before: the answer that told it of the new one was lost.
        if event.epoch not in (current.epoch, current.previous_epoch):
            raise Refused(
                ErrorCode.fenced_member_epoch,
                f"member {event.member_id} is in epoch {current.epoch} and not in {event.epoch}; "
                "it must join again",
            )

    def _read_subscription(self, before: ConsumerSubscription) -> ConsumerSubscription:
        event = self._event
        return ConsumerSubscription(
            member_id=event.member_id,
            rack_id=event.rack_id or before.rack_id,
            client_id=event.client_id,
            client_host=event.client_host,
            topics=before.topics if event.topics is None else event.topics,
        )

    def _wish_of(self, member: ConsumerSubscription) -> object:
        return member.topics

    def _see_topics(self) -> WantedTopics:
        """With each heartbeat: so all members are asked only when one has changed."""
        group = self._group
        if self._wanted == group.subscriptions.get(self._event.member_id):
            return group.see_topics(group.wanted_topics, self._turn.image)
        return super()._see_topics()

    @property
    def _interval_ms(self) -> int:
        return self._turn.limits.share_assignment_interval_ms

    def _compute_targets(
        self,
        members: Mapping[str, ConsumerSubscription],
        topic_ids: Mapping[str, frozenset[UUID]],
    ) -> Mapping[str, AssignedPartitions]:
        """Of what is initialized (SHG-1)."""
        group, topics = self._group, self._see_topics()
        counts = {topic_id: count for topic_id, (_, count) in topics.partition_counts.items()}
        initialized = {
            topic_id: topic.partitions for topic_id, topic in group.state_topics.initialized.items()
        }
        assignable = [
            AssignableShareMember(member_id, topic_ids[member_id], group.target_of(member_id))
            for member_id in members
        ]
        return assign_simply(assignable, wanted_partitions(counts, initialized))

    def _reach(self) -> MemberAssignment:
        """The target, at once."""
        current, epoch = self.current, self._target_epoch
        previous = current.previous_epoch if epoch == current.epoch else current.epoch
        return MemberAssignment(epoch=epoch, previous_epoch=previous, assigned=self._target)

    def advance(self) -> MemberAssignment:
        reached = super().advance()
        group, event, turn = self._group, self._event, self._turn
        timer = group.session_timer(event.member_id)
        turn.outcome.arm(timer, turn.limits.share_session_timeout_ms)
        initialize_missing(group, self._see_topics(), self._epoch, turn)
        # One that says what it wants, or is behind, may not have heard the answer before.
        is_news = event.topics is not None or event.epoch != self.current.epoch
        self.answer(reached, turn.limits.share_heartbeat_interval_ms, is_news=is_news)
        return reached


# Going


def _leave(group: ShareGroup, event: ShareHeartbeat, turn: GroupTurn) -> None:
    if event.member_id not in group.subscriptions:
        raise unknown_member(event.member_id, group.group_id)
    turn.outcome.log(group.group_id, f"member {event.member_id} leaves", is_rebalance=True)
    remove(group, (event.member_id,), turn)
    turn.answer(ConsumerHeartbeatAnswer(member_id=event.member_id, epoch=event.epoch))


def share_session_is_over(group: ShareGroup, member_id: str, turn: GroupTurn) -> None:
    if member_id in group.subscriptions:
        message = f"member {member_id} has given no sign of life"
        turn.outcome.log(group.group_id, message, is_rebalance=True)
        remove(group, (member_id,), turn)


def remove(group: ShareGroup, member_ids: Collection[str], turn: GroupTurn) -> None:
    """Others get what they took from with their next heartbeats."""
    outcome = turn.outcome
    for member_id in member_ids:
        outcome.disarm(group.session_timer(member_id))
        outcome.records += group.removal_records(member_id)
    rest = [one for one in group.subscriptions.values() if one.member_id not in member_ids]
    topics = group.see_topics(wanted_by(rest), turn.image)
    outcome.records.append(group.next_epoch_record(topics.metadata_hash))


def await_signs_of_life(group: ShareGroup, limits: GroupLimits, outcome: Outcome) -> None:
    """After loading: as if every member had just been heard."""
    for member_id in group.subscriptions:
        outcome.arm(group.session_timer(member_id), limits.share_session_timeout_ms)


# Before members get a partition, its state is initialized: that it is about to be is logged, then
# the share coordinator is asked (an effect), and its word is logged (SHG-1). With the group, or
# when somebody asks for it, states are deleted in the same three steps. What was under way when a
# coordinator went, or could not be done, is asked for again with the next heartbeat, and begins
# where it was to begin at first (SHG-5).


UNKNOWN_START: Final = -1
"""The leader of the partition chooses by `share.auto.offset.reset`."""
FIRST_START: Final = 0
"""Of partitions that came later: nothing in them was there before the group began."""


def initialize_missing(
    group: ShareGroup, wanted: WantedTopics, epoch: int, turn: GroupTurn
) -> None:
    """Have the states made that are not there yet, of what members want."""
    if group.complete_for is wanted:
        return
    topics, states = wanted.partition_counts, group.state_topics
    missing = [
        NewState(topic_id, partition, _start_of(topic_id, partition, states))
        for topic_id, (_, count) in topics.items()
        if topic_id not in group.deleting_now
        for partition in range(count)
        if not states.has_initialized(topic_id, partition)
        and (topic_id, partition) not in group.initializing_now
    ]
    if not missing:
        if not group.initializing_now and not group.deleting_now:
            group.complete_for = wanted
        return
    names = {topic_id: name for topic_id, (name, _) in topics.items()}
    _begin_initializing(group, missing, names, turn)
    turn.outcome.initialize_states(group.group_id, epoch, tuple(missing))


def _start_of(topic_id: UUID, partition: int, states: StateTopics) -> int:
    begun = states.initializing.get(topic_id)
    if begun is not None and partition in begun.partitions:
        return begun.starts.get(partition, UNKNOWN_START)
    # A topic grows at its end: what is behind all that the group knows of it came later.
    known = states.everything.get(topic_id)
    return FIRST_START if known and partition > max(known) else UNKNOWN_START


def _begin_initializing(
    group: ShareGroup,
    wanted: list[NewState],
    names: Mapping[UUID, str],
    turn: GroupTurn,
) -> None:
    states = group.state_topics
    initializing = dict(states.initializing)
    for topic_id, new in _by_topic(wanted).items():
        known = initializing.get(topic_id, KeptTopic(names[topic_id], frozenset()))
        starts = {**known.starts, **{one.partition: one.start_offset for one in new}}
        initializing[topic_id] = KeptTopic(
            known.name,
            known.partitions.union(one.partition for one in new),
            {one: start for one, start in starts.items() if start != UNKNOWN_START},
        )
    begun = {one.topic_id for one in wanted}
    deleting = {one: name for one, name in states.deleting.items() if one not in begun}
    value = StateTopics(initializing, states.initialized, deleting)
    if value != states:
        turn.outcome.records.append(StateTopicsRecord(group.group_id, value))
    group.initializing_now.update((one.topic_id, one.partition) for one in wanted)


def _by_topic(wanted: list[NewState]) -> dict[UUID, list[NewState]]:
    found: dict[UUID, list[NewState]] = {}
    for one in wanted:
        found.setdefault(one.topic_id, []).append(one)
    return found


def states_initialized(group: ShareGroup, event: StatesInitialized, turn: GroupTurn) -> None:
    """Share coordinators have answered: some states are there, others are tried again later."""
    group.initializing_now.difference_update(event.asked)
    states = group.state_topics
    done = {
        topic_id: some
        for topic_id, partitions in partitions_of(event.done).items()
        if topic_id in states.initializing
        and (some := partitions & states.initializing[topic_id].partitions)
    }
    if done:
        initializing, initialized = dict(states.initializing), dict(states.initialized)
        for topic_id, partitions in done.items():
            _add_partitions(initialized, topic_id, states.initializing[topic_id].name, partitions)
            _remove_partitions(initializing, topic_id, partitions)
        value = StateTopics(initializing, initialized, states.deleting)
        turn.outcome.records += (
            StateTopicsRecord(group.group_id, value),
            group.next_epoch_record(group.metadata_hash),  # so that they are assigned
        )
    turn.answer(CodeAnswer())


# What administrators ask for


def alter_offsets(group: ShareGroup, event: AlterShareOffsets, turn: GroupTurn) -> None:
    """Begin partitions anew, at the offsets that are given, under a new epoch: whatever their
    leaders have in hand for the group is fenced.

    Where there is a state it stays the group's: if share coordinators cannot be asked, the group
    goes on as before (SHG-5).
    """
    if group.subscriptions:
        turn.answer(StateTopicsAnswer(error=ErrorCode.non_empty_group))
        return
    turn.outcome.records.append(group.next_epoch_record(group.metadata_hash))
    states = group.state_topics
    new = [one for one in event.states if not states.has_initialized(one.topic_id, one.partition)]
    _begin_initializing(group, new, event.names, turn)
    group.initializing_now.update((one.topic_id, one.partition) for one in event.states)
    turn.answer(StateTopicsAnswer(epoch=group.epoch + 1))


def delete_states(group: ShareGroup, event: DeleteStates, turn: GroupTurn) -> None:
    """Forget topics, or all of them (None)."""
    if group.subscriptions:
        turn.answer(StateTopicsAnswer(error=ErrorCode.non_empty_group))
        return
    states = group.state_topics
    everything = states.everything
    kept = everything.keys() | states.deleting.keys()
    wanted = kept if event.topic_ids is None else kept & event.topic_ids
    if not wanted:
        turn.answer(StateTopicsAnswer())
        return
    names = {**states.deleting, **{one: _name(states, one) for one in wanted & everything.keys()}}
    value = StateTopics(
        _without(states.initializing, wanted),
        _without(states.initialized, wanted),
        names,
    )
    group.deleting_now |= wanted
    turn.outcome.records += (
        StateTopicsRecord(group.group_id, value),
        group.next_epoch_record(group.metadata_hash),
    )
    partitions = {
        topic_id: everything.get(topic_id) or _all_partitions(topic_id, turn.image)
        for topic_id in wanted
    }
    turn.answer(StateTopicsAnswer(partitions=partitions, epoch=group.epoch + 1))


def _all_partitions(topic_id: UUID, image: MetadataImage) -> frozenset[int]:
    """Of a topic that was being deleted when the coordinator before went; only its id is logged."""
    topic = image.topics_by_id.get(topic_id)
    return frozenset() if topic is None else frozenset(range(len(topic.partitions)))


def states_deleted(group: ShareGroup, event: StatesDeleted, turn: GroupTurn) -> None:
    group.deleting_now -= event.asked
    states = group.state_topics
    left = {one: name for one, name in states.deleting.items() if one not in event.done}
    if len(left) < len(states.deleting):
        value = states._replace(deleting=left)
        turn.outcome.records.append(StateTopicsRecord(group.group_id, value))
    turn.answer(CodeAnswer())


def forget_topics(group: ShareGroup, image: MetadataImage, turn: GroupTurn) -> None:
    """Topics were deleted, and share coordinators have forgotten them by themselves. A topic that
    is only missing from the image may come back (DEL-1)."""
    states = group.state_topics
    gone = {
        topic_id
        for topic_id in (*states.everything, *states.deleting)
        if image.was_deleted(None, topic_id)
    }
    if gone:
        value = StateTopics(
            _without(states.initializing, gone),
            _without(states.initialized, gone),
            {one: name for one, name in states.deleting.items() if one not in gone},
        )
        turn.outcome.records.append(StateTopicsRecord(group.group_id, value))


def _name(states: StateTopics, topic_id: UUID) -> str:
    topic = states.initialized.get(topic_id) or states.initializing[topic_id]
    return topic.name


def _add_partitions(
    topics: dict[UUID, KeptTopic], topic_id: UUID, name: str, partitions: frozenset[int]
) -> None:
    known = topics.get(topic_id)
    topics[topic_id] = KeptTopic(name, partitions | (known.partitions if known else frozenset()))


def _remove_partitions(
    topics: dict[UUID, KeptTopic], topic_id: UUID, partitions: frozenset[int]
) -> None:
    known = topics.get(topic_id)
    if known is None:
        return
    rest = known.partitions - partitions
    if rest:
        starts = {one: start for one, start in known.starts.items() if one in rest}
        topics[topic_id] = KeptTopic(known.name, rest, starts)
    else:
        del topics[topic_id]


def _without(topics: Mapping[UUID, KeptTopic], gone: Iterable[UUID]) -> dict[UUID, KeptTopic]:
    left_out = set(gone)
    return {topic_id: topic for topic_id, topic in topics.items() if topic_id not in left_out}
