"""Runs of offsets against a model that keeps every offset by itself."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from moldau.coordinators.shares.rules.in_flight import (
    AcknowledgedRange,
    AcknowledgeType,
    DeliveryChange,
    InFlight,
    Limits,
    LogBatch,
    Wanted,
)
from moldau.coordinators.shares.rules.records import DeliveryState
from moldau.errors import InvalidRecordStateError, InvalidRequestError

LIMITS = Limits(max_record_locks=24, delivery_count_limit=2, lock_seconds=10)
MEMBERS = st.sampled_from(("ann", "bob", "eve"))
LOG_END = 120


@dataclass(frozen=True)
class One:
    """A record of the model."""

    state: DeliveryState = DeliveryState.AVAILABLE
    count: int = 0
    member: str = ""
    deadline: float = math.inf
    change: int = 0  # that it is pending in
    becomes: tuple[DeliveryState, int] | None = None


class Model:
    """Every offset from the start on."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.records: dict[int, One] = {}

    @property
    def end(self) -> int:
        return max(self.records, default=self.start - 1) + 1

    def advance(self) -> None:
        while self.start in self.records and self.records[self.start].state.is_final:
            del self.records[self.start]
            self.start += 1

    def forget_before(self, offset: int) -> None:
        self.records = {at: one for at, one in self.records.items() if at >= offset}
        self.start = max(self.start, offset)
        self.advance()

    def released(self, one: One, limit: int) -> tuple[DeliveryState, int]:
        too_often = one.count >= limit
        return (DeliveryState.ARCHIVED if too_often else DeliveryState.AVAILABLE, one.count)


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.real = InFlight(5)
        self.model = Model(5)
        self.now = 0.0
        self.changes: list[DeliveryChange] = []

    # Acquiring

    @rule(
        member=MEMBERS,
        sizes=st.lists(st.integers(1, 7), min_size=1, max_size=6),
        hidden=st.integers(0, 5),
        gap=st.sampled_from((0, 0, 0, 2)),
        most=st.integers(1, 12),
        exact=st.booleans(),
    )
    def acquire(
        self, member: str, sizes: list[int], hidden: int, gap: int, most: int, exact: bool
    ) -> None:
        offset = self.real.find_available()
        available = [at for at, one in self.model.records.items() if one.state.name == "AVAILABLE"]
        assert offset == min(available, default=self.model.end)
        if offset == self.model.end and not self.real.has_room(LIMITS):
            return
        batches, at = [], offset + gap
        for index, size in enumerate(sizes):
            batches.append(LogBatch(at, at + size - 1, at, 100, index == hidden))
            at += size
        window = self.model.end - self.model.start
        got = self.real.acquire(
            member, offset, iter(batches), Wanted(most, 3, exact), LIMITS, self.now
        )
        if exact:
            assert got.record_count <= most
            assert (
                self.real.end_offset - self.model.start
                <= max(window, LIMITS.max_record_locks) + sum(sizes[hidden : hidden + 1]) + gap
            )
        taken = {at: count for first, last, count in got.ranges for at in range(first, last + 1)}
        assert len(taken) == got.record_count
        sent = {
            at for batch in got.batches for at in range(batch.first_offset, batch.last_offset + 1)
        }
        assert taken.keys() <= sent
        assert all(taken.keys() & range(b.first_offset, b.last_offset + 1) for b in got.batches)
        shown = {
            at
            for b in batches
            if not b.is_hidden
            for at in range(b.first_offset, b.last_offset + 1)
        }
        assert taken.keys() <= shown
        for at, count in taken.items():  # nobody had it, and it is counted
            before = self.model.records.get(at, One())
            assert before.state is DeliveryState.AVAILABLE
            assert count == before.count + 1
            self.model.records[at] = One(
                DeliveryState.ACQUIRED, count, member, self.now + LIMITS.lock_seconds
            )
        new_end = self.real.end_offset
        for at in range(self.model.start, new_end):  # what is not shown has nothing to deliver
            one = self.model.records.get(at, One())
            # A gap before the first batch is passed over also when what follows is out of reach.
            is_passed = offset <= at < max(got.next_offset, batches[0].first_offset)
            if one.state is DeliveryState.AVAILABLE and at not in shown and is_passed:
                one = One(DeliveryState.ARCHIVED, 0)
            self.model.records[at] = one
        self.model.advance()

    # What becomes of them

    @rule(
        member=MEMBERS,
        first=st.integers(0, LOG_END),
        size=st.integers(1, 12),
        kind=st.sampled_from(AcknowledgeType),
    )
    def acknowledge(self, member: str, first: int, size: int, kind: AcknowledgeType) -> None:
        self._acknowledge(member, first, first + size, kind)

    @precondition(lambda self: any(one.member for one in self.model.records.values()))
    @rule(data=st.data(), kind=st.sampled_from(AcknowledgeType))
    def acknowledge_own(self, data: st.DataObject, kind: AcknowledgeType) -> None:
        held = sorted(at for at, one in self.model.records.items() if one.member)
        first = data.draw(st.sampled_from(held))
        member, end = self.model.records[first].member, first + 1
        while self.model.records.get(end, One()).member == member and data.draw(st.booleans()):
            end += 1
        self._acknowledge(member, first, end, kind)

    def _acknowledge(self, member: str, first: int, end: int, kind: AcknowledgeType) -> None:
        concerned = [at for at in range(first, end) if at >= self.model.start]
        is_past = bool(concerned) and concerned[-1] >= self.model.end
        is_own = all(
            self.model.records.get(at, One()).member == member and not self.model.records[at].change
            for at in concerned
        )
        ranges = (AcknowledgedRange(first, end, kind),)
        try:
            change = self.real.acknowledge(member, ranges, LIMITS, self.now)
        except (InvalidRecordStateError, InvalidRequestError):
            assert is_past or not is_own
            return
        assert is_own
        assert not is_past
        if kind is AcknowledgeType.RENEW:
            assert change.is_empty
            for at in concerned:
                deadline = self.now + LIMITS.lock_seconds
                self.model.records[at] = replace(self.model.records[at], deadline=deadline)
            return
        self._begin(change, concerned, kind)

    def _begin(self, change: DeliveryChange, concerned: list[int], kind: AcknowledgeType) -> None:
        changed = [at for begin, stop in change.ranges for at in range(begin, stop)]
        assert changed == concerned
        for at in concerned:
            one = self.model.records[at]
            becomes = {
                AcknowledgeType.ACCEPT: (DeliveryState.ACKNOWLEDGED, one.count),
                AcknowledgeType.RELEASE: self.model.released(one, LIMITS.delivery_count_limit),
            }.get(kind, (DeliveryState.ARCHIVED, one.count))
            self.model.records[at] = replace(one, change=change.id, becomes=becomes)
        if not change.is_empty:
            self.changes.append(change)

    @rule(seconds=st.sampled_from((1.0, 4.0, 11.0)))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        change = self.real.expire(self.now, LIMITS)
        self._give_back(
            change,
            [at for at, one in self.model.records.items() if one.deadline <= self.now],
        )

    @rule(member=MEMBERS)
    def member_goes(self, member: str) -> None:
        change = self.real.release(member, LIMITS)
        held = [at for at, one in self.model.records.items() if one.member == member]
        self._give_back(change, held)

    def _give_back(self, change: DeliveryChange, held: list[int]) -> None:
        dead = {at for first, end, _, _ in change.dead for at in range(first, end)}
        for at in sorted(held):
            one = self.model.records[at]
            if one.change:
                continue
            becomes = self.model.released(one, LIMITS.delivery_count_limit)
            assert (at in dead) == (becomes[0] is DeliveryState.ARCHIVED)
            if becomes[0] is DeliveryState.AVAILABLE:
                self.model.records[at] = One(*becomes)
            else:
                self.model.records[at] = replace(one, change=change.id, becomes=becomes)
        if not change.is_empty:
            self.changes.append(change)

    @precondition(lambda self: self.changes)
    @rule(data=st.data())
    def store(self, data: st.DataObject) -> None:
        """Some changes at once, as the shell does with what has come meanwhile; who reads what
        is stored finds what is here, without the locks."""
        count = data.draw(st.integers(1, len(self.changes)))
        together, self.changes = self.changes[:count], self.changes[count:]
        plan = self.real.plan_write(together)
        ids = {change.id for change in together}
        ranges = {at for c in together for first, end in c.ranges for at in range(first, end)}
        after = Model(self.model.start)
        for at, one in self.model.records.items():
            if one.change in ids and one.becomes is not None:
                after.records[at] = One(*one.becomes)
            else:
                after.records[at] = one
        after.advance()
        assert plan.start_offset == after.start
        assert plan.delivery_complete_count == sum(
            one.state.is_final for one in after.records.values()
        )
        stored = {
            at: (batch.delivery_state, batch.delivery_count)
            for batch in plan.state_batches
            for at in range(batch.first_offset, batch.last_offset + 1)
        }
        assert stored.keys() == {at for at in ranges if at >= after.start}
        for at, (state, times) in stored.items():
            one = after.records[at]
            if one.state is DeliveryState.ACQUIRED:
                assert (state, times) == (DeliveryState.AVAILABLE, one.count - 1)
            else:
                assert (state, times) == (one.state, one.count)
        is_stored = data.draw(st.booleans())
        for change in together:
            if is_stored:
                self.real.complete(change)
            else:
                self.real.take_back(change)
        if is_stored:
            self.model = after
        else:
            for at, one in self.model.records.items():
                if one.change in ids:
                    self.model.records[at] = replace(one, change=0, becomes=None)

    @rule(offset=st.integers(0, 40))
    def log_begins_later(self, offset: int) -> None:
        self.real.forget_before(self.model.start + offset - 30)
        self.model.forget_before(self.model.start + offset - 30)

    # What holds always

    @invariant()
    def they_say_the_same(self) -> None:
        assert self.real.start_offset == self.model.start
        assert self.real.end_offset == self.model.end
        listed = {
            at: (
                run.record_state.state,
                run.record_state.delivery_count,
                run.record_state.member,
                run.record_state.deadline,
            )
            for run in self.real.runs
            for at in range(run.first, run.end)
        }
        assert listed == {
            at: (one.state, one.count, one.member, one.deadline)
            for at, one in self.model.records.items()
        }
        pending = {
            at: (run.record_state.pending.state, run.record_state.pending.delivery_count)
            for run in self.real.runs
            if run.record_state.pending is not None
            for at in range(run.first, run.end)
        }
        assert pending == {at: one.becomes for at, one in self.model.records.items() if one.change}

    @invariant()
    def neighbours_differ(self) -> None:
        runs = list(self.real.runs)
        for before, after in pairwise(runs):
            assert before.end == after.first
            assert before.record_state != after.record_state


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
