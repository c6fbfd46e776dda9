"""One group: what the log says of it, who is in it now, and how a rebalance runs.

`stored`, `offsets` and `pending_offsets` are hard state: only records that were logged change them.
Everything else is soft. While a rebalance runs, `generation`, `protocol`, `leader` and `members`
are ahead of `stored`; a coordinator that takes over then finds the generation before, and the
members join again. What a request may do in which state is for `joining` and `membership`; the
states are a table here (`MOVES`, `LOGGED_MOVES`).

The model is Kafka's `ClassicGroup` and the classic half of its `GroupMetadataManager`. Differences:

- Kafka does not see that the client of a parked request has gone, and so drops newcomers that wait
  for more than five minutes. Here a closed connection starts the member's session time-out, and a
  member whose connection stands is never dropped while it waits.
- A member that has gone while its join was parked is not made leader when there is another.
- A parked request that the same member has repeated, or whose member was removed, is answered;
  Kafka forgets some of these.

A rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from moldau.coordinators.groups.rules.events import (
    GroupProtocol,
    GroupTimer,
    GroupTimerKind,
    JoinAnswer,
    JoinedMember,
    ListedGroup,
    SyncAnswer,
)
from moldau.coordinators.groups.rules.offsets import (
    CONSUMER_PROTOCOL_TYPE,
    OffsetTable,
    PendingOffsets,
    WithOffsets,
    find_subscribed_topics,
)
from moldau.coordinators.groups.rules.outcome import GroupTurn, Outcome
from moldau.coordinators.groups.rules.records import GroupMetadata, GroupRecord, StoredMember
from moldau.errors import ErrorCode, InvariantViolation


class ClassicGroupState(Enum):
    """Where a group is; the value is Kafka's word for it."""

    EMPTY = "Empty"
    """Nobody is in; offsets may be there.

    Answers: JoinGroup begins a rebalance; commits without a member are taken; every request of a
    member is UNKNOWN_MEMBER_ID.
    Moves: to PREPARING_REBALANCE with the first member; to DEAD when it is deleted or its last
    offset expires.
    """

    PREPARING_REBALANCE = "PreparingRebalance"
    """Waits until every member has asked to join again, as long as the slowest one may take.

    Answers: JoinGroup waits; SyncGroup and heartbeats are REBALANCE_IN_PROGRESS; commits of the
    generation that is ending are taken.
    Moves: to COMPLETING_REBALANCE when all have joined or the time is over; by a record to EMPTY
    when nobody is left.
    """

    COMPLETING_REBALANCE = "CompletingRebalance"
    """Everyone knows the new generation; the leader's assignment is awaited.

    Answers: SyncGroup waits, the leader's ends the waiting; heartbeats are answered; commits are
    REBALANCE_IN_PROGRESS; JoinGroup with nothing new is told the generation again.
    Moves: by a record to STABLE; back to PREPARING_REBALANCE when a member comes, goes or changes.
    """

    STABLE = "Stable"
    """Every member has its assignment.

    Answers: SyncGroup with the assignment; heartbeats; commits of this generation.
    Moves: to PREPARING_REBALANCE when a member comes, goes or changes, or the leader joins again.
    """

    DEAD = "Dead"
    """Deleted. Nothing of it is left, so nothing is answered; it is what tools see of a group that
    is not there."""


MOVES: Final[dict[ClassicGroupState, frozenset[ClassicGroupState]]] = {
    ClassicGroupState.EMPTY: frozenset({ClassicGroupState.PREPARING_REBALANCE}),
    ClassicGroupState.PREPARING_REBALANCE: frozenset({ClassicGroupState.COMPLETING_REBALANCE}),
    ClassicGroupState.COMPLETING_REBALANCE: frozenset({ClassicGroupState.PREPARING_REBALANCE}),
    ClassicGroupState.STABLE: frozenset({ClassicGroupState.PREPARING_REBALANCE}),
    ClassicGroupState.DEAD: frozenset(),
}
"""By a request or a timer."""

