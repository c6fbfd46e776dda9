"""What goes between a queue's client and one broker: records in, acknowledgements out. A rule.

One request is under way at a time, as a share session wants it. Acknowledgements that come up
meanwhile wait for the next one: they travel with a request for records if there is one, else alone.

    QUIET --something to ask or to tell--> ASKING --answer--> QUIET
      ^                                      | failure
      +---------- a pause is over ------- PAUSING
    QUIET --closed, all told--> CLOSING --answer or failure--> CLOSED

A broker takes or refuses what a request acknowledges of a partition as a whole: a single lock that
has run out fails the others. So what is refused is sent again in two halves, until the records are
found whose locks are gone. What was under way when a session or a connection was lost is sent again
in the next session, as long as the locks may hold.

A broker releases what it has locked when a session or its connection ends. So what nobody has taken
yet is lost with the session, and comes again, here or elsewhere. What the program has, or has
finished, may come again to this client, which has the same name in its next session: then it is
locked for it once more, and is not given a second time.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from moldau.client.queue.rules.in_flight import (
    AcknowledgedRanges,
    AcquireMode,
    FinishAcknowledgement,
    InFlightRecord,
    InFlightState,
    SendShareAcknowledge,
    SendShareFetch,
    SharePartitionAnswer,
    ShareTimerKind,
    ShareTurn,
    TopicIdPartition,
    to_ranges,
)
from moldau.errors import AcknowledgementError, ClientError, ErrorCode, InvariantViolation
from moldau.model import AcknowledgeType


class ShareFetchState(Enum):
    """What a share fetch session waits for."""

    QUIET = "something to ask or to tell"
    ASKING = "the answer to a request"
    PAUSING = "the end of a pause, after a failure"
    CLOSING = "the answer to the last request"
    CLOSED = "nothing"


SHARE_FETCH_MOVES: Final[dict[ShareFetchState, frozenset[ShareFetchState]]] = {
    ShareFetchState.QUIET: frozenset(
        {ShareFetchState.ASKING, ShareFetchState.CLOSING, ShareFetchState.CLOSED}
    ),
    ShareFetchState.ASKING: frozenset({ShareFetchState.QUIET, ShareFetchState.PAUSING}),
    ShareFetchState.PAUSING: frozenset({ShareFetchState.QUIET}),
    ShareFetchState.CLOSING: frozenset({ShareFetchState.CLOSED}),
    ShareFetchState.CLOSED: frozenset(),
}


class _Acknowledgement(NamedTuple):
    """One thing to tell of one offset; without a record it is a gap, or one that was unreadable."""

    offset: int
    kind: AcknowledgeType
    record: InFlightRecord | None


_AcknowledgementBatch = list[_Acknowledgement]
"""What one request tells of one partition."""


class FetchTerms(NamedTuple):
    """How records are asked for."""

    max_wait_ms: int
    max_records: int
    mode: AcquireMode


class ShareFetchSession:
    """Between the client and one broker."""

    def __init__(self, turn: ShareTurn, broker_id: int) -> None:
        self.broker_id = broker_id
        self.state = ShareFetchState.QUIET
        self.handler = ShareSessionHandler()
        # Locked by this broker, and not told of yet; in order, so that a run can be repeated.
        self.held: dict[InFlightRecord, None] = {}
        self.can_renew = False  # as far as is known
        self._turn = turn
        self._waiting: defaultdict[TopicIdPartition, _AcknowledgementBatch] = defaultdict(list)
        self._halves: defaultdict[TopicIdPartition, deque[_AcknowledgementBatch]] = defaultdict(
            deque
        )
        self._last_partition: TopicIdPartition | None = None  # that something was told of
        self._last_batch: _AcknowledgementBatch = []
        self._under_way: Mapping[TopicIdPartition, _AcknowledgementBatch] = {}
        self._older: dict[
            tuple[TopicIdPartition, int], InFlightRecord
        ] = {}  # see `is_known_record`
        self.is_awaited = False  # somebody waits to hear that what waits was told
        self._attempt = 0
        self._pause_count = 0

    def _move(self, state: ShareFetchState) -> None:
        if state not in SHARE_FETCH_MOVES[self.state]:
            raise InvariantViolation(
                f"a share fetch session cannot move from {self.state} to {state}"
            )
        self.state = state

    @property
    def has_acknowledgements(self) -> bool:
        return bool(self._waiting or self._halves)

    # What is to be told

    def hold(self, records: Iterable[InFlightRecord]) -> None:
        self.held.update(dict.fromkeys(records))

    def add_acknowledgement(self, record: InFlightRecord, kind: AcknowledgeType) -> None:
        self.is_awaited = self.is_awaited or record.is_watched
        # Records of one answer share the name of their partition, which takes long to look up.
        if record.partition is not self._last_partition:
            self._last_partition = record.partition
            self._last_batch = self._waiting[record.partition]
        self._last_batch.append(_Acknowledgement(record.record.offset, kind, record))

    def add_acknowledgements(
        self, partition: TopicIdPartition, offsets: Iterable[int], kind: AcknowledgeType
    ) -> None:
        said = [_Acknowledgement(offset, kind, None) for offset in offsets]
        if said:
            self._waiting[partition] += said

    # Requests

    def fetch(self, wanted: frozenset[TopicIdPartition], terms: FetchTerms) -> None:
        """Ask for records of these partitions; tells what there is to tell."""
        step = self.handler.build_request(wanted)
        # A session is opened by a request that acknowledges nothing.
        told = self._pack(with_renewals=False) if step.epoch else {}
        self._move(ShareFetchState.ASKING)
        self._turn.instruct(
            SendShareFetch(
                broker_id=self.broker_id,
                session_epoch=step.epoch,
                added=step.added,
                forgotten=step.forgotten,
                acknowledged=told,
                max_wait_ms=terms.max_wait_ms,
                max_records=terms.max_records,
                mode=terms.mode,
                sent_at=self._turn.now,
            )
        )

    def acknowledge(self) -> None:
        """Tell what there is to tell, alone."""
        epoch = self.handler.build_empty_request()
        told = self._pack(with_renewals=True)
        kinds = {one.kind for batch in self._under_way.values() for one in batch}
        self._move(ShareFetchState.ASKING)
        self._turn.instruct(
            SendShareAcknowledge(
                broker_id=self.broker_id,
                session_epoch=epoch,
                acknowledged=told,
                has_renewals=AcknowledgeType.RENEW in kinds,
                sent_at=self._turn.now,
            )
        )

    def close(self) -> None:
        """End the session: the broker releases what it has locked and was not told of."""
        if not self.handler.is_open:
            self.fail_everything("its session with the broker was lost")
            self._move(ShareFetchState.CLOSED)
            return
        self.handler.build_empty_request()
        self._move(ShareFetchState.CLOSING)
        self._turn.instruct(
            SendShareAcknowledge(
                broker_id=self.broker_id,
                session_epoch=CLOSING_EPOCH,
                acknowledged={},
                has_renewals=False,
                sent_at=self._turn.now,
            )
        )

    @property
    def goes_alone(self) -> bool:
        """Whether what is to be told should not travel with a request for records: a broker takes
        no renewals with those, and may keep them until there are records."""
        if self.is_awaited:
            return True
        halves = (batch for some in self._halves.values() for batch in some)
        return any(
            one.kind is AcknowledgeType.RENEW
            for batch in (*self._waiting.values(), *halves)
            for one in batch
        )

    def _pack(self, *, with_renewals: bool) -> AcknowledgedRanges:
        """Everything that waits; of what was refused, one half at a time."""
        self.is_awaited = False
        batches: dict[TopicIdPartition, _AcknowledgementBatch] = {}
        kept: dict[TopicIdPartition, _AcknowledgementBatch] = {}
        for partition, said in self._waiting.items():
            finished = {one.offset for one in said if one.kind is not AcknowledgeType.RENEW}
            now: _AcknowledgementBatch = []
            for one in said:
                if one.kind is not AcknowledgeType.RENEW:
                    now.append(one)
                elif one.offset in finished:  # it needs no lock any more
                    self._end_renewal(one.record, None)
                elif with_renewals:
                    now.append(one)
                else:
                    kept.setdefault(partition, []).append(one)
            if now:
                batches[partition] = now
        self._waiting = defaultdict(list, kept)
        self._last_partition = None
        for partition, halves in list(self._halves.items()):
            if partition in batches:
                self._waiting[partition] += batches[partition]
            batches[partition] = halves.popleft()
            if not halves:
                del self._halves[partition]
        self._under_way = batches
        return {
            partition: to_ranges((one.offset, one.kind) for one in batch)
            for partition, batch in batches.items()
        }

    # Answers

    def answered(
        self, answers: Sequence[SharePartitionAnswer], lock_seconds: float, sent_at: float
    ) -> None:
        """The request was heard; each partition has a word of its own on acknowledgements."""
        self._attempt = 0
        under_way = self._end_request()
        self.handler.answered()
        self._older = {key: one for key, one in self._older.items() if one in self.held}
        failures = {row.partition: row.acknowledge_failure for row in answers}
        for partition, batch in under_way.items():
            failure = failures.get(partition)
            if failure is None:
                self._succeed(batch, sent_at + lock_seconds)
            elif failure.code is ErrorCode.invalid_record_state and len(batch) > 1:
                self._halve(partition, batch)
            else:
                self._fail(batch, failure)
        self._end_with_state(ShareFetchState.QUIET)

    def failed(self, failure: Exception, *, may_ask_again: bool) -> None:
        """The request failed as a whole, and nobody knows what the broker has of the session;
        `may_ask_again` at once, without a pause."""
        under_way = self._end_request()
        self._try_again(under_way, failure)
        self.lose_session(failure)
        if self.state is ShareFetchState.ASKING and not may_ask_again:
            self._end_with_state(ShareFetchState.PAUSING)
            self._pause_count += 1
            seconds = self._turn.backoff_seconds(self._attempt)
            self._turn.arm(ShareTimerKind.BROKER, (self.broker_id, self._pause_count), seconds)
            self._attempt += 1
        else:
            self._end_with_state(ShareFetchState.QUIET)

    def lose_session(self, failure: Exception) -> None:
        self.handler.reset()
        self.lose_ready(failure)
        self._older = {(one.partition, one.record.offset): one for one in self.held}

    def lose_ready(self, failure: Exception, partition: TopicIdPartition | None = None) -> None:
        """Nobody has taken them yet, of one partition or of all, and somebody else may get them."""
        lost = [
            one
            for one in self.held
            if one.state is InFlightState.READY and partition in (None, one.partition)
        ]
        if not lost:
            return
        # The only word on a record that is ready is that its lock is to be renewed.
        self._fail([_Acknowledgement(-1, AcknowledgeType.RENEW, one) for one in lost], failure)
        waiting = {key: left for key, said in self._waiting.items() if (left := _not_lost(said))}
        self._waiting = defaultdict(list, waiting)
        halves: defaultdict[TopicIdPartition, deque[_AcknowledgementBatch]] = defaultdict(deque)
        for key, batches in self._halves.items():
            for batch in batches:
                if left := _not_lost(batch):
                    halves[key].append(left)
        self._halves = halves
        self._last_partition = None

    @property
    def has_older(self) -> bool:
        return bool(self._older)

    def is_known_record(self, partition: TopicIdPartition, offset: int, deadline: float) -> bool:
        """Whether a record that comes is one from before the session was lost that the program has,
        or has finished. It is locked for it again, until then."""
        record = self._older.get((partition, offset))
        if record is None:
            return False
        is_running = record.state is InFlightState.RUNNING and record.deadline > self._turn.now
        if not is_running and record.state is not InFlightState.FINISHED:
            return False
        record.deadline = deadline
        return True

    def on_pause_over(self, pause_count: int) -> None:
        if self.state is ShareFetchState.PAUSING and pause_count == self._pause_count:
            self._move(ShareFetchState.QUIET)

    def _end_request(self) -> Mapping[TopicIdPartition, _AcknowledgementBatch]:
        under_way, self._under_way = self._under_way, {}
        return under_way

    def _end_with_state(self, state: ShareFetchState) -> None:
        if self.state is ShareFetchState.CLOSING:
            self._move(ShareFetchState.CLOSED)
            self.fail_everything("its session with the broker is over")
        else:
            self._move(state)

    def _try_again(
        self, under_way: Mapping[TopicIdPartition, _AcknowledgementBatch], failure: Exception
    ) -> None:
        for partition, batch in under_way.items():
            over = [one for one in batch if self._has_run_out(one)]
            self._fail(over, failure)
            self._waiting[partition] += [one for one in batch if not self._has_run_out(one)]
            if not self._waiting[partition]:
                del self._waiting[partition]
        self._last_partition = None

    def _has_run_out(self, said: _Acknowledgement) -> bool:
        return said.record is None or said.record.deadline <= self._turn.now

    def _halve(self, partition: TopicIdPartition, batch: _AcknowledgementBatch) -> None:
        middle = len(batch) // 2
        self._halves[partition] += (batch[:middle], batch[middle:])

    # Ends

    def _succeed(self, batch: _AcknowledgementBatch, deadline: float) -> None:
        for _, kind, record in batch:
            if record is None:
                continue
            if kind is AcknowledgeType.RENEW:
                record.deadline = deadline
                self._end_renewal(record, None)
            elif record.state is InFlightState.FINISHED:
                record.move(InFlightState.OVER)
                self.held.pop(record, None)
                if record.is_watched:
                    self._turn.instruct(FinishAcknowledgement(record, False, None))

    def _fail(self, batch: Iterable[_Acknowledgement], failure: Exception) -> None:
        for _, kind, record in batch:
            if record is None:
                continue
            reason = AcknowledgementError(f"{record.describe()}: {_describe_loss(str(failure))}")
            reason.__cause__ = failure
            if kind is AcknowledgeType.RENEW:
                self._end_renewal(record, reason)
            self._lose(record, reason)

    def _lose(self, record: InFlightRecord, reason: AcknowledgementError) -> None:
        was_finished = record.state is InFlightState.FINISHED
        if record.state in (InFlightState.OVER, InFlightState.LOST):
            return
        record.failure = reason
        record.move(InFlightState.LOST)
        self.held.pop(record, None)
        if was_finished:
            self._turn.instruct(FinishAcknowledgement(record, False, reason))

    def _end_renewal(self, record: InFlightRecord | None, reason: Exception | None) -> None:
        if record is not None and record.is_renewing:
            record.is_renewing = False
            self._turn.instruct(FinishAcknowledgement(record, True, reason))

    def fail_everything(self, why: str) -> None:
        """Nothing can be told to this broker any more."""
        reason = ClientError(why)
        waiting = [one for batch in self._waiting.values() for one in batch]
        waiting += [one for some in self._halves.values() for batch in some for one in batch]
        self._waiting.clear()
        self._halves.clear()
        self._last_partition = None
        self._fail(waiting, reason)
        self._fail(
            [_Acknowledgement(-1, AcknowledgeType.RELEASE, one) for one in tuple(self.held)], reason
        )


def _not_lost(batch: _AcknowledgementBatch) -> _AcknowledgementBatch:
    return [
        one for one in batch if one.record is None or one.record.state is not InFlightState.LOST
    ]


def _describe_loss(why: str) -> str:
    return (
        f"the broker does not know what became of it ({why}); the record may be delivered again, "
        "to anybody: what is done with it should bear being done twice"
    )


# A share session with one broker, on the side of the client. The broker remembers which partitions
# a member wants; a request names only what has changed. Each request has the epoch after the one
# before: 0 opens a session, -1 closes it. Requests of a session therefore follow each other, and
# after a failure the session is opened anew.


OPENING_EPOCH: Final = 0
CLOSING_EPOCH: Final = -1
_LAST_EPOCH: Final = (1 << 31) - 1


class SessionStep(NamedTuple):
    """What the next request says of the session."""

    epoch: int
    added: Sequence[TopicIdPartition]
    forgotten: Sequence[TopicIdPartition]


class ShareSessionHandler:
    """The session with one broker."""

    def __init__(self) -> None:
        self.epoch = OPENING_EPOCH  # of the next request
        self.partitions: frozenset[TopicIdPartition] = frozenset()  # that the broker knows of
        self._asked: frozenset[TopicIdPartition] | None = None  # with the request under way

    @property
    def is_open(self) -> bool:
        """A broker takes acknowledgements in a session that is open, not in one that is about to
        be."""
        return self.epoch != OPENING_EPOCH

    def build_request(self, wanted: frozenset[TopicIdPartition]) -> SessionStep:
        """A request for exactly these partitions goes out."""
        self._require_quiet()
        self._asked = wanted
        return SessionStep(
            self.epoch, sorted(wanted - self.partitions), sorted(self.partitions - wanted)
        )

    def build_empty_request(self) -> int:
        """A request goes out that leaves the partitions as they are; its epoch."""
        self._require_quiet()
        self._asked = self.partitions
        return self.epoch

    def answered(self) -> None:
        if self._asked is None:
            raise InvariantViolation("a share session has an answer without a request")
        self.partitions, self._asked = self._asked, None
        self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1

    def reset(self) -> None:
        """The broker has forgotten the session, or nobody knows what it remembers."""
        self.epoch = OPENING_EPOCH
        self.partitions, self._asked = frozenset(), None

    def _require_quiet(self) -> None:
        if self._asked is not None:
            raise InvariantViolation("requests of a share session follow each other")
