"""Everything that a queue's client decides: membership, requests, locks, what is given. A rule.

An event happens in a turn; instructions come out of it. `take_ready_records`, `acknowledge_record`
and `renew_lock` are the program's, and happen between turns, too: they change what the next turn
finds. Their caller wakes the machine when it says so (`is_idle_with_work`).

    membership      what is assigned                                  rules.share_membership
    metadata        when to ask for it, and who leads what            ShareMetadata
    sessions        one for each broker, with acknowledgements        rules.share_fetch_session
    ready           records that wait to be taken                     rules.in_flight
    limit           how many of them there should be                  AcquireLimit
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final, NamedTuple

from moldau.client.consumer.rules.consumer_membership import PartitionsById
from moldau.client.consumer.rules.instructions import Failure, Refresh
from moldau.client.queue.rules.in_flight import (
    AcquireMode,
    FinishAcknowledgement,
    InFlightRecord,
    InFlightState,
    ReadyRecords,
    SendShareAcknowledge,
    SendShareFetch,
    ShareAnswer,
    ShareInstruction,
    SharePartitionAnswer,
    ShareTimer,
    ShareTimerKind,
    ShareTurn,
    TopicIdPartition,
    unpack_records,
)
from moldau.client.queue.rules.share_fetch_session import (
    FetchTerms,
    ShareFetchSession,
    ShareFetchState,
)
from moldau.client.queue.rules.share_membership import ShareMembership, ShareMemberState
from moldau.client.rules.broker_errors import Backoff, Chance
from moldau.client.rules.cluster_metadata import ClusterMetadata
from moldau.config.client_options import QueueOptions
from moldau.errors import (
    AcknowledgementError,
    ClientError,
    ClusterUnreachableError,
    ErrorCode,
    KafkaError,
    UnsupportedByBrokerError,
)
from moldau.model import AcknowledgeType, TopicPartition

_BUSY_WAIT_MS: Final = 100
"""How long a broker may keep a request while jobs are under way: what became of them would wait
behind it."""

_LOOKS_PER_LOCK: Final = 8
_RENEW_SHARE: Final = 1 / 2
"""Of the lock's time: when so little is left, it is renewed."""

_FIRST_LOCK_SECONDS: Final = 30.0  # Kafka's default; each answer tells