LOGGED_MOVES: Final[dict[ClassicGroupState, frozenset[ClassicGroupState]]] = {
    ClassicGroupState.EMPTY: frozenset({ClassicGroupState.DEAD}),
    ClassicGroupState.PREPARING_REBALANCE: frozenset({ClassicGroupState.EMPTY}),
    ClassicGroupState.COMPLETING_REBALANCE: frozenset({ClassicGroupState.STABLE}),
    ClassicGroupState.STABLE: frozenset({ClassicGroupState.STABLE}),
    ClassicGroupState.DEAD: frozenset(),
}
"""By a record, while the group is served. Loading starts from nothing and follows the log; there
the rebalance between two records is not seen."""


def check_move(group_id: str, former: ClassicGroupState, new: ClassicGroupState) -> None:
    if new not in MOVES[former]:
        raise InvariantViolation(f"group {group_id!r} cannot move from {former} to {new}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedMember:
    """A member as DescribeGroups shows it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    """A group as DescribeGroups shows it. One that is not there is DEAD."""

    group_id: str
    state: ClassicGroupState = ClassicGroupState.DEAD
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedMember, ...] = ()


class ClassicGroup(WithOffsets):
    """A group. Invariants GRP-1 to GRP-6 hold between two events."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        # Hard
        self.stored: GroupMetadata | None = None  # None: nobody was ever in a generation
        self.offsets = OffsetTable()
        self.pending_offsets = PendingOffsets()
        # Soft
        self.state = ClassicGroupState.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol: str | None = None
        self.leader: str | None = None  # a member whenever there is one
        self.members = Members()
        self.pending: set[str] = set()  # were told their id and have not joined with it yet
        self.unsynced: set[str] = set()  # members that have not fetched their assignment yet
        self.subscribed_topics: frozenset[str] | None = None  # None: not known
        self.is_first_rebalance = False  # of a group that was empty: it waits for company
        self.has_grown = False  # a member came during that wait
        self.wait_left_ms = 0  # how often that wait may still be prolonged

    def __repr__(self) -> str:
        return f"Group({self.group_id!r}, {self.state.value}, generation {self.generation})"

    # Hard state

    def apply(self, metadata: GroupMetadata) -> None:
        """Be the generation that was logged."""
        self.stored = metadata
        self.generation = metadata.generation
        self.protocol_type = metadata.protocol_type
        self.protocol = metadata.protocol
        self.leader = metadata.leader
        self.members.become(metadata.members, metadata.protocol)
        self.unsynced &= {member.member_id for member in self.members}
        self.subscribed_topics = find_subscribed_topics(
            self.protocol_type, (member.subscription for member in metadata.members)
        )
        self.state = ClassicGroupState.STABLE if metadata.members else ClassicGroupState.EMPTY

    def end(self) -> None:
        self.state = ClassicGroupState.DEAD

    @property
    def member_count(self) -> int:
        return len(self.members)

    @property
    def is_vacant(self) -> bool:
        """Nothing would be lost with it."""
        return (
            self.stored is None
            and not self.offsets
            and not self.pending_offsets
            and not self.pending
            and self.state is ClassicGroupState.EMPTY
        )

    def is_subscribed_to(self, topic: str) -> bool:
        """What is not known counts as subscribed, for groups of consumers."""
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self.subscribed_topics

    # A rebalance

    @property
    def all_have_joined(self) -> bool:
        return not self.pending and self.members.joined_count == len(self.members)

    def rebalance(self, reason: str, turn: GroupTurn) -> None:
        """Have everyone join again; if that is already going on, see whether it is over."""
        if self.state is ClassicGroupState.PREPARING_REBALANCE:
            if not self.is_first_rebalance and self.all_have_joined:
                self._complete_join(turn)
            return
        outcome = turn.outcome
        outcome.log(
            self.group_id,
            f"preparing to rebalance from generation {self.generation}: {reason}",
            is_rebalance=True,
        )
        if self.state is ClassicGroupState.COMPLETING_REBALANCE:
            self._refuse_syncs(ErrorCode.rebalance_in_progress, outcome)
        outcome.disarm(self._timer(GroupTimerKind.SYNC))
        self.unsynced.clear()
        self.is_first_rebalance = self.state is ClassicGroupState.EMPTY
        self._move(ClassicGroupState.PREPARING_REBALANCE)
        if self.is_first_rebalance:
            self._await_company(turn)
        elif self.all_have_joined:
            self._complete_join(turn)
        else:
            outcome.arm(self._timer(GroupTimerKind.JOIN), self.members.rebalance_timeout_ms)

    def _await_company(self, turn: GroupTurn) -> None:
        delay_ms = turn.limits.initial_rebalance_delay_ms
        if not delay_ms:
            self._complete_join(turn)
            return
        self.has_grown = False
        self.wait_left_ms = max(self.members.rebalance_timeout_ms - delay_ms, 0)
        turn.outcome.arm(self._timer(GroupTimerKind.JOIN), delay_ms)

    def join_time_is_over(self, turn: GroupTurn) -> None:
        if self.state is not ClassicGroupState.PREPARING_REBALANCE:
            return
        if self.is_first_rebalance and self.has_grown and self.wait_left_ms:
            delay_ms = min(turn.limits.initial_rebalance_delay_ms, self.wait_left_ms)
            self.has_grown = False
            self.wait_left_ms -= delay_ms
            turn.outcome.arm(self._timer(GroupTimerKind.JOIN), delay_ms)
            return
        self._complete_join(turn)

    def _complete_join(self, turn: GroupTurn) -> None:
        """Go on with those who have joined. Static members that have not come back are kept."""
        outcome = turn.outcome
        outcome.disarm(self._timer(GroupTimerKind.JOIN))
        for member in self.members:
            if not member.has_joined and member.instance_id is None:
                outcome.log(self.group_id, f"{member.member_id} has not joined again in time")
                self.remove_member(member, outcome)
        if not self.members:
            outcome.records.append(self._next_empty_generation(turn.now_ms))
        elif self._elect_leader():
            self._begin_generation(outcome)
        else:
            outcome.arm(self._timer(GroupTimerKind.JOIN), self.members.rebalance_timeout_ms)

    def _begin_generation(self, outcome: Outcome) -> None:
        self.generation += 1
        self.protocol = self.members.select_protocol()
        self.subscribed_topics = find_subscribed_topics(
            self.protocol_type, self.members.subscriptions(self.protocol)
        )
        self._move(ClassicGroupState.COMPLETING_REBALANCE)
        for member in self.members:
            self.unsynced.add(member.member_id)
            self.answer_join(member, self.describe_generation(member), outcome)
            self.await_sign_of_life(member, outcome)
        outcome.arm(self._timer(GroupTimerKind.SYNC), self.members.rebalance_timeout_ms)

    def _next_empty_generation(self, now_ms: int) -> GroupRecord:
        metadata = GroupMetadata(
            protocol_type=self.protocol_type,
            generation=self.generation + 1,
            protocol=None,
            leader=None,
            state_timestamp_ms=now_ms,
            members=(),
        )
        return GroupRecord(self.group_id, metadata)

    def _elect_leader(self) -> bool:
        """The leader stays if it has joined; False when nobody has."""
        joined = [member for member in self.members if member.has_joined]
        present = [member for member in joined if not member.is_abandoned] or joined
        if not present:
            return False
        if self.leader not in {member.member_id for member in present}:
            self.leader = present[0].member_id
        return True

    def assign(self, assignments: Mapping[str, bytes], turn: GroupTurn) -> None:
        """The leader has spoken: log the generation, and answer those who wait for it."""
        turn.outcome.records.append(self.generation_record(assignments, turn.now_ms))
        for member in self.members:
            assignment = assignments.get(member.member_id, b"")
            self.answer_sync(member, self.describe_assignment(assignment), turn.outcome)

    def generation_record(self, assignments: Mapping[str, bytes], now_ms: int) -> GroupRecord:
        protocol = self.protocol or ""
        metadata = GroupMetadata(
            protocol_type=self.protocol_type,
            generation=self.generation,
            protocol=protocol,
            leader=self.leader,
            state_timestamp_ms=now_ms,
            members=tuple(
                member.to_store(protocol, assignments.get(member.member_id, b""))
                for member in self.members
            ),
        )
        return GroupRecord(self.group_id, metadata)

    def start_over(self, turn: GroupTurn) -> None:
        """What was to be logged is not: whoever is in has to join again."""
        if self.members:
            if self.state is ClassicGroupState.PREPARING_REBALANCE:
                # The group was about to be one of the other kind, which has no such wait (GRP-7).
                # All have been told to join again: nobody waits for others beyond those any more.
                self.is_first_rebalance = False
                turn.outcome.arm(
                    self._timer(GroupTimerKind.JOIN), self.members.rebalance_timeout_ms
                )
            self.rebalance("the log could not be written", turn)
        else:
            self.state = (
                ClassicGroupState.EMPTY
            )  # the log's last members are unknown, and will expire

    # Members

    def find_member_fault(self, member_id: str, instance_id: str | None) -> ErrorCode | None:
        """What is wrong with somebody who says that it is this member."""
        if instance_id is not None:
            known = self.members.find_static(instance_id)
            if known is None:
                return ErrorCode.unknown_member_id
            if known.member_id != member_id:
                return ErrorCode.fenced_instance_id
        return None if member_id in self.members else ErrorCode.unknown_member_id

    def remove_member(self, member: Member, outcome: Outcome) -> None:
        """Take a member out; what to do about the others is for the caller."""
        gone = ErrorCode.unknown_member_id
        self.answer_join(member, JoinAnswer(error=gone), outcome)
        self.answer_sync(member, SyncAnswer(error=gone), outcome)
        outcome.disarm(self.session_timer(member.member_id))
        self.members.remove(member.member_id)
        if self.leader == member.member_id:
            self.leader = next((one.member_id for one in self.members), None)

    def answer_join(self, member: Member, answer: JoinAnswer, outcome: Outcome) -> None:
        """Answer its parked join, if there is one."""
        if member.join_request is not None:
            outcome.reply(member.join_request, answer)
            member.join_request = None
            member.is_abandoned = False

    def answer_sync(self, member: Member, answer: SyncAnswer, outcome: Outcome) -> None:
        """Answer its parked sync, if there is one; its session begins anew with that."""
        if member.sync_request is not None:
            outcome.reply(member.sync_request, answer)
            member.sync_request = None
            member.is_abandoned = False
            self.await_sign_of_life(member, outcome)

    def _refuse_syncs(self, error: ErrorCode, outcome: Outcome) -> None:
        for member in self.members:
            member.assignment = b""
            self.answer_sync(member, SyncAnswer(error=error), outcome)

    def await_sign_of_life(self, member: Member, outcome: Outcome) -> None:
        outcome.arm(self.session_timer(member.member_id), member.session_timeout_ms)

    def session_timer(self, member_id: str) -> GroupTimer:
        return GroupTimer(GroupTimerKind.SESSION, self.group_id, member_id)

    def _timer(self, kind: GroupTimerKind) -> GroupTimer:
        return GroupTimer(kind, self.group_id)

    def sync_is_over(self, outcome: Outcome) -> None:
        outcome.disarm(self._timer(GroupTimerKind.SYNC))

    def _move(self, state: ClassicGroupState) -> None:
        check_move(self.group_id, self.state, state)
        self.state = state

    # Descriptions

    def describe_generation(self, member: Member) -> JoinAnswer:
        """What a member that has joined is told; the leader is told of all members."""
        return JoinAnswer(
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.leader or "",
            member_id=member.member_id,
            members=self.joined_members() if member.member_id == self.leader else (),
        )

    def joined_members(self) -> tuple[JoinedMember, ...]:
        protocol = self.protocol or ""
        return tuple(
            JoinedMember(one.member_id, one.instance_id, one.metadata_for(protocol))
            for one in self.members
        )

    def describe_assignment(self, assignment: bytes) -> SyncAnswer:
        return SyncAnswer(
            protocol_type=self.protocol_type, protocol=self.protocol, assignment=assignment
        )

    def describe(self) -> DescribedGroup:
        """What members said is shown while the group is stable; otherwise only who is in."""
        protocol = self.protocol if self.state is ClassicGroupState.STABLE else None
        return DescribedGroup(
            group_id=self.group_id,
            state=self.state,
            protocol_type=self.protocol_type,
            protocol=protocol or "",
            members=tuple(
                DescribedMember(
                    member_id=member.member_id,
                    instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    metadata=b"" if protocol is None else member.metadata_for(protocol),
                    assignment=member.assignment,
                )
                for member in self.members
            ),
        )

    def listed(self) -> ListedGroup:
        return ListedGroup(self.group_id, self.protocol_type, self.state)


class Member:
    """One member. At most one of `join_request` and `sync_request` is set."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_abandoned",
        "join_request",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_request",
    )

    def __init__(
        self,
        *,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocols: tuple[GroupProtocol, ...],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocols = protocols  # in the order of the member's preference
        self.assignment = assignment
        self.join_request: int | None = None  # parked until all have joined
        self.sync_request: int | None = None  # parked until the leader has assigned
        self.is_abandoned = False  # the connection of its parked request has closed

    def __repr__(self) -> str:
        return f"Member({self.member_id!r})"

    @property
    def has_joined(self) -> bool:
        return self.join_request is not None

    @property
    def is_waiting(self) -> bool:
        """It cannot send heartbeats now, and there is no need: its connection stands."""
        return (
            self.join_request is not None or self.sync_request is not None
        ) and not self.is_abandoned

    def metadata_for(self, protocol: str) -> bytes:
        for one in self.protocols:
            if one.name == protocol:
                return one.metadata
        raise InvariantViolation(f"{self!r} does not speak {protocol!r}")

    def vote(self, candidates: Collection[str]) -> str:
        """The one that it likes best."""
        for one in self.protocols:
            if one.name in candidates:
                return one.name
        raise InvariantViolation(f"{self!r} speaks none of {sorted(candidates)}")

    def to_store(self, protocol: str, assignment: bytes) -> StoredMember:
        return StoredMember(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.metadata_for(protocol),
            assignment=assignment,
        )


def member_from_store(stored: StoredMember, protocol: str) -> Member:
    """A member that came with the log: of what it speaks, only what was chosen is known."""
    return Member(
        member_id=stored.member_id,
        instance_id=stored.instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        session_timeout_ms=stored.session_timeout_ms,
        rebalance_timeout_ms=stored.rebalance_timeout_ms,
        protocols=(GroupProtocol(protocol, stored.subscription),),
        assignment=stored.assignment,
    )


class Members:
    """The members in the order in which they came. An instance id belongs to one member."""

    def __init__(self) -> None:
        self._by_id: dict[str, Member] = {}
        self._by_instance: dict[str, str] = {}  # to the member id

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(tuple(self._by_id.values()))

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._by_id

    def find(self, member_id: str) -> Member | None:
        return self._by_id.get(member_id)

    def find_static(self, instance_id: str) -> Member | None:
        member_id = self._by_instance.get(instance_id)
        return None if member_id is None else self._by_id[member_id]

    def add(self, member: Member) -> None:
        if member.member_id in self._by_id or member.instance_id in self._by_instance:
            raise InvariantViolation(f"{member!r} is in the group already")
        self._by_id[member.member_id] = member
        if member.instance_id is not None:
            self._by_instance[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> Member | None:
        member = self._by_id.pop(member_id, None)
        if member is not None and member.instance_id is not None:
            del self._by_instance[member.instance_id]
        return member

    def rename(self, member: Member, member_id: str) -> None:
        """A static member came back under another id; its place among the others stays."""
        former = member.member_id
        member.member_id = member_id
        self._by_id = {
            (member_id if key == former else key): one for key, one in self._by_id.items()
        }
        if member.instance_id is not None:
            self._by_instance[member.instance_id] = member_id

    def become(self, stored: Iterable[StoredMember], protocol: str | None) -> None:
        """Be the members of a generation. Those who are here keep what the log does not say."""
        former, self._by_id, self._by_instance = self._by_id, {}, {}
        for one in stored:
            member = former.get(one.member_id) or member_from_store(one, protocol or "")
            member.assignment = one.assignment
            self.add(member)

    # All of them together

    @property
    def joined_count(self) -> int:
        return sum(member.has_joined for member in self._by_id.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """The slowest one decides."""
        return max((member.rebalance_timeout_ms for member in self._by_id.values()), default=0)

    def supports_any(self, names: Iterable[str]) -> bool:
        """Whether one of these is spoken by everyone."""
        return not self._common_protocols().isdisjoint(names) if self._by_id else any(names)

    def select_protocol(self) -> str:
        """Of what everyone speaks, what most like best."""
        candidates = self._common_protocols()
        votes = Counter(member.vote(candidates) for member in self._by_id.values())
        return votes.most_common(1)[0][0]

    def _common_protocols(self) -> set[str]:
        spoken = [{one.name for one in member.protocols} for member in self._by_id.values()]
        return set.intersection(*spoken)

    def subscriptions(self, protocol: str) -> Sequence[bytes]:
        return [member.metadata_for(protocol) for member in self._by_id.values()]
