"""Brings batches to their end: every one is delivered, refused, or given up in time. A rule.

`BatchDelivery` is the machine behind a producer: `plan` gives requests to send, `on_answer` takes
what became of a batch, `expire` looks at the time. Its answers are `Finished` batches, each of them
exactly once; the shell then tells those who wait. Between `plan` and `on_answer` a batch is under
way, and the shell promises one call of `on_answer` for each batch it was given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Generic, NamedTuple

from moldau.client.rules.accumulator import Accumulator, FindLeader, HasSlot, SendPlan
from moldau.client.rules.producer_batches import P, ProducerBatch
from moldau.client.rules.retries import Backoff, Chance
from moldau.client.rules.verdicts import NextStep, RetryPolicy, Verdict, judge, leaves_doubt
from moldau.errors import (
    BatchTooLargeError,
    DeliveryTimeoutError,
    InvariantViolation,
    MoldauError,
)
from moldau.model.protocol_numbers import NO_OFFSET, NO_TIMESTAMP

_NO_FAULTS: Mapping[int, str] = MappingProxyType({})


class PartitionAnswer(NamedTuple):
    """What a broker said about one batch, or what kept it from saying anything."""

    error: MoldauError | None = None
    base_offset: int = NO_OFFSET
    log_append_time_ms: int = NO_TIMESTAMP
    record_faults: Mapping[int, str] = _NO_FAULTS  # by place in the batch


class Delivered(NamedTuple):
    """The batch is in the log. The offset is -1 where it was not told."""

    base_offset: int
    log_append_time_ms: int = NO_TIMESTAMP


class NotDelivered(NamedTuple):
    """The batch was refused or given up. `record_faults` are the records that were to blame."""

    error: MoldauError
    record_faults: Mapping[int, str] = _NO_FAULTS


class Divided(NamedTuple, Generic[P]):
    """The batch went on in parts: the place of each part's first record, and its promise."""

    parts: tuple[tuple[int, P], ...]


class Finished(NamedTuple, Generic[P]):
    """The end of a batch."""

    batch: ProducerBatch[P]
    outcome: Delivered | NotDelivered | Divided[P]


@dataclass(slots=True, kw_only=True)
class AnswerResult(Generic[P]):
    """What follows from an answer."""

    finished: list[Finished[P]] = field(default_factory=list)
    refresh_metadata: bool = False


class BatchDelivery(Generic[P]):
    """The machine of one producer. Not safe for threads, as its accumulator is not."""

    def __init__(
        self, accumulator: Accumulator[P], policy: RetryPolicy, backoff: Backoff, chance: Chance
    ) -> None:
        self.accumulator = accumulator
        self._policy = policy
        self._backoff = backoff
        self._chance = chance

    def plan(self, now: float, find_leader: FindLeader, has_slot: HasSlot) -> SendPlan[P]:
        """Take what may be sent now; see `Accumulator.plan`."""
        return self.accumulator.plan(now, find_leader, has_slot)

    def on_answer(
        self, batch: ProducerBatch[P], answer: PartitionAnswer, now: float
    ) -> AnswerResult[P]:
        """Decide on a batch that has come back."""
        queue = self.accumulator.queue_of(batch.partition)
        is_oldest = queue.is_oldest(batch)
        verdict = judge(batch, answer.error, is_oldest=is_oldest, policy=self._policy)
        batch.last_error = answer.error
        batch.is_in_doubt |= leaves_doubt(answer.error)
        if verdict.restart_numbers:
            queue.demand_restart()
        result: AnswerResult[P] = AnswerResult(refresh_metadata=verdict.refresh_metadata)
        if batch.is_abandoned:
            queue.settle(batch, is_confirmed=verdict.step is NextStep.CONFIRM)
            self.accumulator.maybe_idle(queue)
        else:
            self._follow(verdict, batch, answer, now, result)
        return result

    def _follow(
        self,
        verdict: Verdict,
        batch: ProducerBatch[P],
        answer: PartitionAnswer,
        now: float,
        result: AnswerResult[P],
    ) -> None:
        queue = self.accumulator.queue_of(batch.partition)
        match verdict.step:
            case NextStep.RETRY:
                delay = self._backoff.delay_seconds(batch.attempts - 1, self._chance)
                queue.put_back(batch, now + delay)
                return
            case NextStep.DIVIDE:
                result.finished.append(self._divide(batch))
                return
            case NextStep.CONFIRM:
                outcome: Delivered | NotDelivered = Delivered(
                    answer.base_offset, answer.log_append_time_ms
                )
            case NextStep.REFUSE:
                outcome = NotDelivered(_explain(batch, answer.error), answer.record_faults)
        queue.settle(batch, is_confirmed=verdict.step is NextStep.CONFIRM)
        self.accumulator.finish(batch)
        result.finished.append(Finished(batch, outcome))

    def _divide(self, batch: ProducerBatch[P]) -> Finished[P]:
        halves = self.accumulator.divide(batch)
        starts = (half.first_number - batch.first_number for half in halves)
        promises = (half.promise for half in halves)
        return Finished(batch, Divided(tuple(zip(starts, promises, strict=True))))

    def expire(self, now: float) -> list[Finished[P]]:
        """Give up the batches whose time is over."""
        expired = self.accumulator.take_expired(now)
        return [self._give_up(batch, self._too_late(batch)) for batch in expired]

    def fail_all(self, error: MoldauError) -> list[Finished[P]]:
        """Give up everything, because nothing can be sent any more."""
        return [self._give_up(batch, error) for batch in self.accumulator.take_all()]

    def _give_up(self, batch: ProducerBatch[P], error: MoldauError) -> Finished[P]:
        self.accumulator.finish(batch)
        return Finished(batch, NotDelivered(error))

    def _too_late(self, batch: ProducerBatch[P]) -> DeliveryTimeoutError:
        seconds = self.accumulator.limits.delivery_seconds
        records = "1 record" if len(batch) == 1 else f"{len(batch)} records"
        in_doubt = batch.is_in_doubt or batch.is_abandoned
        doubt = "; it is not known whether they were written" if in_doubt else ""
        reason = f" (last failure: {batch.last_error})" if batch.last_error is not None else ""
        error = DeliveryTimeoutError(
            f"{records} for {batch.partition} were not confirmed within {seconds:g} seconds"
            f"{doubt}{reason}"
        )
        error.__cause__ = batch.last_error
        return error


def _explain(batch: ProducerBatch[P], error: MoldauError | None) -> MoldauError:
    if error is None:
        return InvariantViolation(f"{batch} was refused for no reason")
    if isinstance(error, BatchTooLargeError) and len(batch) == 1:
        return BatchTooLargeError(
            f"a record of about {batch.size_bytes} bytes for {batch.partition} is more than the "
            f"broker takes; see max.message.bytes of the topic ({error})"
        )
    return error
