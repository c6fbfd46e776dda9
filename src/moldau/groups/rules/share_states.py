"""In which partitions share coordinators keep a state for a share group. A rule.

Before members get a partition, its state is initialized: that it is about to be is logged, then the
share coordinator is asked (an effect), and its word is logged (SHG-1). With the group, or when
somebody asks for it, states are deleted in the same three steps. What was under way when a
coordinator went, or could not be done, is asked for again with the next heartbeat, and begins where
it was to begin at first (SHG-5).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.errors import ErrorCode
from moldau.groups.rules.answers import CodeAnswer, StateTopicsAnswer
from moldau.groups.rules.assigned_partitions import partitions_of
from moldau.groups.rules.consumer_group_records import GroupEpoch
from moldau.groups.rules.events import (
    AlterShareOffsets,
    DeleteStates,
    NewState,
    StatesDeleted,
    StatesInitialized,
)
from moldau.groups.rules.outcome import GroupTurn
from moldau.groups.rules.share_group import ShareGroup
from moldau.groups.rules.share_group_records import (
    KeptTopic,
    ShareEpochRecord,
    StateTopics,
    StateTopicsRecord,
)
from moldau.groups.rules.wanted_topics import WantedTopics

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
    _begin(group, missing, names, turn)
    turn.outcome.initialize_states(group.group_id, epoch, tuple(missing))


def _start_of(topic_id: UUID, partition: int, states: StateTopics) -> int:
    begun = states.initializing.get(topic_id)
    if begun is not None and partition in begun.partitions:
        return begun.starts.get(partition, UNKNOWN_START)
    # A topic grows at its end: what is behind all that the group knows of it came later.
    known = states.everything.get(topic_id)
    return FIRST_START if known and partition > max(known) else UNKNOWN_START


def _begin(
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
            _add(initialized, topic_id, states.initializing[topic_id].name, partitions)
            _take(initializing, topic_id, partitions)
        value = StateTopics(initializing, initialized, states.deleting)
        turn.outcome.records += (
            StateTopicsRecord(group.group_id, value),
            next_epoch(group),  # so that they are assigned
        )
    turn.answer(CodeAnswer())


def next_epoch(group: ShareGroup) -> ShareEpochRecord:
    return ShareEpochRecord(group.group_id, GroupEpoch(group.epoch + 1, group.metadata_hash))


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
    turn.outcome.records.append(next_epoch(group))
    states = group.state_topics
    new = [one for one in event.states if not states.has_initialized(one.topic_id, one.partition)]
    _begin(group, new, event.names, turn)
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
    turn.outcome.records += (StateTopicsRecord(group.group_id, value), next_epoch(group))
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


def _add(
    topics: dict[UUID, KeptTopic], topic_id: UUID, name: str, partitions: frozenset[int]
) -> None:
    known = topics.get(topic_id)
    topics[topic_id] = KeptTopic(name, partitions | (known.partitions if known else frozenset()))


def _take(topics: dict[UUID, KeptTopic], topic_id: UUID, partitions: frozenset[int]) -> None:
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
