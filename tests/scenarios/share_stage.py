"""Plays stories about share groups (KIP-932): heartbeats in, epochs and assignments out.

The commands are those of `consumer_stage`, without instances, owned partitions and positions. The
state of a partition is kept by share coordinators. The stage shows what the group asks of them:

    initialized t-0 t-1         they have begun these states, and no other that they were asked for
    delete states               an administrator has all states deleted
    deleted t                   share coordinators have deleted the states of a topic
    delete group                DeleteGroups
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from consumer_stage import ConsumerStage
from group_stage import GROUP, names_of, parse_partition, topic_uuid

from moldau.coordinators.groups.rules.consumer_records import MemberAssignmentRecord
from moldau.coordinators.groups.rules.events import (
    DeleteGroup,
    DeleteStates,
    GroupAnswer,
    GroupEvent,
    ShareHeartbeat,
    StatesDeleted,
    StatesInitialized,
    StateTopicsAnswer,
)
from moldau.coordinators.groups.rules.outcome import InitializeStates
from moldau.coordinators.groups.rules.records import CoordinatorRecord
from moldau.coordinators.groups.rules.share_records import KeptTopic, StateTopicsRecord
from moldau.errors import ErrorCode


class ShareStage(ConsumerStage):
    """One story about a share group."""

    # Commands

    def _beat(self, name: str, epoch: int, options: dict[str, str]) -> GroupEvent:
        return ShareHeartbeat(
            group_id=GROUP,
            member_id=options.get("id", self._ids.get(name, f"{name}-1")),
            epoch=epoch,
            topics=frozenset(options["reads"].split(",")) if "reads" in options else None,
        )

    def _do_initialized(self, names: list[str], options: dict[str, str]) -> None:
        pairs = map(parse_partition, names)
        done = frozenset((topic_uuid(topic), number) for topic, number in pairs)
        asked = frozenset(self._states)
        self._states.clear()
        event = StatesInitialized(group_id=GROUP, asked=asked, done=done)
        self._request(event, "share coordinators")

    def _do_delete(self, names: list[str], options: dict[str, str]) -> None:
        if names == ["states"]:
            self._request(DeleteStates(group_id=GROUP), "admin")
        else:
            self._request(DeleteGroup(group_id=GROUP), "admin")

    def _do_deleted(self, names: list[str], options: dict[str, str]) -> None:
        topic_ids = frozenset(map(topic_uuid, names))
        event = StatesDeleted(group_id=GROUP, asked=topic_ids, done=topic_ids)
        self._request(event, "share coordinators")

    def _do_restart(self, names: list[str], options: dict[str, str]) -> None:
        self._states.clear()
        super()._do_restart(names, options)

    # Text

    def _describe_asked(self, effect: InitializeStates, partitions: str) -> str:
        starts = sorted({one.start_offset for one in effect.states})
        words = " and ".join("by option" if one < 0 else str(one) for one in starts)
        epoch = effect.state_epoch
        return f"share coordinators -> initialize {partitions} in epoch {epoch}, start {words}"

    def _tell(self, name: str, answer: GroupAnswer) -> None:
        if isinstance(answer, StateTopicsAnswer) and answer.error is ErrorCode.none:
            states = names_of(answer.partitions)
            self._lines.append(f"{name} <- delete {states} in state epoch {answer.epoch}")
        else:
            super()._tell(name, answer)

    def _describe(self, record: CoordinatorRecord) -> str | None:
        match record:
            case MemberAssignmentRecord(_, member_id, value) if value is not None:
                return f"{member_id} is in epoch {value.epoch} with {names_of(value.assigned)}"
            case StateTopicsRecord(_, value) if value is not None:
                deleting = " ".join(sorted(value.deleting.values()))
                parts = {
                    "initializing": _names(value.initializing),
                    "initialized": _names(value.initialized),
                    "deleting": deleting,
                }
                words = ", ".join(f"{what} {which}" for what, which in parts.items() if which)
                return f"states: {words or 'none'}"
            case StateTopicsRecord():
                return "states are gone"
            case _:
                return super()._describe(record)


def _names(topics: Mapping[UUID, KeptTopic]) -> str:
    kept = {topic_id: topic.partitions for topic_id, topic in topics.items()}
    return names_of(kept) if kept else ""
