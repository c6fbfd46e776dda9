"""Plays stories about groups: commands in, what the machine answers and logs out, as text.

The stage has the machine of one shard, a log (a list), timers and a clock; no socket, no file. A
story is about one group, `readers`. Members go by short names; the ids that the machine knows them
by are the name and a number: A-1, and A-2 after a restart of the same static member.

    join A [key=value ...]      session=10s rebalance=60s protocols=range,sticky instance=x
                                version=9 id=A-1 metadata=text type=consumer
    sync A [B=what ...]         with the assignments if it is the leader
                                generation=1 type=consumer protocol=range id=A-1
    heartbeat A [generation=1]
    leave A B                   leave instance=x for an administrator
    commit A t-0=5 ...          commit nobody t-0=5 for somebody who is no member
                                named=id by the topic's id, not its name
    fetch                       all positions
    forget t-0                  OffsetDelete
    delete group                DeleteGroups
    create topics t u           the topics are created
    drop topics t u             the topics are deleted
    delay metadata              the coordinator does not learn of topics from now on
    deliver metadata            it learns what has become of them, and of later changes at once
    disconnect A                the connection of its parked request closes
    wait 10s                    time passes; timers fire when they are due
    expire                      the broker looks for what is too old
    fail writes, allow writes   the log refuses records, or takes them
    restart                     another coordinator takes over: a new machine, fed from the log
    limit max_size=2            options of the broker; initial_delay= retention= metadata= interval=
    topics t=4                  what the cluster's metadata has
    beat A [reads=t,u]          ConsumerGroupHeartbeat (KIP-848): the first one joins
                                owns=t-0,t-1 (or owns=nothing) to say what it has
                                generation=1 (its epoch) leave=yes
    share A [reads=t,u]         ShareGroupHeartbeat (KIP-932): the first one joins
                                generation=1 leave=yes
    states [fail]               share coordinators have begun the states that they were asked for
    show                        the group as tools see it
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

from moldau.cluster.rules.metadata_image import (
    DeletedTopic,
    MetadataImage,
    PartitionState,
    TopicState,
)
from moldau.coordinators.groups.rules.assigned_partitions import (
    NO_PARTITIONS,
    AssignedPartitions,
    AssignmentEpochs,
    partitions_of,
)
from moldau.coordinators.groups.rules.classic_group import ClassicGroup
from moldau.coordinators.groups.rules.commits import find_offsets
from moldau.coordinators.groups.rules.consumer_group import ConsumerGroup
from moldau.coordinators.groups.rules.consumer_records import (
    MemberAssignment,
    MemberAssignmentRecord,
)
from moldau.coordinators.groups.rules.events import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    Abandon,
    AppendFailed,
    CodeAnswer,
    CommitOffsets,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    DeleteGroup,
    DeleteOffsets,
    DeleteTopics,
    ExpireOffsets,
    GroupAnswer,
    GroupEvent,
    GroupProtocol,
    GroupTimer,
    Heartbeat,
    Join,
    JoinAnswer,
    Leave,
    LeaveAnswer,
    LeavingMember,
    PartitionsAnswer,
    ShareHeartbeat,
    StatesInitialized,
    Sync,
    SyncAnswer,
    TimerFired,
    refusal_like,
)
from moldau.coordinators.groups.rules.groups import NO_REQUEST, Groups
from moldau.coordinators.groups.rules.invariants import check_group, check_timers
from moldau.coordinators.groups.rules.outcome import (
    Arm,
    Disarm,
    GroupLimits,
    InitializeStates,
    Outcome,
)
from moldau.coordinators.groups.rules.records import (
    CommittedOffset,
    CoordinatorRecord,
    GroupRecord,
    OffsetRecord,
)
from moldau.coordinators.groups.rules.share_group import ShareGroup
from moldau.errors import ErrorCode
from moldau.model import BrokerId, LeaderEpoch, TopicId

GROUP = "readers"
START_MS = 1_000_000
_BROKER = BrokerId(1)

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_NEWEST_VERSION = 9


def parse_ms(text: str) -> int:
    found = re.fullmatch(r"(\d+)(ms|s|m|h|d)", text)
    assert found is not None, f"{text!r} is no length of time"
    return int(found[1]) * _UNITS_MS[found[2]]


class Stage:
    """One story being played."""

    LOST: tuple[ErrorCode, ...] = (ErrorCode.unknown_member_id, ErrorCode.fenced_member_epoch)
    """Errors after which a member joins anew with its next heartbeat."""

    def __init__(self) -> None:
        self.limits = GroupLimits()
        self.groups = Groups(self.limits)
        self.log: list[CoordinatorRecord] = []
        self.now_ms = START_MS
        self.timers: dict[GroupTimer, int] = {}  # when they are due
        self._ids: dict[str, str] = {}  # of members, by their names
        self._made: dict[str, int] = {}  # how many ids a name has had
        self._requests = itertools.count(1)
        self._asked: dict[int, str] = {}  # who waits for which request
        self._answered: set[int] = set()
        self._joined: dict[str, dict[str, Any]] = {}  # what a member said when it joined last
        self._generations: dict[str, int] = {}
        self._topic_ids = itertools.count(1)
        self._store = MetadataImage(cluster_id="")  # the topics as they are
        self.image = self._store  # as the coordinator knows them
        self._is_delayed = False
        self._writes_fail = False
        self._states: set[tuple[UUID, int]] = set()  # that share coordinators are asked for
        self._shown = "gone"
        self._lines: list[str] = []

    def play(self, line: str) -> list[str]:
        """One command; what came of it."""
        self._lines = []
        command, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        names = [word for word in words if "=" not in word]
        getattr(self, f"_do_{command}")(names, options)
        self._show_change()
        group = self.groups.find(GROUP)
        if isinstance(group, ClassicGroup):
            assert not group.is_vacant
            check_group(group)
            check_timers(group, self.timers)
        return self._lines

    # Commands

    def _do_join(self, names: list[str], options: dict[str, str]) -> None:
        (name,) = names
        said = {**self._joined.get(name, {}), **options}
        said.pop("id", None)
        self._joined[name] = said
        version = int(said.get("version", _NEWEST_VERSION))
        member_id = options.get("id", self._ids.get(name, ""))
        session_ms = parse_ms(said.get("session", "10s"))
        event = Join(
            group_id=GROUP,
            member_id="" if member_id == "none" else member_id,
            instance_id=said.get("instance"),
            new_member_id=f"{name}-{self._made.get(name, 0) + 1}",
            client_id=name,
            client_host="/127.0.0.1",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=parse_ms(said["rebalance"]) if "rebalance" in said else 60_000,
            protocol_type=said.get("type", "consumer"),
            protocols=tuple(
                GroupProtocol(one, _metadata(said.get("metadata", "")))
                for one in said.get("protocols", "range").split(",")
            ),
            needs_member_id=version >= 4,
            can_skip_assignment=version >= 9,
        )
        self._request(event, name)

    def _do_sync(self, names: list[str], options: dict[str, str]) -> None:
        (name,) = names
        event = Sync(
            group_id=GROUP,
            generation=self._generation_of(name, options),
            member_id=options.pop("id", self._ids.get(name, "")),
            instance_id=self._joined.get(name, {}).get("instance"),
            protocol_type=options.pop("type", None),
            protocol=options.pop("protocol", None),
            assignments=tuple(
                (self._ids.get(other, other), what.encode()) for other, what in options.items()
            ),
        )
        self._request(event, name)

    def _do_heartbeat(self, names: list[str], options: dict[str, str]) -> None:
        (name,) = names
        event = Heartbeat(
            group_id=GROUP,
            generation=self._generation_of(name, options),
            member_id=options.get("id", self._ids.get(name, "")),
            instance_id=self._joined.get(name, {}).get("instance"),
        )
        self._request(event, name)

    def _do_leave(self, names: list[str], options: dict[str, str]) -> None:
        members = [LeavingMember(self._ids.get(name, name)) for name in names]
        if "instance" in options:
            members.append(LeavingMember("", options["instance"]))
        self._request(Leave(group_id=GROUP, members=tuple(members)), names[0] if names else "admin")

    def _do_commit(self, names: list[str], options: dict[str, str]) -> None:
        (name,) = names
        is_member = name != "nobody"
        metadata = options.pop("metadata", "")
        keep_ms = options.pop("keep", None)
        generation = self._generation_of(name, options) if is_member else -1
        member_id = options.pop("id", self._ids.get(name, "") if is_member else "")
        expire_ms = -1 if keep_ms is None else self.now_ms + parse_ms(keep_ms)
        times = self.now_ms, expire_ms
        names_id = options.pop("named", "name") == "id"
        event = CommitOffsets(
            group_id=GROUP,
            generation=generation,
            member_id=member_id,
            instance_id=self._joined.get(name, {}).get("instance"),
            offsets=tuple(
                (
                    topic,
                    number,
                    CommittedOffset(int(at), -1, metadata, *times, self._id_of(topic), names_id),
                )
                for where, at in options.items()
                for topic, number in (parse_partition(where),)
            ),
            knows_epochs=True,
        )
        self._request(event, name)

    def _do_topics(self, names: list[str], options: dict[str, str]) -> None:
        state = PartitionState(leader=_BROKER, leader_epoch=LeaderEpoch(0), isr=(), replicas=())
        self._store = self._store.with_topics(
            TopicState(
                name=name, topic_id=TopicId(topic_uuid(name)), partitions=(state,) * int(count)
            )
            for name, count in options.items()
        )
        self._deliver()

    def _do_beat(self, names: list[str], options: dict[str, str]) -> None:
        (name,) = names
        is_new = name not in self._ids
        member_id = self._ids.setdefault(name, f"{name}-1")
        epoch = self._generation_of(name, options)
        owned = options.get("owns", "nothing" if is_new else None)
        event = ConsumerHeartbeat(
            group_id=GROUP,
            member_id=member_id,
            epoch=LEAVING_EPOCH if "leave" in options else epoch,
            topics=frozenset(options["reads"].split(",")) if "reads" in options else None,
            rebalance_timeout_ms=60_000 if is_new else -1,
            owned=None if owned is None else owned_partitions(owned),
        )
        self._request(event, name)

    def _do_share(self, names: list[str], options: dict[str, str]) -> None:
        (name,) = names
        is_new = name not in self._ids
        member_id = self._ids.setdefault(name, f"{name}-1")
        epoch = LEAVING_EPOCH if "leave" in options else self._generation_of(name, options)
        event = ShareHeartbeat(
            group_id=GROUP,
            member_id=member_id,
            epoch=JOINING_EPOCH if is_new else epoch,
            client_id=name,
            topics=frozenset(options["reads"].split(",")) if "reads" in options else None,
        )
        self._request(event, name)
        if "leave" in options:
            del self._ids[name]

    def _do_states(self, names: list[str], options: dict[str, str]) -> None:
        asked, self._states = frozenset(self._states), set()
        done: frozenset[tuple[UUID, int]] = frozenset() if "fail" in names else asked
        self._happen(StatesInitialized(group_id=GROUP, asked=asked, done=done))

    def _do_fetch(self, names: list[str], options: dict[str, str]) -> None:
        found = find_offsets(
            self.groups.find(GROUP), None, None, require_stable=False, image=self.image
        )
        rows = [
            f"{topic}-{number} at {one.offset}"
            for topic, offsets in sorted(found.items())
            for number, one in sorted(offsets.items())
            if isinstance(one, CommittedOffset)
        ]
        self._lines += rows or ["nothing is committed"]

    def _do_forget(self, names: list[str], options: dict[str, str]) -> None:
        partitions = tuple(parse_partition(name) for name in names)
        self._request(DeleteOffsets(group_id=GROUP, partitions=partitions), "admin")

    def _do_delete(self, names: list[str], options: dict[str, str]) -> None:
        self._request(DeleteGroup(group_id=GROUP), "admin")

    def _do_drop(self, names: list[str], options: dict[str, str]) -> None:
        gone = {
            self._id_of(name, self._store) or self._new_id(): DeletedTopic(name, self.now_ms)
            for name in names[1:]
        }
        self._store = self._store.with_topics((), removed=names[1:], deleted=gone)
        self._deliver()

    def _do_create(self, names: list[str], options: dict[str, str]) -> None:
        made = [
            TopicState(name=name, topic_id=self._new_id(), partitions=(), created_ms=self.now_ms)
            for name in names[1:]
        ]
        self._store = self._store.with_topics(made)
        self._deliver()

    def _do_delay(self, names: list[str], options: dict[str, str]) -> None:
        self._is_delayed = True

    def _do_deliver(self, names: list[str], options: dict[str, str]) -> None:
        self._is_delayed = False
        self._deliver()

    def _deliver(self) -> None:
        if self._is_delayed:
            return
        new = self._store.deleted.keys() - self.image.deleted.keys()
        deleted = frozenset(self._store.deleted[topic_id].name for topic_id in new)
        self.image = self._store
        if deleted:
            self._happen(DeleteTopics(group_id=GROUP, topics=deleted))

    def _id_of(self, topic: str, image: MetadataImage | None = None) -> TopicId | None:
        found = (image or self.image).topics.get(topic)
        return None if found is None else found.topic_id

    def _new_id(self) -> TopicId:
        return TopicId(UUID(int=next(self._topic_ids)))

    def _do_disconnect(self, names: list[str], options: dict[str, str]) -> None:
        (name,) = names
        request = next(number for number, who in self._asked.items() if who == name)
        del self._asked[request]
        self._happen(Abandon(group_id=GROUP, request=request))

    def _do_wait(self, names: list[str], options: dict[str, str]) -> None:
        start_ms = self.now_ms
        end_ms = start_ms + parse_ms(names[0])
        while self.timers:
            timer, due_ms = min(self.timers.items(), key=lambda one: (one[1], one[0].member_id))
            if due_ms > end_ms:
                break
            self.now_ms = due_ms
            del self.timers[timer]
            before = len(self._lines)
            self._happen(TimerFired(timer=timer))
            if len(self._lines) > before:
                whose = timer.member_id or "all"
                passed = f"after {(due_ms - start_ms) / 1000:g}s"
                self._lines.insert(before, f"{passed}: {timer.kind.value} of {whose}")
        self.now_ms = end_ms

    def _do_expire(self, names: list[str], options: dict[str, str]) -> None:
        self._happen(ExpireOffsets(group_id=GROUP))

    def _do_fail(self, names: list[str], options: dict[str, str]) -> None:
        self._writes_fail = True

    def _do_allow(self, names: list[str], options: dict[str, str]) -> None:
        self._writes_fail = False

    def _do_restart(self, names: list[str], options: dict[str, str]) -> None:
        """What was parked is gone: the connections closed with the broker."""
        self._asked.clear()
        self.timers.clear()
        self.groups = Groups(self.limits)
        for record in self.log:
            self.groups.apply(record)
        self._perform(self.groups.start_timers(self.image), NO_REQUEST)
        self._happen(DeleteTopics(group_id=GROUP))

    def _do_limit(self, names: list[str], options: dict[str, str]) -> None:
        fields: dict[str, tuple[str, Callable[[str], int]]] = {
            "max_size": ("max_size", int),
            "initial_delay": ("initial_rebalance_delay_ms", parse_ms),
            "retention": ("offsets_retention_ms", parse_ms),
            "metadata": ("offset_metadata_max_bytes", int),
            "interval": ("consumer_assignment_interval_ms", parse_ms),
        }
        changes = {fields[key][0]: fields[key][1](value) for key, value in options.items()}
        self.limits = replace(self.limits, **changes)
        self.groups.limits = self.limits

    def _do_show(self, names: list[str], options: dict[str, str]) -> None:
        group = self.groups.find(GROUP)
        found = group.describe() if isinstance(group, ClassicGroup) else None
        if found is None:
            self._lines.append("there is no such group")
            return
        self._lines.append(f"{found.state.value} {found.protocol_type} {found.protocol}".rstrip())
        for member in found.members:
            what = member.assignment.decode() or "nothing"
            self._lines.append(f"  {member.member_id} has {what}")

    # The machine

    def _request(self, event: GroupEvent, name: str) -> None:
        request = next(self._requests)
        self._asked[request] = name
        outcome = self.groups.handle(event, self.now_ms, request, self.image)
        self._perform(outcome, request)
        if request in self._asked:
            self._lines.append(f"{name} waits")

    def _happen(self, event: GroupEvent) -> None:
        outcome = self.groups.handle(event, self.now_ms, image=self.image)
        self._perform(outcome, NO_REQUEST)

    def _perform(self, outcome: Outcome, own_request: int) -> None:
        """What a shard does, without its log, loop and connections."""
        failed = bool(outcome.records) and self._writes_fail
        for record in () if failed else outcome.records:
            self.log.append(record)
            words = self._describe(record)
            if words is not None:
                self._lines.append(f"log: {words}")
            self.groups.apply(record)
        if failed:
            self._lines.append("the log refuses the write")
        for effect in outcome.effects:
            if isinstance(effect, Arm):
                self.timers[effect.timer] = self.now_ms + effect.delay_ms
            elif isinstance(effect, Disarm):
                self.timers.pop(effect.timer, None)
            elif isinstance(effect, InitializeStates) and not failed:
                asked = {(one.topic_id, one.partition) for one in effect.states}
                self._states |= asked
                self._lines.append(self._describe_asked(effect, names_of(partitions_of(asked))))
        for request, answer in outcome.replies:
            if request == NO_REQUEST:
                continue
            assert request not in self._answered, "a request was answered twice"
            self._answered.add(request)
            name = self._asked.pop(request, None)
            if name is not None:
                error = ErrorCode.coordinator_not_available
                self._tell(name, refusal_like(answer, error) if failed else answer)
        if failed and outcome.must_be_logged:
            self._happen(AppendFailed(group_id=GROUP))

    # Text

    def _tell(self, name: str, answer: GroupAnswer) -> None:
        if isinstance(answer, JoinAnswer):
            self._learn(name, answer)
        if isinstance(answer, ConsumerHeartbeatAnswer) and answer.error is ErrorCode.none:
            self._generations[name] = answer.epoch
        if isinstance(answer, ConsumerHeartbeatAnswer) and answer.error in self.LOST:
            self._ids.pop(name, None)
            self._generations.pop(name, None)
        self._lines.append(f"{name} <- {_words(answer)}")

    def _learn(self, name: str, answer: JoinAnswer) -> None:
        """What a client remembers of the answer to its join."""
        if answer.member_id.startswith(f"{name}-"):
            self._made[name] = int(answer.member_id.rsplit("-", 1)[1])
        if answer.error in (ErrorCode.none, ErrorCode.member_id_required):
            self._ids[name] = answer.member_id
        if answer.error is ErrorCode.unknown_member_id:
            self._ids.pop(name, None)
        if answer.error is ErrorCode.none:
            self._generations[name] = answer.generation

    def _generation_of(self, name: str, options: dict[str, str]) -> int:
        return int(options.pop("generation", self._generations.get(name, 0)))

    def _describe(self, record: CoordinatorRecord) -> str | None:
        """A record in words; None if these stories do not show it."""
        if isinstance(record, MemberAssignmentRecord):
            return f"{record.member_id} {_assignment_words(record.value)}"
        if isinstance(record, OffsetRecord):
            at = "is forgotten" if record.committed is None else f"at {record.committed.offset}"
            return f"{record.topic}-{record.partition} {at}"
        if not isinstance(record, GroupRecord):
            return None
        metadata = record.metadata
        if metadata is None:
            return "the group is gone"
        if not metadata.members:
            return f"generation {metadata.generation}, empty"
        parts = [f"{one.member_id}: {one.assignment.decode() or '-'}" for one in metadata.members]
        return f"generation {metadata.generation} by {metadata.protocol}, {', '.join(parts)}"

    def _describe_asked(self, effect: InitializeStates, partitions: str) -> str:
        return f"share coordinators are asked for {partitions}"

    def _show_change(self) -> None:
        """Where the group is now, when that has changed."""
        group = self.groups.find(GROUP)
        shown = "gone"
        if isinstance(group, ConsumerGroup):
            members = " ".join(group.subscriptions) or "nobody"
            target = f"{group.target_epoch} of {group.epoch}"
            shown = f"{group.state.value}, assigned for epoch {target}: {members}"
        elif isinstance(group, ShareGroup):
            members = " ".join(group.subscriptions) or "nobody"
            target = f"{group.target_epoch} of {group.epoch}"
            shown = f"share group, {group.state.value}, assigned for epoch {target}: {members}"
        elif isinstance(group, ClassicGroup):
            members = " ".join(
                f"{one.member_id}{'*' if one.member_id == group.leader else ''}"
                for one in group.members
            )
            waiting = "".join(f" ({name} expected)" for name in sorted(group.pending))
            shown = f"{group.state.value} {group.generation}: {members or 'nobody'}{waiting}"
        if shown != self._shown:
            self._shown = shown
            self._lines.append(f"[{shown}]")


def parse_partition(text: str) -> tuple[str, int]:
    topic, number = text.rsplit("-", 1)
    return topic, int(number)


def topic_uuid(topic: str) -> UUID:
    return UUID(bytes=topic.encode().rjust(16, b"\0"))


def owned_partitions(text: str) -> AssignedPartitions:
    if text == "nothing":
        return NO_PARTITIONS
    pairs = map(parse_partition, text.split(","))
    return partitions_of((topic_uuid(topic), number) for topic, number in pairs)


def names_of(partitions: AssignedPartitions, epochs: AssignmentEpochs | None = None) -> str:
    """With the epochs in which they were assigned, if those are given."""
    names = sorted(
        f"{topic_id.bytes.lstrip(bytes(1)).decode()}-{number}"
        + ("" if epochs is None else f"@{epochs[topic_id][number]}")
        for topic_id, numbers in partitions.items()
        for number in numbers
    )
    return " ".join(names) or "nothing"


def _assignment_words(value: MemberAssignment | None) -> str:
    if value is None:
        return "is gone"
    epochs = value.assignment_epochs or None  # members of share groups have none
    words = f"is in epoch {value.epoch} with {names_of(value.assigned, epochs)}"
    if value.revoking:
        words += f", and has to revoke {names_of(value.revoking, value.assignment_epochs)}"
    return words


def _metadata(text: str) -> bytes:
    """A backslash and a digit stand for that byte."""
    return re.sub(rb"\\(\d)", lambda found: bytes([int(found[1])]), text.encode())


def _words(answer: GroupAnswer) -> str:
    error = answer.error.name.upper()
    match answer:
        case JoinAnswer(error=ErrorCode.member_id_required):
            return f"{error}, its id is {answer.member_id}"
        case JoinAnswer(error=ErrorCode.none):
            text = f"joined generation {answer.generation} by {answer.protocol}"
            if answer.leader == answer.member_id:
                names = " ".join(one.member_id for one in answer.members)
                text += f" as the leader of {names}"
            if answer.skip_assignment:
                text += ", need not assign"
            return text
        case SyncAnswer(error=ErrorCode.none):
            return f"is assigned {answer.assignment.decode() or 'nothing'}"
        case ConsumerHeartbeatAnswer(error=ErrorCode.none):
            told = "" if answer.assigned is None else f", is assigned {names_of(answer.assigned)}"
            return f"epoch {answer.epoch}{told}"
        case CodeAnswer(error=ErrorCode.none):
            return "fine"
        case LeaveAnswer(error=ErrorCode.none):
            parts = [one.error.name.upper().replace("NONE", "left") for one in answer.members]
            return ", ".join(parts)
        case PartitionsAnswer(error=ErrorCode.none):
            parts = [one.name.upper().replace("NONE", "done") for one in answer.errors]
            return ", ".join(parts)
        case _:
            return error