_SESSION_ERRORS: Final = frozenset(
    {ErrorCode.share_session_not_found, ErrorCode.invalid_share_session_epoch}
)
_LEADER_ERRORS: Final = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
        ErrorCode.leader_not_available,
    }
)
"""Metadata is old."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConsumerSettings:
    """What the machine is told at its beginning."""

    group_id: str
    topics: frozenset[str]
    options: QueueOptions


class ShareConsumerMachine:
    """One client of one share group."""

    def __init__(
        self, settings: ShareConsumerSettings, *, backoff: Backoff, chance: Chance, now: float
    ) -> None:
        options = settings.options
        self.is_closed = False
        self.has_left = False
        self.waiting_count = 0  # of those who wait for records
        self.lock_seconds = _FIRST_LOCK_SECONDS
        self._settings = settings
        self._options = options
        self._turn = ShareTurn(now, backoff, chance)
        self.membership = ShareMembership(
            self._turn, settings.group_id, settings.topics, options.client_rack or None
        )
        self._limit = AcquireLimit(options.max_poll_records)
        self.metadata = ShareMetadata(
            self._turn, settings.topics, options.metadata_max_age_ms / 1000
        )
        self._ready = ReadyRecords(now)
        self._is_idle = False  # nobody came for what was ready; it was given back
        self._is_dry = False  # the last request brought nothing
        self._running: dict[InFlightRecord, None] = {}  # in order of their coming
        self._sessions: dict[int, ShareFetchSession] = {}
        self._blocked: defaultdict[TopicIdPartition, int] = defaultdict(int)  # failures in a row
        self._pausing: set[TopicIdPartition] = set()
        self._plan: RequestPlan | None = None  # None: to be made anew
        self._is_checking_locks = False
        self._is_leaving = False
        self._has_told_of_renewal = False

    # Turns

    def begin_turn(self, now: float, cluster: ClusterMetadata) -> None:
        self._turn.now = now
        self._turn.cluster = cluster

    def end_turn(self) -> tuple[Sequence[ShareInstruction], bool]:
        """What is to be done now, and whether there is news for the program."""
        self._advance()
        turn = self._turn
        instructions, wakes_program = turn.instructions, turn.wakes_program
        turn.instructions, turn.wakes_program = [], False
        return instructions, wakes_program

    @property
    def is_idle_with_work(self) -> bool:
        """Whether there is something to do that waits for no answer and no timer."""
        if any(
            session.state is ShareFetchState.QUIET and session.has_acknowledgements
            for session in self._sessions.values()
        ):
            return True
        return self._wants_records and any(
            session.state is ShareFetchState.QUIET for session in self._sessions.values()
        )

    # The program

    def start(self) -> None:
        """Somebody wants records."""
        if self.membership.state is ShareMemberState.UNSUBSCRIBED and not self._is_leaving:
            self.membership.start()

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    def wait_for_records(self, now: float) -> None:
        """Somebody comes, and there is nothing to take."""
        self._limit.on_asked(now)
        self._is_idle = False
        self.waiting_count += 1

    def stop_waiting(self) -> None:
        self.waiting_count -= 1

    def take_ready_records(self, limit: int, now: float) -> list[InFlightRecord]:
        """Records for the program, as many as there are up to the limit."""
        taken, expired = self._ready.take_records(limit, now)
        for record in expired:
            self._sessions[record.broker_id].held.pop(record, None)
        if taken:
            self._running.update(dict.fromkeys(taken))
            self._is_idle = False
            self._limit.on_asked(now)
            self._limit.on_taken(len(taken), now, is_awaited=self.waiting_count > 0)
        return taken

    def acknowledge_record(self, record: InFlightRecord, kind: AcknowledgeType) -> None:
        """The program says what became of a record. Raises AcknowledgementError if its lock is
        known to be gone."""
        self._running.pop(record, None)
        if record.state is InFlightState.LOST:
            raise record.failure or AcknowledgementError(
                f"{record.describe()}: its lock is gone, and the record is delivered again"
            )
        if record.kind is not None:
            raise ClientError(
                f"{record.describe()} was finished before: {record.kind.name.lower()}; what became "
                "of a record is said once"
            )
        record.move(InFlightState.FINISHED)
        record.kind = kind
        self._sessions[record.broker_id].add_acknowledgement(record, kind)

    def renew_lock(self, record: InFlightRecord) -> None:
        """Have the lock of a record begin anew. Raises UnsupportedByBrokerError."""
        if record.state not in (InFlightState.READY, InFlightState.RUNNING):
            raise record.failure or ClientError(
                f"{record.describe()} is finished: nothing to renew"
            )
        session = self._sessions[record.broker_id]
        if not session.can_renew:
            raise UnsupportedByBrokerError(
                "this broker cannot renew locks (Kafka can from 4.2 on): raise the group's "
                "share.record.lock.duration.ms, or do less at once"
            )
        if not record.is_renewing:
            record.is_renewing = True
            session.add_acknowledgement(record, AcknowledgeType.RENEW)

    def raise_later(self, failure: Exception) -> None:
        self._turn.raise_later(failure)

    def raise_failures(self) -> None:
        """Raise what the program has to know."""
        if self.membership.failure is not None:
            raise self.membership.failure
        if self._turn.failures:
            raise self._turn.failures.pop(0)

    # Metadata

    def refreshed(self) -> None:
        self.metadata.refreshed()
        self._pausing.clear()
        self._plan = None

    # Requests

    def answered(self, asked: SendShareFetch | SendShareAcknowledge, answer: ShareAnswer) -> None:
        session = self._sessions[asked.broker_id]
        session.can_renew = answer.can_renew
        if answer.lock_ms:
            self.lock_seconds = answer.lock_ms / 1000
        session.answered(answer.partitions, self.lock_seconds, asked.sent_at)
        if isinstance(asked, SendShareFetch):
            self._is_dry = not any(row.acquired for row in answer.partitions)
        for row in answer.partitions:
            if (
                row.acknowledge_failure is not None
                and row.acknowledge_failure.code in _LEADER_ERRORS
            ):
                self._on_other_leader(session, row.partition, row.acknowledge_failure)
            if row.failure is not None:
                self._refused(session, row.partition, row.failure)
            else:
                self._blocked.pop(row.partition, None)
                self._receive(session, row, asked.sent_at)

    def failed(self, asked: SendShareFetch | SendShareAcknowledge, failure: Failure) -> None:
        session = self._sessions[asked.broker_id]
        is_session = isinstance(failure, KafkaError) and failure.code in _SESSION_ERRORS
        # A session that was just opened should be known; asking at once again might never end.
        may_ask_again = is_session and asked.session_epoch > 1
        session.failed(failure, may_ask_again=may_ask_again)
        self._ready.keep_ready()
        if not is_session:
            self.metadata.want()
        if isinstance(failure, UnsupportedByBrokerError) or (
            isinstance(failure, KafkaError) and not is_session and not failure.code.retriable
        ):
            self._turn.raise_later(failure)

    def disconnected(self, broker_id: int, failure: Failure) -> None:
        """The connection of a session has ended. If a request was under way, that fails, too."""
        session = self._sessions.get(broker_id)
        if session is not None and session.state is ShareFetchState.QUIET:
            session.lose_session(failure)
            self._ready.keep_ready()
            self.metadata.want()

    def _on_other_leader(
        self, session: ShareFetchSession, partition: TopicIdPartition, failure: KafkaError
    ) -> None:
        """A broker knows nothing of locks any more: whoever leads now gives the records anew."""
        self.metadata.want()
        if failure.code is not ErrorCode.leader_not_available:  # perhaps that of dead letters
            session.lose_ready(failure, partition)
            self._ready.keep_ready()

    def _refused(
        self, session: ShareFetchSession, partition: TopicIdPartition, failure: KafkaError
    ) -> None:
        if failure.code in _LEADER_ERRORS:
            self._on_other_leader(session, partition, failure)
        elif not failure.code.retriable:
            self._turn.raise_later(failure)
        seconds = self._turn.backoff_seconds(self._blocked[partition])
        self._blocked[partition] += 1
        self._pausing.add(partition)
        self._plan = None
        self._turn.arm(ShareTimerKind.PARTITION, partition, seconds)

    def _receive(
        self, session: ShareFetchSession, row: SharePartitionAnswer, sent_at: float
    ) -> None:
        if not row.acquired:
            return
        name = self._find_name(row)
        found = unpack_records(
            row.records,
            TopicPartition(name, row.partition[1]),
            row.acquired,
            check_crcs=self._options.check_crcs,
        )
        session.add_acknowledgements(row.partition, found.gaps, AcknowledgeType.GAP)
        session.add_acknowledgements(row.partition, found.unreadable, AcknowledgeType.RELEASE)
        if found.failure is not None:
            self._turn.raise_later(found.failure)
        deadline = sent_at + self.lock_seconds
        came = [
            InFlightRecord(record, row.partition, session.broker_id, count, deadline)
            for record, count in found.records
            if not session.has_older
            or not session.is_known_record(row.partition, record.offset, deadline)
        ]
        session.hold(came)
        if came:
            self._ready.add(came, self._turn.now)
            self._turn.wakes_program = True

    def _find_name(self, row: SharePartitionAnswer) -> str:
        for topic in self._turn.cluster.topics.values():
            if topic.topic_id == row.partition[0]:
                return topic.name
        return str(row.partition[0])

    # Time

    def timer_fired(self, timer: ShareTimer) -> None:
        match timer:
            case ShareTimer(ShareTimerKind.HEARTBEAT, int(beat)):
                self.membership.on_heartbeat_due(beat)
            case ShareTimer(ShareTimerKind.METADATA_PAUSE):
                self.metadata.on_pause_over()
            case ShareTimer(ShareTimerKind.METADATA_AGE, count):
                self.metadata.on_old(count)
            case ShareTimer(ShareTimerKind.BROKER, (int(broker_id), int(pause_count))):
                if broker_id in self._sessions:
                    self._sessions[broker_id].on_pause_over(pause_count)
            case ShareTimer(ShareTimerKind.PARTITION, (topic_id, index)):
                self._pausing.discard((topic_id, index))
                self._plan = None
            case ShareTimer(ShareTimerKind.LOCKS):
                self._is_checking_locks = False
                self._check_locks()
            case _:
                pass

    def _check_locks(self) -> None:
        """Renew what is about to run out, or give it back."""
        now = self._turn.now
        self._running = {one: None for one in self._running if one.state is InFlightState.RUNNING}
        if self._ready and now - self._ready.moved_at > self.lock_seconds:
            self._is_idle = True
        for session in self._sessions.values():
            for record in tuple(session.held):
                is_short = record.deadline - now <= self.lock_seconds * _RENEW_SHARE
                if record.state is InFlightState.READY and (is_short or self._is_idle):
                    self._keep_ready(session, record)
                elif record.state is InFlightState.RUNNING and record.is_kept and is_short:
                    self._keep_running(session, record)
        self._ready.keep_ready()

    def _keep_ready(self, session: ShareFetchSession, record: InFlightRecord) -> None:
        if session.can_renew and not self._is_idle:
            self.renew_lock(record)
        else:
            # Others can have it in good time; here it would run out while it is worked on.
            self._give_back(session, record)

    def _give_back(self, session: ShareFetchSession, record: InFlightRecord) -> None:
        record.move(InFlightState.FINISHED)
        record.kind = AcknowledgeType.RELEASE
        session.add_acknowledgement(record, AcknowledgeType.RELEASE)

    def _keep_running(self, session: ShareFetchSession, record: InFlightRecord) -> None:
        if session.can_renew:
            self.renew_lock(record)
        elif not self._has_told_of_renewal:
            self._has_told_of_renewal = True
            self._turn.log(
                f"{record.describe()} is worked on for longer than half of its lock "
                f"({self.lock_seconds:g} s), and this broker cannot renew locks: it may be "
                "delivered again meanwhile; raise the group's share.record.lock.duration.ms",
                is_warning=True,
            )

    # From state to state

    def _advance(self) -> None:
        self._maybe_refresh()
        wanted = self._find_wanted()
        for broker_id in wanted.keys() - self._sessions.keys():
            self._sessions[broker_id] = ShareFetchSession(self._turn, broker_id)
        for session in tuple(self._sessions.values()):
            self._advance_session(session, wanted.get(session.broker_id, frozenset()))
        if not self._is_checking_locks and any(session.held for session in self._sessions.values()):
            self._is_checking_locks = True
            self._turn.arm(ShareTimerKind.LOCKS, 0, self.lock_seconds / _LOOKS_PER_LOCK)
        self._maybe_leave()

    def _maybe_refresh(self) -> None:
        if self.membership.state is not ShareMemberState.UNSUBSCRIBED:
            self.metadata.maybe_ask()

    def _find_wanted(self) -> Mapping[int, frozenset[TopicIdPartition]]:
        """The partitions that are assigned and can be asked for, by their leaders."""
        cluster, assigned = self._turn.cluster, self.membership.assigned
        plan = self._plan
        if plan is None or plan.cluster is not cluster or plan.assigned is not assigned:
            plan = self._plan = plan_requests(cluster, assigned, self._pausing)
            if not plan.is_complete:
                self.metadata.want()
            self._maybe_refresh()
            self._give_back_others(plan)
        return plan.wanted

    def _give_back_others(self, plan: RequestPlan) -> None:
        """Records that nobody has taken, of partitions that are not ours any more: the member has
        lost its place, or others are assigned to them, or another broker leads them."""
        self._ready.keep_ready()  # some may have been lost meanwhile
        for record in self._ready:
            if not plan.is_of(record.partition, record.broker_id):
                self._give_back(self._sessions[record.broker_id], record)
        self._ready.keep_ready()

    @property
    def _wants_records(self) -> bool:
        """Somebody waits for records, or what there is will be taken soon."""
        if self._is_leaving or self.membership.state is not ShareMemberState.STABLE:
            return False
        if self.waiting_count > 0:
            return len(self._ready) < self.waiting_count
        limit = self._limit.records(self.lock_seconds)
        # While nobody waits, nothing is acquired for slow programs: its lock would run.
        is_worth_it = limit > 1 and not self._is_idle and not self._is_dry
        return is_worth_it and 2 * len(self._ready) < limit

    def _advance_session(
        self, session: ShareFetchSession, wanted: frozenset[TopicIdPartition]
    ) -> None:
        if (
            session.has_acknowledgements
            and not session.handler.is_open
            and (not wanted or self._is_leaving)
        ):
            session.fail_everything("its session with the broker was lost")
        if session.state is ShareFetchState.QUIET:
            self._send_request(session, wanted)
        if session.state is ShareFetchState.CLOSED and not self._is_leaving:
            del self._sessions[session.broker_id]

    def _send_request(
        self, session: ShareFetchSession, wanted: frozenset[TopicIdPartition]
    ) -> None:
        wants_records = bool(wanted) and self._wants_records
        if session.has_acknowledgements and not session.handler.is_open and not wants_records:
            # Only a request for records opens a session.
            session.fetch(wanted, FetchTerms(0, 1, AcquireMode.RECORD_LIMIT))
        elif (
            session.has_acknowledgements
            and session.handler.is_open
            and (session.goes_alone or not wants_records)
        ):
            session.acknowledge()
        elif wants_records:
            session.fetch(wanted, self._fetch_terms())
        elif self._is_leaving or (
            not wanted and not session.held and not self._is_pausing_on(session)
        ):
            session.close()

    def _is_pausing_on(self, session: ShareFetchSession) -> bool:
        return any(one in self._pausing for one in session.handler.partitions)

    def _fetch_terms(self) -> FetchTerms:
        options = self._options
        limit = max(self._limit.records(self.lock_seconds), self.waiting_count)
        limit = min(limit, options.max_poll_records)
        if options.share_acquire_mode == "auto":
            is_strict = limit < options.max_poll_records
        else:
            is_strict = options.share_acquire_mode == "record_limit"
        return FetchTerms(
            max_wait_ms=self._choose_wait_ms(),
            max_records=max(limit - len(self._ready), 1),
            mode=AcquireMode.RECORD_LIMIT if is_strict else AcquireMode.BATCH_OPTIMIZED,
        )

    def _choose_wait_ms(self) -> int:
        """A broker that waits for records keeps what became of others waiting, too."""
        if not self.waiting_count:
            return 0
        wait_ms = self._options.fetch_max_wait_ms
        return min(wait_ms, _BUSY_WAIT_MS) if self._running else wait_ms

    # Ends

    def leave(self) -> None:
        """Release what the program has not finished, end the sessions, leave the group."""
        self._is_leaving = self.is_closed = True
        for record in tuple(self._running):
            if record.state is InFlightState.RUNNING:  # else its lock is gone
                self.acknowledge_record(record, AcknowledgeType.RELEASE)
        self._ready.clear()  # the end of the session releases them
        self._turn.wakes_program = True

    def _maybe_leave(self) -> None:
        is_done = all(
            session.state is ShareFetchState.CLOSED for session in self._sessions.values()
        )
        if self._is_leaving and is_done and not self.has_left:
            self.has_left = True
            self.membership.leave()

    def give_up(self) -> list[FinishAcknowledgement]:
        """Everything ends now: what the brokers were not told of, after `leave` took too long."""
        for session in self._sessions.values():
            session.fail_everything("the queue was closed before the broker had answered")
        ends = [one for one in self._turn.instructions if isinstance(one, FinishAcknowledgement)]
        self._turn.instructions = []
        return ends


# Metadata is asked for at the beginning, when it is old, and when a broker or an assignment says
# that it is; then there is a pause before the next time, longer each time while topics are missing.


class ShareMetadata:
    """What is known of the topics, and whether to ask."""

    def __init__(self, turn: ShareTurn, topics: frozenset[str], max_age_seconds: float) -> None:
        self._turn = turn
        self._topics = topics
        self._max_age_seconds = max_age_seconds
        self._is_wanted = True
        self._is_busy = False  # asked for, or the pause after that
        self._is_known = False
        self._attempt = 0
        self._count = 0
        self._missing: set[str] = set()  # topics that are not there, and that was told

    def want(self) -> None:
        self._is_wanted = True

    def maybe_ask(self) -> None:
        if self._is_wanted and not self._is_busy:
            self._is_wanted, self._is_busy = False, True
            self._turn.instruct(Refresh(sorted(self._topics)))

    def refreshed(self) -> None:
        self._is_known = True
        topics = self._turn.cluster.topics
        is_complete = all(name in topics and topics[name].error is None for name in self._topics)
        self._tell_of_missing()
        self._pause(is_complete=is_complete)

    def _tell_of_missing(self) -> None:
        topics = self._turn.cluster.topics
        for name in sorted(self._topics):
            topic = topics.get(name)
            if topic is not None and topic.error is None:
                self._missing.discard(name)
            elif name not in self._missing:
                self._missing.add(name)
                why = "is not there" if topic is None else f"cannot be read ({topic.error})"
                self._turn.log(f"topic {name!r} {why}; waiting for it", is_warning=True)

    def refresh_failed(self, failure: Failure) -> None:
        # At the beginning the address is likely wrong; later a cluster is worth waiting for.
        if isinstance(failure, ClusterUnreachableError) and not self._is_known:
            self._turn.raise_later(failure)
        self._pause(is_complete=False)

    def _pause(self, *, is_complete: bool) -> None:
        self._attempt = 0 if is_complete else self._attempt + 1
        self._is_wanted = self._is_wanted or not is_complete
        seconds = self._turn.backoff_seconds(self._attempt)
        self._turn.arm(ShareTimerKind.METADATA_PAUSE, 0, seconds)

    def on_pause_over(self) -> None:
        self._is_busy = False
        self._count += 1
        self._turn.arm(ShareTimerKind.METADATA_AGE, self._count, self._max_age_seconds)

    def on_old(self, count: object) -> None:
        if count == self._count:
            self._is_wanted = True


class RequestPlan(NamedTuple):
    """Whom to ask for what, and what that was made of."""

    cluster: ClusterMetadata
    assigned: PartitionsById
    wanted: Mapping[int, frozenset[TopicIdPartition]]  # by broker, without those that pause
    leaders: Mapping[TopicIdPartition, int]  # of what is assigned, as far as they are known
    is_complete: bool  # the leaders of all partitions are known

    def is_of(self, partition: TopicIdPartition, broker_id: int) -> bool:
        """Whether records of a partition that a broker has locked for us are still ours to give:
        it is assigned, and no other broker is known to lead it."""
        topic_id, index = partition
        is_assigned = index in self.assigned.get(topic_id, ())
        return is_assigned and self.leaders.get(partition, broker_id) == broker_id


def plan_requests(
    cluster: ClusterMetadata, assigned: PartitionsById, pausing: Set[TopicIdPartition]
) -> RequestPlan:
    wanted: defaultdict[int, set[TopicIdPartition]] = defaultdict(set)
    leaders: dict[TopicIdPartition, int] = {}
    topics = {topic.topic_id: topic for topic in cluster.topics.values() if topic.error is None}
    is_complete = True
    for topic_id, indexes in assigned.items():
        topic = topics.get(topic_id)
        rows = () if topic is None else topic.partitions
        for index in indexes:
            if index >= len(rows) or rows[index].leader_id not in cluster.brokers:
                is_complete = False
                continue
            leaders[topic_id, index] = rows[index].leader_id
            if (topic_id, index) not in pausing:
                wanted[rows[index].leader_id].add((topic_id, index))
    by_broker = {broker_id: frozenset(some) for broker_id, some in wanted.items()}
    return RequestPlan(cluster, assigned, by_broker, leaders, is_complete)


# Records that wait in a client are locked, and nobody else can have them: of what takes long, a
# client should have little. What is quick should not wait for the network. So a client has as many
# as its takers go through in a small part of the time for which records are locked: one while
# nothing is known of them.
#
# The pace is the time between a record's being taken and somebody's coming for another one,
# smoothed. While somebody waits already there is nothing to learn of it.


_LOCK_SHARE: Final = 1 / 20
_SMOOTHING: Final = 0.2


class AcquireLimit:
    """Between 1 and what the program allows."""

    def __init__(self, max_records: int) -> None:
        self._max_records = max_records
        self._record_seconds: float | None = None  # smoothed; None: nothing is known
        self._taken_at: float | None = None  # None: whoever took last left others waiting
        self._taken_count = 1

    def on_asked(self, now: float) -> None:
        """Somebody comes for records."""
        if self._taken_at is None:
            return
        seconds = (now - self._taken_at) / self._taken_count
        before = self._record_seconds
        self._record_seconds = (
            seconds if before is None else before + _SMOOTHING * (seconds - before)
        )
        self._taken_at = None

    def on_taken(self, count: int, now: float, *, is_awaited: bool) -> None:
        """So many were taken; `is_awaited` says that others wait for more."""
        self._taken_at = None if is_awaited else now
        self._taken_count = count

    def records(self, lock_seconds: float) -> int:
        if self._record_seconds is None:
            return 1
        wanted = lock_seconds * _LOCK_SHARE / max(self._record_seconds, 1e-9)
        return max(min(int(wanted), self._max_records), 1)
