"""A consumer as a member of its group by the consumer protocol (KIP-848). A rule.

The same interface as the classic membership. There is one request, the heartbeat: it joins, tells
that the member lives, what it wants and what it owns, and brings what is assigned to it. The
coordinator decides who reads what; the member follows, without the rest of the group having to
stop.

    UNSUBSCRIBED --the program asks--> JOINING --the first assignment--> RECONCILING <--> STABLE
    JOINING, RECONCILING, STABLE --the group has lost the member--> FENCED --all gone--> JOINING
                                 --the program polls too rarely---> STALE --it polls---> JOINING
                                 --nothing helps------------------> FATAL --all gone--> UNSUBSCRIBED
                                 --the program leaves-------------> UNSUBSCRIBED

The states have Kafka's names. Its ACKNOWLEDGING and LEAVING are no states here: the next heartbeat
acknowledges what was reconciled, and a member that leaves is UNSUBSCRIBED at once.

Heartbeats follow each other: one is under way, or the next one is due after the interval that the
coordinator has told, or after a pause when one has failed. What others wait for (partitions were
given up) or the program does (other topics) is told at once. A heartbeat names only what has
changed since the one before; after a failure nobody knows what was heard, and all of it is said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from moldau.client.consumer.rules.instructions import (
    ConsumerTurn,
    Failure,
    Identity,
    SendConsumerHeartbeat,
    SendConsumerLeave,
    TimerKind,
)
from moldau.client.consumer.rules.rebalance_listener import OwnedPartitions
from moldau.client.consumer.rules.subscription_state import (
    ConsumerStreams,
    SubscribedTopics,
    SubscriptionState,
    TopicSelection,
)
from moldau.client.rules.broker_errors import Reaction, react_to
from moldau.config.client_options import ConsumerOptions
from moldau.errors import ErrorCode, InvariantViolation, KafkaError
from moldau.model import NO_GENERATION, TopicPartition

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
_PATTERN_REFUSED: Final = (ErrorCode.invalid_regular_expression, ErrorCode.invalid_request)
STATIC_LEAVING_EPOCH: Final = -2
"""A static member leaves to come back: its partitions wait for it until its session is over."""

PartitionsById: TypeAlias = Mapping[UUID, frozenset[int]]
"""Partitions as heartbeats name them, by the id of their topic."""


class ConsumerMemberState(Enum):
    """Where a member is."""

    UNSUBSCRIBED = "unsubscribed"
    """No member. Moves when the program asks for records of a subscription."""

    JOINING = "joining"
    """The first heartbeat is under way, or is sent again after a pause."""

    RECONCILING = "reconciling"
    """Hands over what is not assigned any more, then takes what is new. Topics whose names are not
    known yet wait for metadata. Moves when it has exactly what is assigned."""

    STABLE = "stable"
    """Reads. Moves when something else is assigned."""

    FENCED = "fenced"
    """The group goes on without this member. Moves when the program has let go of all that it had,
    and asks for records."""

    STALE = "stale"
    """As FENCED: the member has left, since the program asked for no records for too long."""

    FATAL = "fatal"
    """Nothing that the client can do. Moves when all partitions are gone."""


_LOST: Final = frozenset({ConsumerMemberState.FENCED, ConsumerMemberState.STALE})

CONSUMER_MOVES: Final[dict[ConsumerMemberState, frozenset[ConsumerMemberState]]] = {
    ConsumerMemberState.UNSUBSCRIBED: frozenset({ConsumerMemberState.JOINING}),
    ConsumerMemberState.JOINING: _LOST | {ConsumerMemberState.RECONCILING},
    ConsumerMemberState.RECONCILING: _LOST | {ConsumerMemberState.STABLE},
    ConsumerMemberState.STABLE: _LOST | {ConsumerMemberState.RECONCILING},
    ConsumerMemberState.FENCED: frozenset({ConsumerMemberState.JOINING}),
    ConsumerMemberState.STALE: frozenset({ConsumerMemberState.JOINING}),
    ConsumerMemberState.FATAL: frozenset(),
}
"""Beside these: every state moves to UNSUBSCRIBED when the program leaves, or when it failed, and
every one to FATAL."""

CONSUMER_ENDS: Final = frozenset({ConsumerMemberState.UNSUBSCRIBED, ConsumerMemberState.FATAL})

_INSIDE: Final = frozenset(
    {ConsumerMemberState.JOINING, ConsumerMemberState.RECONCILING, ConsumerMemberState.STABLE}
)
"""The coordinator knows the member, or is about to."""


class _Beat(Enum):
    """What the next heartbeat waits for."""

    NONE = "there is none"
    DUE = "the interval, or something to tell at once"
    SENT = "the answer to the one before"
    PAUSING = "the pause after a failure"


class HeartbeatAnswer(NamedTuple):
    """A good one; `assigned` is None when nothing has changed."""

    epoch: int
    interval_ms: int
    assigned: PartitionsById | None = None


class _Told(NamedTuple):
    """What the coordinator knows from the last heartbeat."""

    topics: frozenset[str]
    pattern: str  # empty: none
    owned: frozenset[tuple[UUID, int]]


class ConsumerMembership:
    """One member of one consumer group. Its id is the consumer's own, and stays."""

    def __init__(
        self,
        turn: ConsumerTurn,
        group_id: str,
        options: ConsumerOptions,
        member_id: str,
        *,
        subscriptions: SubscriptionState,
        streams: ConsumerStreams,
        topics: SubscribedTopics,
        owned_partitions: OwnedPartitions,
    ) -> None:
        self.state = ConsumerMemberState.UNSUBSCRIBED
        self.epoch = NO_GENERATION
        self.failure: Failure | None = None  # why it is over
        self.group_id = group_id
        self._turn = turn
        self._options = options
        self._member_id = member_id
        self._subscriptions = subscriptions
        self._streams = streams
        self._topics = topics
        self._owned_partitions = owned_partitions
        self._assigned: PartitionsById = {}
        self._ids: dict[TopicPartition, UUID] = {}  # of the topics of what it has
        self._has_given_up = False  # and not told so yet
        self._beat = _Beat.NONE
        self._beat_count = 0  # which heartbeat it is; answers and timers of others mean nothing
        self._is_beat_wanted = False  # there is something to tell at once
        self._told: _Told | None = None  # None: everything has to be told
        self._has_told_pattern = False  # ever
        self._refused_pattern: str | None = None  # by the broker; the client matches it itself
        self._attempt = 0

    @property
    def identity(self) -> Identity:
        """As whom commits are made; without an epoch, as somebody outside the group."""
        if self.is_lost:
            return Identity(instance_id=self._options.group_instance_id)
        return Identity(self.epoch, self._member_id, self._options.group_instance_id)

    @property
    def is_lost(self) -> bool:
        """The group goes on without this member, or does not know it yet."""
        return self.epoch == NO_GENERATION

    @property
    def is_running(self) -> bool:
        return self.state is not ConsumerMemberState.UNSUBSCRIBED

    def _move(self, state: ConsumerMemberState) -> None:
        if state not in CONSUMER_MOVES[self.state] and state not in CONSUMER_ENDS:
            raise InvariantViolation(f"a member cannot move from {self.state} to {state}")
        self.state = state

    # What the consumer wants

    def start(self) -> None:
        """Join, and stay a member from now on."""
        self._move(ConsumerMemberState.JOINING)

    def request_join(self, reason: str) -> None:
        """The program wants other topics: the coordinator hears of it at once."""
        self._is_beat_wanted = True

    def on_topics(self, *, has_changed: bool) -> None:
        """Fresh metadata has come. What a pattern matches may be the broker's to find out."""
        self._is_beat_wanted = self._is_beat_wanted or (has_changed and not self._pattern)

    @property
    def _pattern(self) -> str:
        """Of topics that the broker finds; empty where the client knows them by name."""
        found = find_broker_pattern(self._topics.selection)
        return "" if found is None or found == self._refused_pattern else found

    def leave(self, reason: str) -> None:
        """Tell the coordinator, so that it need not wait for the session to time out."""
        is_inside = self.state in _INSIDE and not self._has_to_join
        self._clear_membership()
        self._move(ConsumerMemberState.UNSUBSCRIBED)
        self._send_leave(is_told=is_inside, is_last=True)

    def _send_leave(self, *, is_told: bool, is_last: bool) -> None:
        instance_id = self._options.group_instance_id
        self._turn.instruct(
            SendConsumerLeave(
                self._member_id if is_told else "",
                LEAVING_EPOCH if instance_id is None else STATIC_LEAVING_EPOCH,
                instance_id,
                is_last,
            )
        )

    # From state to state

    def advance(self) -> bool:
        """Take the next step if nothing stands in the way; whether one was taken."""
        is_resolved = self._topics.is_resolved or bool(self._pattern)
        if self._is_beat_wanted and self._beat is _Beat.DUE and is_resolved:
            self._send()
            return True
        if self.state is ConsumerMemberState.UNSUBSCRIBED or self._owned_partitions.is_changing:
            return False
        if len(self._subscriptions) and (
            self._has_to_join or self.state is ConsumerMemberState.FATAL
        ):
            self._owned_partitions.lose_partitions()
            return True
        match self.state:
            case _ if self._has_to_join and not self._is_too_slow:
                self._ids.clear()
                if self.state is not ConsumerMemberState.JOINING:
                    self._move(ConsumerMemberState.JOINING)
                self._send()
            case ConsumerMemberState.RECONCILING:
                return self._reconcile()
            case ConsumerMemberState.FATAL:
                self._move(ConsumerMemberState.UNSUBSCRIBED)
                self._turn.wakes_program = True  # a call that waits for records raises it
            case _:
                return False
        return True

    @property
    def _has_to_join(self) -> bool:
        """The coordinator has to be asked for a place, and was not yet."""
        is_new = self.state is ConsumerMemberState.JOINING and self._beat is _Beat.NONE
        return is_new or self.state in _LOST

    def _reconcile(self) -> bool:
        """One step from what it has to what is assigned."""
        assigned, is_complete = self._find_assigned()
        mine = self._subscriptions.partitions
        leaving = frozenset(one for one in mine if assigned.get(one) != self._ids.get(one))
        coming = assigned.keys() - mine
        if leaving:
            self._has_given_up = True
            self._owned_partitions.revoke_partitions(leaving)
        elif self._has_given_up:
            # Only now somebody else may have them.
            self._has_given_up = False
            self._is_beat_wanted = True
        elif coming and not self._owned_partitions.is_leaving:
            self._ids = {one: self._ids[one] for one in mine}
            self._ids |= {one: assigned[one] for one in coming}
            self._owned_partitions.assign_partitions(frozenset(coming))
        elif is_complete:
            self._move(ConsumerMemberState.STABLE)
        else:
            self._topics.is_wanted = True
            return False
        return True

    def _find_assigned(self) -> tuple[dict[TopicPartition, UUID], bool]:
        """What is assigned, as far as the names of the topics are known; whether all are."""
        names = {
            topic.topic_id: topic.name
            for topic in self._turn.cluster.topics.values()
            if topic.error is None
        }
        names |= {topic_id: one.topic for one, topic_id in self._ids.items()}
        found = {
            TopicPartition(names[topic_id], index): topic_id
            for topic_id, indexes in self._assigned.items()
            if topic_id in names
            for index in indexes
        }
        return found, self._assigned.keys() <= names.keys()

    # Heartbeats

    def _send(self) -> None:
        is_joining = self.state is ConsumerMemberState.JOINING
        before = None if is_joining else self._told
        pattern = self._pattern
        told = _Told(self._names(before), pattern, frozenset() if is_joining else self._owned())
        has_other_pattern = pattern != (before.pattern if before else "")
        says_pattern = has_other_pattern or (before is None and self._has_told_pattern)
        self._has_told_pattern = self._has_told_pattern or bool(pattern)
        options = self._options
        self._beat, self._told, self._is_beat_wanted = _Beat.SENT, told, False
        self._beat_count += 1
        self._turn.instruct(
            SendConsumerHeartbeat(
                beat=self._beat_count,
                member_id=self._member_id,
                epoch=JOINING_EPOCH if is_joining else self.epoch,
                instance_id=options.group_instance_id,
                rack=options.client_rack or None if before is None else None,
                rebalance_timeout_ms=options.max_poll_interval_ms if before is None else None,
                assignor=options.group_remote_assignor if before is None else None,
                topics=None if before and before.topics == told.topics else told.topics,
                owned=None if before and before.owned == told.owned else told.owned,
                pattern=pattern if says_pattern else None,
            )
        )

    def _names(self, before: _Told | None) -> frozenset[str]:
        if self._pattern:
            return frozenset()
        if before is None or self._topics.is_resolved:
            return self._topics.names
        return before.topics

    def _owned(self) -> frozenset[tuple[UUID, int]]:
        """What it has, and what it is about to take: a member that did not name these would say
        that it has given them up, and take them all the same if the answer to that were lost."""
        mine = {(self._ids[one], one.partition) for one in self._subscriptions.partitions}
        return frozenset(mine).union(
            (topic_id, index) for topic_id, some in self._assigned.items() for index in some
        )

    def _arm(self, beat: _Beat, seconds: float) -> None:
        self._beat = beat
        self._beat_count += 1
        self._turn.arm(TimerKind.HEARTBEAT, self._beat_count, seconds)

    @property
    def _is_too_slow(self) -> bool:
        idle_seconds = self._streams.idle_seconds(self._turn.now)
        return idle_seconds > self._options.max_poll_interval_ms / 1000

    def on_heartbeat_due(self, beat: int) -> None:
        if beat != self._beat_count:
            return
        if self._is_too_slow:
            self._leave_for_slowness()
        else:
            self._send()

    def on_pause_over(self, pause_count: int) -> None:
        """Of the classic protocol; here heartbeats pause, and nothing else does."""

    def heartbeat_answered(self, beat: int, answer: HeartbeatAnswer) -> None:
        if beat != self._beat_count:
            return
        self._attempt = 0
        self.epoch = answer.epoch
        self._arm(_Beat.DUE, answer.interval_ms / 1000)
        if self.state is ConsumerMemberState.JOINING:
            self._assigned = {}
        if answer.assigned is not None:
            self._assigned = answer.assigned
            self._turn.log(
                f"member {self._member_id} of group {self.group_id}, epoch {self.epoch}: "
                f"{sum(map(len, answer.assigned.values()))} partitions are assigned"
            )
        if self.state is ConsumerMemberState.JOINING or (
            self.state is ConsumerMemberState.STABLE and answer.assigned is not None
        ):
            self._move(ConsumerMemberState.RECONCILING)

    def heartbeat_failed(self, beat: int, failure: Failure) -> None:
        if beat != self._beat_count:
            return
        pattern = self._pattern
        self._told = None
        match react_to(failure):
            case _ if pattern and _refuses_pattern(failure):
                self._turn.log(
                    f"the broker does not match {pattern!r} ({failure}); this client does"
                )
                self._refused_pattern = pattern
                self._arm(_Beat.PAUSING, self._turn.backoff_seconds(0))
            case Reaction.STOP:
                self._clear_membership()
                self.failure = failure
                self._move(ConsumerMemberState.FATAL)
                self._owned_partitions.lose_partitions()
            case Reaction.START_OVER if self.state is not ConsumerMemberState.JOINING:
                self._turn.log(f"group {self.group_id} has lost this member: {failure}")
                self._lose_membership(ConsumerMemberState.FENCED)
            case _:
                self._arm(_Beat.PAUSING, self._turn.backoff_seconds(self._attempt))
                self._attempt += 1

    # Losing the place

    def _leave_for_slowness(self) -> None:
        self._turn.log(
            "the program asked for no records for more than max.poll.interval.ms="
            f"{self._options.max_poll_interval_ms}; leaving group {self.group_id}, until it does",
            is_warning=True,
        )
        self._send_leave(is_told=True, is_last=False)
        self._lose_membership(ConsumerMemberState.STALE)

    def _lose_membership(self, state: ConsumerMemberState) -> None:
        """What it had is others'; it joins again when the program has let go of it."""
        self._clear_membership()
        self._move(state)
        self._owned_partitions.lose_partitions()

    def _clear_membership(self) -> None:
        self.epoch = NO_GENERATION
        self._assigned = {}
        self._told = None
        self._has_given_up = self._is_beat_wanted = False
        self._beat = _Beat.NONE
        self._beat_count += 1


