"""A consumer as a member of its group, by the classic protocol: JoinGroup, SyncGroup, heartbeats,
LeaveGroup. A rule.

    UNJOINED --the program asks--> REVOKING --all gone--> PREPARING_REBALANCE --leads--> ASSIGNING
                                   ^   ^                      |                              |
          a rebalance, new topics  |   | lost the place       +----follows----+  topics known |
                                   |   |                                      v              v
    STABLE <--told-- CALLING_LISTENER  +-- RECONCILING <---assignment--- COMPLETING_REBALANCE
       |                           |
       +---------------------------+          any request fails --> BACKING_OFF --> REVOKING
                                              nothing helps ------> FATAL --> UNJOINED
                                              the program leaves -------------> UNJOINED

The states that Kafka's consumer has, too, have its names. Nothing is given up while the program
works on records of it (`rebalance_listener`).

Heartbeats are sent from the answer to JoinGroup until the next JoinGroup, so also while the program
is waited for. They tell of rebalances, and of a lost place: then the partitions belong to others
already, whatever the state, and the member joins again as soon as no request is under way.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from moldau.client.consumer.rules.assignors import Assignor, MemberSubscription
from moldau.client.consumer.rules.instructions import (
    ConsumerTurn,
    Failure,
    Identity,
    LearnTopics,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
    TimerKind,
)
from moldau.client.consumer.rules.rebalance_listener import OwnedPartitions
from moldau.client.consumer.rules.subscription_state import (
    ConsumerStreams,
    SubscribedTopics,
    SubscriptionState,
)
from moldau.client.rules.broker_errors import Reaction, error_for, react_to
from moldau.config.client_options import ConsumerOptions
from moldau.errors import (
    ClientError,
    ErrorCode,
    InvariantViolation,
    KafkaError,
    MalformedFrameError,
)
from moldau.model import NO_GENERATION, TopicPartition
from moldau.wire.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

NO_PAUSE: Final = frozenset({ErrorCode.member_id_required, ErrorCode.rebalance_in_progress})
"""A new member id, or a rebalance that goes on, is no reason to wait."""


class ClassicMemberState(Enum):
    """Where a member is."""

    UNJOINED = "unjoined"
    """No member. Moves when the program asks for records of a subscription."""

    REVOKING = "revoking"
    """Hands over what it must not keep while the group rebalances: everything, or with cooperative
    assignors what is not subscribed to any more. Moves when that is gone."""

    PREPARING_REBALANCE = "preparing rebalance"
    """JoinGroup is under way; no heartbeats. The answer comes when the whole group has joined."""

    ASSIGNING = "assigning"
    """Leads the generation, and asks for the topics of all members."""

    COMPLETING_REBALANCE = "completing rebalance"
    """SyncGroup is under way."""

    RECONCILING = "reconciling"
    """Hands over what the new assignment gives to others."""

    CALLING_LISTENER = "calling listener"
    """The program is told of what is new."""

    STABLE = "stable"
    """Reads. Moves when the group rebalances, or the topics change."""

    BACKING_OFF = "backing off"
    """A request has failed, and is made again after a pause."""

    FATAL = "fatal"
    """Nothing that the client can do. Moves when all partitions are gone."""


CLASSIC_MOVES: Final[dict[ClassicMemberState, frozenset[ClassicMemberState]]] = {
    ClassicMemberState.UNJOINED: frozenset({ClassicMemberState.REVOKING}),
    ClassicMemberState.REVOKING: frozenset({ClassicMemberState.PREPARING_REBALANCE}),
    ClassicMemberState.PREPARING_REBALANCE: frozenset(
        {
            ClassicMemberState.ASSIGNING,
            ClassicMemberState.COMPLETING_REBALANCE,
            ClassicMemberState.REVOKING,
            ClassicMemberState.BACKING_OFF,
        }
    ),
    ClassicMemberState.ASSIGNING: frozenset(
        {
            ClassicMemberState.COMPLETING_REBALANCE,
            ClassicMemberState.REVOKING,
            ClassicMemberState.BACKING_OFF,
        }
    ),
    ClassicMemberState.COMPLETING_REBALANCE: frozenset(
        {
            ClassicMemberState.RECONCILING,
            ClassicMemberState.REVOKING,
            ClassicMemberState.BACKING_OFF,
        }
    ),
    ClassicMemberState.RECONCILING: frozenset(
        {ClassicMemberState.CALLING_LISTENER, ClassicMemberState.REVOKING}
    ),
    ClassicMemberState.CALLING_LISTENER: frozenset(
        {ClassicMemberState.STABLE, ClassicMemberState.REVOKING}
    ),
    ClassicMemberState.STABLE: frozenset({ClassicMemberState.REVOKING}),
    ClassicMemberState.BACKING_OFF: frozenset({ClassicMemberState.REVOKING}),
    ClassicMemberState.FATAL: frozenset(),
}
"""Beside these: every state moves to UNJOINED when the program leaves, or when it failed, and every
one to FATAL."""

CLASSIC_ENDS: Final = frozenset({ClassicMemberState.UNJOINED, ClassicMemberState.FATAL})


class Joined(NamedTuple):
    """A good answer to JoinGroup; `members` are known to the leader alone."""

    generation_id: int
    member_id: str
    leader_id: str
    protocol: str | None
    skips_assignment: bool = False
    members: Sequence[tuple[str, str | None, bytes]] = ()  # id, instance id, subscription

    @property
    def leads(self) -> bool:
        return self.leader_id == self.member_id


class ClassicMembership:
    """One member of one group."""

    def __init__(
        self,
        turn: ConsumerTurn,
        group_id: str,
        options: ConsumerOptions,
        assignors: Sequence[Assignor],
        *,
        subscriptions: SubscriptionState,
        streams: ConsumerStreams,
        topics: SubscribedTopics,
        owned_partitions: OwnedPartitions,
    ) -> None:
        self.state = ClassicMemberState.UNJOINED
        self.generation_id = NO_GENERATION
        self.failure: Failure | None = None  # why it is over
        self._turn = turn
        self.group_id = group_id
        self._options = options
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._is_cooperative = all(assignor.is_cooperative for assignor in assignors)
        self._subscriptions = subscriptions
        self._streams = streams
        self._topics = topics
        self._owned_partitions = owned_partitions
        self._member_id = ""
        self._leads = False
        self._join_reason: str | None = "the consumer has started"  # None: no join is wanted
        self._joined: Joined | None = None  # of the rebalance that is under way
        self._members: list[MemberSubscription] = []  # of that, known to the leader
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._kept: frozenset[TopicPartition] = frozenset()  # owned as the assignment came
        self._last_assigned: tuple[TopicPartition, ...] = ()  # what sticky assignors remember
        self._last_generation_id = NO_GENERATION
        self._attempt = 0
        self._pause_count = 0
        self._heart = 0  # which series of heartbeats it is
        self._missed_beats = 0  # in a row

    @property
    def identity(self) -> Identity:
        """As whom commits are made."""
        return Identity(self.generation_id, self._member_id, self._options.group_instance_id)

    @property
    def is_lost(self) -> bool:
        """The group goes on without this member, or does not know it yet."""
        return self.generation_id == NO_GENERATION

    @property
    def is_running(self) -> bool:
        return self.state is not ClassicMemberState.UNJOINED

    def _move(self, state: ClassicMemberState) -> None:
        if state not in CLASSIC_MOVES[self.state] and state not in CLASSIC_ENDS:
            raise InvariantViolation(f"a member cannot move from {self.state} to {state}")
        self.state = state

    # What the consumer wants

    def start(self) -> None:
        """Join, and stay a member from now on."""
        self._join_reason = self._join_reason or "the program asks for records"
        self._move(ClassicMemberState.REVOKING)

    def request_join(self, reason: str) -> None:
        """Have the group rebalance. Before the first join, joining asks for everything anyway."""
        if self.is_running and self._join_reason is None:
            self._join_reason = reason

    def on_topics(self, *, has_changed: bool) -> None:
        """Fresh metadata has come."""
        if has_changed:
            self.request_join("the topics that match the subscription have changed")
        elif self._leads and self._topics.has_other_partitions:
            self.request_join("the partitions of the topics have changed")

    def leave(self, reason: str) -> None:
        """Tell the coordinator, so that it need not wait for the session to time out.

        A static member says nothing: it means to come back.
        """
        is_told = self._options.group_instance_id is None
        was_stable = self.state in (ClassicMemberState.STABLE, ClassicMemberState.CALLING_LISTENER)
        member_id = self._member_id if is_told else ""
        self._heart += 1
        self._clear_membership(keeps_member_id=False)
        self._move(ClassicMemberState.UNJOINED)
        self._turn.instruct(
            SendLeave(member_id, reason, is_last=True, drops_connection=not was_stable)
        )

    # From state to state

    def advance(self) -> bool:
        """Take the next step if nothing stands in the way; whether one was taken."""
        if self.state is ClassicMemberState.UNJOINED or self._owned_partitions.is_changing:
            return False
        if len(self._subscriptions) and (self.is_lost or self.state is ClassicMemberState.FATAL):
            self._owned_partitions.lose_partitions()
            return True
        match self.state:
            case ClassicMemberState.REVOKING:
                self._revoke_and_join()
            case ClassicMemberState.RECONCILING:
                self._release_revoked()
            case ClassicMemberState.CALLING_LISTENER:
                self._attempt = 0
                self._move(ClassicMemberState.STABLE)
            case ClassicMemberState.STABLE if self._join_reason is not None:
                self._move(ClassicMemberState.REVOKING)
            case ClassicMemberState.FATAL:
                self._move(ClassicMemberState.UNJOINED)
                self._turn.wakes_program = True  # a call that waits for records raises it
            case _:
                return False
        return True

    def _revoke_and_join(self) -> None:
        """Before joining: everything, or what is not subscribed to any more."""
        leaving = self._subscriptions.partitions
        if self._is_cooperative:
            leaving = frozenset(one for one in leaving if one.topic not in self._topics.names)
        if leaving:
            self._owned_partitions.revoke_partitions(leaving)
            return
        self._heart += 1
        reason, self._join_reason = self._join_reason, None  # whatever was wanted, this is for it
        protocols = tuple(
            (assignor.name, encode_subscription(self._subscribe(assignor)))
            for assignor in self._assignors.values()
        )
        self._move(ClassicMemberState.PREPARING_REBALANCE)
        self._turn.instruct(SendJoin(self._member_id, protocols, reason or "the group rebalances"))

    def _subscribe(self, assignor: Assignor) -> Subscription:
        return Subscription(
            topics=tuple(sorted(self._topics.names)),
            user_data=assignor.user_data(self._last_assigned, self._last_generation_id),
            owned_partitions=tuple(sorted(self._subscriptions.partitions)),
            generation_id=self.generation_id,
            rack_id=self._options.client_rack or None,
        )

    def joined(self, joined: Joined) -> None:
        if self.state is not ClassicMemberState.PREPARING_REBALANCE:
            return
        self._member_id, self.generation_id = joined.member_id, joined.generation_id
        self._joined, self._leads = joined, joined.leads
        self._heart += 1
        self._missed_beats = 0
        self._arm_heartbeat()
        if not joined.leads or joined.skips_assignment:
            self._sync(joined, {})
            return
        self._move(ClassicMemberState.ASSIGNING)
        try:
            self._members = [
                MemberSubscription(member_id, instance_id, decode_subscription(data))
                for member_id, instance_id, data in joined.members
            ]
        except MalformedFrameError as error:
            self.request_failed(error)
            return
        topics = {topic for one in self._members for topic in one.subscription.topics}
        self._turn.instruct(LearnTopics(sorted(topics)))

    def topics_learned(self, asked: LearnTopics) -> None:
        """As the leader: say who reads what."""
        joined = self._joined
        if self.state is not ClassicMemberState.ASSIGNING or joined is None:
            return
        if self._has_lost(joined):
            self._move(ClassicMemberState.REVOKING)
            return
        assignor = self._assignors.get(joined.protocol or "")
        if assignor is None:
            self.request_failed(
                error_for(
                    ErrorCode.inconsistent_group_protocol,
                    f"the coordinator chose the assignor {joined.protocol!r}, which was not "
                    "offered",
                )
            )
            return
        try:
            assigned = assignor.assign(self._topics.watch(asked.topics), self._members)
        except (KafkaError, ClientError) as error:
            self.request_failed(error)
            return
        except Exception as error:  # noqa: BLE001 it may be the program's, which gets it back
            self._crash(error)
            return
        self._sync(
            joined,
            {
                member_id: encode_assignment(Assignment(tuple(partitions)))
                for member_id, partitions in assigned.items()
            },
        )

    def _sync(self, joined: Joined, assignments: dict[str, bytes]) -> None:
        self._move(ClassicMemberState.COMPLETING_REBALANCE)
        self._turn.instruct(
            SendSync(joined.generation_id, joined.member_id, joined.protocol, assignments)
        )

    def synced(self, data: bytes) -> None:
        joined = self._joined
        if self.state is not ClassicMemberState.COMPLETING_REBALANCE or joined is None:
            return
        if self._has_lost(joined):
            self._move(ClassicMemberState.REVOKING)
            return
        try:
            assignment = decode_assignment(data)
        except MalformedFrameError as error:
            self.request_failed(error)
            return
        self._assigned = frozenset(assignment.partitions)
        self._kept = self._subscriptions.partitions
        self._last_assigned = tuple(sorted(self._assigned))
        self._last_generation_id = joined.generation_id
        self._turn.log(
            f"member {self._member_id} of group {self.group_id}, generation "
            f"{joined.generation_id}: {', '.join(map(str, self._last_assigned)) or 'nothing'}"
        )
        self._move(ClassicMemberState.RECONCILING)

    def _has_lost(self, joined: Joined) -> bool:
        """Whether the place was lost while an answer or the program was waited for."""
        return self.generation_id != joined.generation_id

    def _release_revoked(self) -> None:
        if self._joined is None or self._has_lost(self._joined):
            self._move(ClassicMemberState.REVOKING)
            return
        leaving = self._subscriptions.partitions - self._assigned
        if leaving:
            self._owned_partitions.revoke_partitions(leaving)
            return
        if self._kept - self._assigned:
            # Only now somebody else may have them.
            self.request_join("partitions were given up for other members")
        self._move(ClassicMemberState.CALLING_LISTENER)
        self._owned_partitions.assign_partitions(self._assigned - self._kept)

    # Failures

    def member_id_given(self, member_id: str) -> None:
        """The coordinator wants to be asked to join under this id (KIP-394)."""
        if self.state is ClassicMemberState.PREPARING_REBALANCE:
            self._member_id = member_id

    def request_failed(self, failure: Failure) -> None:
        """JoinGroup, SyncGroup, or the leader's question about topics."""
        if self.state not in (
            ClassicMemberState.PREPARING_REBALANCE,
            ClassicMemberState.ASSIGNING,
            ClassicMemberState.COMPLETING_REBALANCE,
        ):
            return
        reaction = react_to(failure)
        if reaction is Reaction.STOP:
            self._fail(failure)
            return
        if reaction is Reaction.START_OVER:
            self._lose_membership(failure)
        self._join_reason = self._join_reason or "joining has failed before"
        if isinstance(failure, KafkaError) and failure.code in NO_PAUSE:
            self._move(ClassicMemberState.REVOKING)
            return
        self._move(ClassicMemberState.BACKING_OFF)
        self._pause_count += 1
        self._turn.arm(TimerKind.JOIN, self._pause_count, self._turn.backoff_seconds(self._attempt))
        self._attempt += 1

    def on_pause_over(self, pause_count: int) -> None:
        if self.state is ClassicMemberState.BACKING_OFF and pause_count == self._pause_count:
            self._move(ClassicMemberState.REVOKING)

    def _fail(self, failure: Failure) -> None:
        self._heart += 1
        self._clear_membership(keeps_member_id=False)
        self.failure = failure
        self._move(ClassicMemberState.FATAL)
        self._owned_partitions.lose_partitions()

    def _crash(self, error: Exception) -> None:
        """The assignor has failed; the program's next call raises that, and joins again."""
        self._turn.raise_later(error)
        self._heart += 1
        self._clear_membership(keeps_member_id=False)
        self._move(ClassicMemberState.UNJOINED)

    def _lose_membership(self, failure: Failure) -> None:
        """The group has forgotten this member; what it owned is others'."""
        self._turn.log(f"group {self.group_id} has lost this member: {failure}")
        self._heart += 1
        # An old generation may be of a member that the coordinator still knows by its id.
        is_old = isinstance(failure, KafkaError) and failure.code is ErrorCode.illegal_generation
        self._clear_membership(keeps_member_id=is_old)
        self._owned_partitions.lose_partitions()

    def _clear_membership(self, *, keeps_member_id: bool) -> None:
        self.generation_id = NO_GENERATION
        self._leads = False
        if not keeps_member_id:
            self._member_id = ""

    # Heartbeats

    def _arm_heartbeat(self) -> None:
        seconds = self._options.heartbeat_interval_ms / 1000
        if self._missed_beats:
            seconds = min(seconds, self._turn.backoff_seconds(self._missed_beats - 1))
        self._turn.arm(TimerKind.HEARTBEAT, self._heart, seconds)

    def on_heartbeat_due(self, heart: int) -> None:
        if heart != self._heart:
            return
        idle_seconds = self._streams.idle_seconds(self._turn.now)
        if idle_seconds > self._options.max_poll_interval_ms / 1000:
            self._leave_for_slowness()
        else:
            self._turn.instruct(SendHeartbeat(heart, self.identity))

    def heartbeat_answered(self, heart: int) -> None:
        if heart == self._heart:
            self._missed_beats = 0
            self._arm_heartbeat()

    def heartbeat_failed(self, heart: int, failure: Failure) -> None:
        if heart != self._heart:
            return
        self._missed_beats += 1
        reaction = react_to(failure)
        if reaction is Reaction.STOP:
            self._fail(failure)
        elif reaction is Reaction.START_OVER:
            self._lose_membership(failure)
            self._rejoin("the member was forgotten")
        else:
            if reaction is Reaction.REJOIN:
                self.request_join("the group rebalances")
            self._arm_heartbeat()

    def _leave_for_slowness(self) -> None:
        self._turn.log(
            "the program asked for no records for more than max.poll.interval.ms="
            f"{self._options.max_poll_interval_ms}; leaving group {self.group_id}, until it does",
            is_warning=True,
        )
        self._heart += 1
        if self._options.group_instance_id is None:
            self._turn.instruct(
                SendLeave(self._member_id, "max.poll.interval.ms has passed", is_last=False)
            )
        self._clear_membership(keeps_member_id=False)
        self._owned_partitions.lose_partitions()
        self._rejoin("the program asks for records again")

    def _rejoin(self, reason: str) -> None:
        """The place is lost: join again as soon as no request is under way."""
        self.request_join(reason)
        if self.state in (
            ClassicMemberState.STABLE,
            ClassicMemberState.CALLING_LISTENER,
            ClassicMemberState.RECONCILING,
        ):
            self._move(ClassicMemberState.REVOKING)
