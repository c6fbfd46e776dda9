"""A consumer's machine without any shell: a test says what happens and sees what it wants done."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from moldau.client.consumer.rules.assignors import Assignor, require_assignor
from moldau.client.consumer.rules.classic_membership import ClassicMembership, Joined
from moldau.client.consumer.rules.fetch_buffer import Decoding, Position
from moldau.client.consumer.rules.instructions import (
    ArmTimer,
    ConsumerInstruction,
    ConsumerTimer,
    Fetch,
    LookUpCommitted,
    LookUpOffsets,
    Refresh,
    SendJoin,
    SendSync,
    TimerKind,
)
from moldau.client.consumer.rules.machine import ConsumerMachine
from moldau.client.consumer.rules.offset_manager import CommitMode
from moldau.client.consumer.rules.rebalance_listener import RebalanceEvent
from moldau.client.consumer.rules.subscription_state import subscribe_to
from moldau.client.rules.broker_errors import Backoff
from moldau.client.rules.cluster_metadata import (
    Address,
    Broker,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
)
from moldau.config.client_options import ConsumerOptions
from moldau.model import TopicPartition
from moldau.records.record import NewRecord
from moldau.records.record_batch import build_batch
from moldau.wire.consumer_protocol import Assignment, encode_assignment
from moldau.wire.fetch_exchange import AnsweredPartition, AnsweredTopic, FetchAnswer

T = TypeVar("T")
I_ = TypeVar("I_")

ZERO, ONE, TWO = (TopicPartition("t", index) for index in range(3))
ALL_EVENTS = frozenset(RebalanceEvent)


def describe_cluster(
    leaders: Sequence[int] = (1, 1, 1), leader_epoch: int = 0, broker_ids: Collection[int] = (1, 2)
) -> ClusterMetadata:
    """Topic t, with a partition for each leader."""
    partitions = tuple(
        PartitionMetadata(index=index, leader_id=leader, leader_epoch=leader_epoch)
        for index, leader in enumerate(leaders)
    )
    return ClusterMetadata(
        brokers={one: Broker(id=one, address=Address("b", 9000 + one)) for one in broker_ids},
        topics={"t": TopicMetadata(name="t", partitions=partitions)},
    )


def batch(first_offset: int, count: int, leader_epoch: int = 0) -> memoryview:
    rows = [NewRecord(0, None, b"%d" % (first_offset + index)) for index in range(count)]
    return memoryview(build_batch(rows, base_offset=first_offset, leader_epoch=leader_epoch))


class Story:
    """The machine, the time, and all that it wanted and was not looked at yet."""

    def __init__(
        self,
        *,
        group_id: str | None = "g",
        assignor: str | Assignor = "range",
        commit_mode: CommitMode = CommitMode.AFTER,
        listened_to: Collection[RebalanceEvent] = (),
        **options: object,
    ) -> None:
        self.now = 1000.0
        self.cluster = describe_cluster()
        self.wanted: list[ConsumerInstruction] = []
        self.had_news = False  # of the last turn
        chosen = require_assignor(assignor)
        self.machine = ConsumerMachine(
            ConsumerOptions.read({"auto_offset_reset": "earliest", **options}),
            group_id=group_id,
            commit_mode=commit_mode,
            assignors=[chosen],
            member_id="mine",
            listened_to=listened_to,
            decoding=Decoding(),
            backoff=Backoff(jitter=0.0),
            chance=lambda: 0.5,
            now=self.now,
        )

    @property
    def membership(self) -> ClassicMembership:
        return self.machine.require_classic_membership()

    def happen(self, event: Callable[[ConsumerMachine], T]) -> T:
        """One turn."""
        self.machine.begin_turn(self.now, round(self.now * 1000), self.cluster)
        try:
            return event(self.machine)
        finally:
            instructions, self.had_news = self.machine.end_turn()
            self.wanted += instructions

    def take(self, kind: type[I_]) -> list[I_]:
        """The instructions of this kind that nobody has looked at."""
        found = [one for one in self.wanted if isinstance(one, kind)]
        self.wanted = [one for one in self.wanted if not isinstance(one, kind)]
        return found

    def take_one(self, kind: type[I_]) -> I_:
        found = self.take(kind)
        assert len(found) == 1, (kind, found, self.wanted)
        return found[0]

    def fire(self, kind: TimerKind) -> None:
        """Let the time pass until the newest timer of this kind is over."""
        timers = [one for one in self.take(ArmTimer) if one.timer.kind is kind]
        assert timers, kind
        self.now += timers[-1].seconds
        timer = ConsumerTimer(kind, timers[-1].timer.key)
        self.happen(lambda machine: machine.timer_fired(timer))

    # The program

    def subscribe(self, *topics: str) -> None:
        selection = subscribe_to(topics, None, None, with_internal=False)
        self.happen(lambda machine: machine.subscribe(selection))

    def wait_for_records(self) -> bool:
        """The program asks for records; whether nothing had to be done before it was served."""
        stream = self.machine.streams.first

        def ask(machine: ConsumerMachine) -> bool:
            machine.begin_poll(stream)
            return machine.prepare_poll(stream)

        is_served = self.happen(ask)
        if not is_served and self.machine.next_listener_call() is None:
            self.happen(lambda machine: machine.fill_buffer(stream))
        return is_served

    def go_on(self) -> None:
        self.happen(lambda machine: machine.end_poll(machine.streams.first))

    def poll(self, limit: int = 500) -> list[int]:
        """The values of what there is to take."""
        self.wait_for_records()
        taken = self.machine.streams.first.buffer.take_records(limit)
        self.go_on()
        return [int(record.value or b"") for record in taken]

    def make_call(self) -> tuple[RebalanceEvent, frozenset[TopicPartition]]:
        """The program calls the function that is due."""
        call = self.machine.next_listener_call()
        assert call is not None
        self.happen(lambda machine: machine.mark_call_begun(call))
        self.happen(lambda machine: machine.listener_called(call))
        return call.event, call.partitions

    # The brokers

    def refresh(self) -> None:
        asked = self.take_one(Refresh)
        self.happen(lambda machine: machine.refreshed(asked))

    def answer_join(self, generation_id: int = 1, member_id: str = "m") -> None:
        """As a member that does not lead."""
        self.take_one(SendJoin)
        joined = Joined(generation_id, member_id, "somebody else", "range")
        self.happen(lambda machine: machine.require_classic_membership().joined(joined))

    def answer_sync(self, *assigned: TopicPartition) -> None:
        self.take_one(SendSync)
        data = encode_assignment(Assignment(assigned))
        self.happen(lambda machine: machine.require_classic_membership().synced(data))

    def answer_look_ups(self, offset: int = 0) -> None:
        """Nothing is committed, and the logs begin here."""
        for committed in self.take(LookUpCommitted):
            nothing = dict.fromkeys(committed.partitions)
            self.happen(lambda machine, found=nothing: machine.found_committed(found))
        for asked in self.take(LookUpOffsets):
            found = dict.fromkeys(asked.timestamps, Position(offset))
            self.happen(lambda machine, a=asked, f=found: machine.found_offsets(a, f))

    def answer_fetch(self, fetch: Fetch, **rows: Any) -> None:
        """Records, or an error code, by partition: `p0=...`."""
        self.happen(lambda machine: machine.fetch_plan.fetched(fetch, answer(rows)))

    def join(self, *assigned: TopicPartition, generation_id: int = 1) -> None:
        """From nothing to a member with these partitions, about to fetch."""
        self.subscribe("t")
        self.wait_for_records()
        self.go_on()
        self.answer_join(generation_id)
        self.answer_sync(*assigned)
        self.answer_look_ups()


def answer(rows: dict[str, Any], throttle_time_ms: int = 0) -> FetchAnswer:
    answered = [
        AnsweredPartition(
            int(name[1:]),
            found if isinstance(found, int) else 0,
            100,
            100,
            0,
            (),
            -1,
            memoryview(b"") if isinstance(found, int) else found,
        )
        for name, found in rows.items()
    ]
    return FetchAnswer(throttle_time_ms, 0, 0, [AnsweredTopic("t", None, answered)])