def _refuses_pattern(failure: Failure) -> bool:
    """A broker that matches no expressions at all answers INVALID_REQUEST. If the cause is another
    one, the next heartbeat, which has no pattern, fails too."""
    return isinstance(failure, KafkaError) and failure.code in _PATTERN_REFUSED


# Python's expressions know more than RE2, and a few words mean something else there. A pattern is
# handed over only where both mean the same of every legal topic name; others are matched by the
# client, as with the classic protocol. A rule.


_INTERNAL: Final = ("__consumer_offsets", "__transaction_state", "__share_group_state")
_SAME_ESCAPE: Final = re.compile(r"\\(?:[dDwWsSbBA]|[^\w\s])")
"""Of classes, word ends, the beginning, and of punctuation that stands for itself. Topic names are
ASCII, of which both say the same."""

_OTHER: Final = re.compile(
    r"""
    \(\?(?!:|P<|i\)|s\))    # looking around, conditions, comments, atomic groups, other flags
    | [*+?}]\+              # possessive
    | \{,                   # from zero, in Python alone
    | \{\d{4,}|,\d{4,}\}    # RE2 counts to a thousand
    | \[:                   # a class of RE2's
    """,
    re.VERBOSE,
)
_PLAIN_FLAGS: Final = re.compile("").flags


def find_broker_pattern(selection: TopicSelection) -> str | None:
    """The pattern as the broker is to read it; None if the client has to match it."""
    allow = selection.allow
    if allow is None or selection.deny is not None or allow.flags & ~(re.I | re.S) != _PLAIN_FLAGS:
        return None
    text = allow.pattern
    if allow.flags & (re.I | re.S) and not text.startswith(("(?i)", "(?s)")):
        return None  # they were given beside the text
    if not selection.with_internal and any(allow.fullmatch(name) for name in _INTERNAL):
        return None  # a broker leaves nothing out
    bare = _SAME_ESCAPE.sub("_", text)
    if "\\" in bare or _OTHER.search(bare):
        return None
    return text
