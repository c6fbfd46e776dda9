"""The share coordinator's machine: what is fenced, when snapshots are written, and that a log that
was pruned says the same as the whole one."""

from __future__ import annotations

from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from moldau.coordinators.shares.rules.records import (
    NO_COUNT,
    NO_START_OFFSET,
    DeliveryState,
    SharePartitionKey,
    ShareStateRecord,
    ShareStateWrite,
    SnapshotRecord,
    StateBatch,
    UpdateRecord,
    coordinator_key,
    decode_share_state,
    encode_share_state,
)
from moldau.coordinators.shares.rules.share_states import (
    DeleteState,
    InitializeState,
    ReadState,
    ShareStates,
    SnapshotState,
    StateAnswer,
    StateEvent,
    SummarizeState,
    WriteState,
)
from moldau.errors import ErrorCode

KEY = SharePartitionKey("takers", UUID(int=7), 0)
OTHER = SharePartitionKey("takers", UUID(int=7), 1)
DONE = DeliveryState.ACKNOWLEDGED


class Shard:
    """The machine with its log, as the shell has it."""

    def __init__(self, updates_per_snapshot: int = 3) -> None:
        self.states = ShareStates()
        self.log: list[ShareStateRecord] = []
        self.start_offset = 0
        self.now_ms = 1_000
        self.updates_per_snapshot = updates_per_snapshot
        self.has_topic = True

    @property
    def end_offset(self) -> int:
        return self.start_offset + len(self.log)

    def do(self, event: StateEvent) -> StateAnswer:
        outcome = self.states.handle(
            event,
            self.now_ms,
            has_partition=lambda key: self.has_topic,
            updates_per_snapshot=self.updates_per_snapshot,
        )
        for record in outcome.records:
            self.states.apply(record._replace(offset=self.end_offset))
            self.log.append(record)
        return outcome.answer

    def write(
        self,
        *batches: StateBatch,
        key: SharePartitionKey = KEY,
        state_epoch: int = 1,
        leader_epoch: int = 0,
        start_offset: int = NO_START_OFFSET,
        count: int = NO_COUNT,
    ) -> ErrorCode:
        change = ShareStateWrite(state_epoch, leader_epoch, start_offset, count, batches)
        return self.do(WriteState(key, change)).error

    def read(self, leader_epoch: int = 0, key: SharePartitionKey = KEY) -> StateAnswer:
        return self.do(ReadState(key, leader_epoch))

    def reload(self) -> ShareStates:
        states = ShareStates()
        for offset, record in enumerate(self.log, start=self.start_offset):
            read = decode_share_state(*encode_share_state(record))
            assert read is not None
            states.apply(read._replace(offset=offset))
        return states

    def prune(self) -> None:
        needed = self.states.needed_from(self.end_offset)
        del self.log[: needed - self.start_offset]
        self.start_offset = needed


def begun(updates_per_snapshot: int = 3) -> Shard:
    shard = Shard(updates_per_snapshot)
    assert shard.do(InitializeState(KEY, 1, NO_START_OFFSET)).error is ErrorCode.none
    return shard


def test_a_share_partition_is_known_by_group_topic_and_partition() -> None:
    assert coordinator_key(KEY) == "takers:AAAAAAAAAAAAAAAAAAAABw:0"


def test_what_was_written_is_read() -> None:
    shard = begun()
    assert shard.read().start_offset == NO_START_OFFSET
    assert shard.write(StateBatch(10, 19, DONE, 1), start_offset=10, count=10) is ErrorCode.none
    answer = shard.read()
    assert (answer.state_epoch, answer.start_offset) == (1, 10)
    assert answer.batches == (StateBatch(10, 19, DONE, 1),)
    summary = shard.do(SummarizeState(KEY, -1))
    assert (summary.start_offset, summary.delivery_complete_count) == (10, 10)


def test_a_state_that_was_not_begun_is_neither_read_nor_written() -> None:
    shard = Shard()
    assert shard.read().error is ErrorCode.invalid_request
    assert shard.write(start_offset=3) is ErrorCode.invalid_request
    assert shard.do(SummarizeState(KEY, -1)).start_offset == NO_START_OFFSET
    assert shard.log == []


def test_an_earlier_leader_is_fenced_as_soon_as_a_later_one_has_read() -> None:
    shard = begun()
    assert shard.read(leader_epoch=5).error is ErrorCode.none
    assert shard.write(leader_epoch=4, start_offset=1) is ErrorCode.fenced_leader_epoch
    assert shard.read(leader_epoch=4).error is ErrorCode.fenced_leader_epoch
    assert shard.reload().find(KEY) == shard.states.find(KEY)  # the next coordinator fences, too
    assert shard.write(leader_epoch=5, start_offset=1) is ErrorCode.none


def test_a_leader_that_does_not_know_that_a_write_counts_takes_nothing_back() -> None:
    shard = begun()
    shard.write(StateBatch(15, 18, DONE, 1), start_offset=14)
    shard.write(start_offset=19)  # its answer is lost
    shard.write(StateBatch(19, 19, DeliveryState.AVAILABLE, 1), start_offset=14)
    answer = shard.read()
    assert answer.start_offset == 19, "SHS-6"
    assert answer.batches == (StateBatch(19, 19, DeliveryState.AVAILABLE, 1),)
    assert shard.reload().find(KEY) == shard.states.find(KEY)


def test_the_next_leader_may_go_back_once_if_its_log_has_lost_its_end() -> None:
    for is_cold in (False, True):
        shard = begun()
        shard.write(start_offset=19)
        assert shard.read(leader_epoch=1).start_offset == 19
        if is_cold:
            shard.do(SnapshotState(KEY))  # says nothing new
        shard.write(leader_epoch=1, start_offset=12)
        assert shard.read(leader_epoch=1).start_offset == 12
        shard.write(leader_epoch=1, start_offset=15)
        shard.write(leader_epoch=1, start_offset=12)  # comes again, and late
        assert shard.read(leader_epoch=1).start_offset == 15


def test_a_state_that_was_begun_anew_fences_who_read_the_former_one() -> None:
    shard = begun()
    shard.write(StateBatch(0, 9, DONE, 1), start_offset=0)
    assert shard.do(InitializeState(KEY, 2, 100)).error is ErrorCode.none
    assert shard.write(start_offset=10, state_epoch=1) is ErrorCode.fenced_state_epoch
    answer = shard.read()
    assert (answer.state_epoch, answer.start_offset, answer.batches) == (2, 100, ())
    assert shard.do(InitializeState(KEY, 1, 0)).error is ErrorCode.fenced_state_epoch


def test_a_beginning_that_comes_twice_changes_nothing() -> None:
    shard = begun()
    shard.write(StateBatch(0, 9, DONE, 1), start_offset=0)
    before = shard.states.find(KEY)
    assert shard.do(InitializeState(KEY, 1, NO_START_OFFSET)).error is ErrorCode.none
    assert shard.states.find(KEY) == before, "SHS-4"


def test_after_enough_updates_everything_is_written() -> None:
    shard = begun(updates_per_snapshot=2)
    for offset in range(7):
        assert shard.write(StateBatch(offset, offset, DONE, 1), start_offset=0) is ErrorCode.none
    kinds = ["snapshot" if isinstance(one, SnapshotRecord) else "update" for one in shard.log]
    assert kinds == [*(("snapshot", "update", "update") * 2), "snapshot", "update"]
    epochs = [one.value.snapshot_epoch for one in shard.log if one.value is not None]
    assert epochs == [0, 0, 0, 1, 1, 1, 2, 2]


def test_a_deleted_state_leaves_a_tombstone_and_nothing_else() -> None:
    shard = begun()
    shard.has_topic = False
    assert shard.do(DeleteState(KEY)).error is ErrorCode.none
    assert isinstance(shard.log[-1], SnapshotRecord)
    assert shard.log[-1].value is None
    assert len(shard.states) == len(shard.reload()) == 0
    assert shard.states.needed_from(shard.end_offset) == shard.end_offset
    count = len(shard.log)
    assert shard.do(DeleteState(KEY)).error is ErrorCode.none
    assert len(shard.log) == count


def test_a_topic_that_is_not_there_has_no_state() -> None:
    shard = begun()
    shard.has_topic = False
    assert shard.read().error is ErrorCode.unknown_topic_or_partition
    assert shard.write(start_offset=1) is ErrorCode.unknown_topic_or_partition


def test_a_key_that_cannot_be_is_refused() -> None:
    shard = Shard()
    for key, why in (
        (KEY._replace(group_id=""), "a group with a name"),
        (KEY._replace(topic_id=UUID(int=0)), "a topic with an id"),
        (KEY._replace(partition=-1), "no partition -1"),
    ):
        answer = shard.read(key=key)
        assert answer.error is ErrorCode.invalid_request
        assert why in (answer.message or "")


def test_a_cold_partition_is_written_anew_when_that_frees_something() -> None:
    shard = begun(updates_per_snapshot=1)
    shard.do(InitializeState(OTHER, 1, NO_START_OFFSET))
    assert shard.states.cold_keys(shard.now_ms + 1, shard.end_offset) == []
    shard.now_ms += 1_000
    for offset in range(8):
        shard.write(StateBatch(offset, offset, DONE, 1), key=OTHER, start_offset=0)
    assert shard.states.needed_from(shard.end_offset) == 0
    assert shard.states.cold_keys(shard.now_ms, shard.end_offset) == [KEY]
    shard.do(SnapshotState(KEY))
    assert shard.states.needed_from(shard.end_offset) > 0
    assert shard.states.cold_keys(shard.now_ms, shard.end_offset) == []


def test_a_write_that_leaves_the_start_where_it_is_counts() -> None:
    shard = begun()
    shard.write(start_offset=10, count=2)
    shard.write(start_offset=10, count=5)
    assert shard.do(SummarizeState(KEY, -1)).delivery_complete_count == 5
    shard.write(start_offset=9, count=7)
    summary = shard.do(SummarizeState(KEY, -1))
    assert (summary.start_offset, summary.delivery_complete_count) == (10, 5)


def test_a_state_that_begins_at_an_offset_has_completed_nothing() -> None:
    shard = begun()
    assert shard.do(SummarizeState(KEY, -1)).delivery_complete_count == NO_COUNT
    shard.do(InitializeState(KEY, 2, 10))
    summary = shard.do(SummarizeState(KEY, -1))
    assert (summary.start_offset, summary.delivery_complete_count) == (10, 0)


def test_two_records_for_each_partition_are_kept_as_they_are() -> None:
    shard = begun(updates_per_snapshot=1)
    shard.do(InitializeState(OTHER, 1, NO_START_OFFSET))
    for offset in range(2):
        shard.write(StateBatch(offset, offset, DONE, 1), key=OTHER, start_offset=0)
    assert shard.end_offset == 4
    shard.now_ms += 1
    assert shard.states.cold_keys(shard.now_ms, shard.end_offset) == []
    shard.write(StateBatch(2, 2, DONE, 1), key=OTHER, start_offset=0)
    assert shard.states.cold_keys(shard.now_ms, shard.end_offset) == [KEY, OTHER]


def test_cold_partitions_have_their_turn_though_few_are_written_anew_at_once() -> None:
    shard = begun(updates_per_snapshot=100)
    shard.do(InitializeState(OTHER, 1, NO_START_OFFSET))
    written = []
    for round_ in range(4):
        for offset in range(8):
            at = 8 * round_ + offset
            shard.write(StateBatch(at, at, DONE, 1), key=KEY, start_offset=at)
        shard.now_ms += 1_000
        key = shard.states.cold_keys(shard.now_ms, shard.end_offset)[0]
        shard.do(SnapshotState(key))
        written.append(key)
    assert written == [KEY, OTHER, KEY, OTHER]


def test_an_update_without_its_snapshot_says_nothing() -> None:
    shard = begun()
    shard.write(start_offset=4)
    assert isinstance(shard.log[-1], UpdateRecord)
    states = ShareStates()
    states.apply(shard.log[-1])
    assert len(states) == 0


KEYS = st.sampled_from([KEY, OTHER])
EPOCHS = st.integers(0, 3)


class Coordinator(RuleBasedStateMachine):
    """Whatever is asked, a log that was pruned and loaded again says the same, and nobody who is
    behind changes anything."""

    def __init__(self) -> None:
        super().__init__()
        self.shard = Shard(updates_per_snapshot=2)

    @rule(key=KEYS, epoch=EPOCHS, start=st.integers(-1, 20))
    def initialize(self, key: SharePartitionKey, epoch: int, start: int) -> None:
        before = self.shard.states.find(key)
        error = self.shard.do(InitializeState(key, epoch, start)).error
        after = self.shard.states.find(key)
        assert after is not None
        if before is not None and epoch <= before.state_epoch:
            assert after == before, "SHS-4"
            assert (error is ErrorCode.none) == (epoch == before.state_epoch)

    @rule(key=KEYS, epoch=EPOCHS)
    def read(self, key: SharePartitionKey, epoch: int) -> None:
        before = self.shard.states.find(key)
        error = self.shard.read(epoch, key).error
        if before is not None:
            assert (error is ErrorCode.fenced_leader_epoch) == (epoch < before.leader_epoch)

    @rule(
        key=KEYS,
        state_epoch=EPOCHS,
        leader_epoch=EPOCHS,
        start=st.integers(-1, 20),
        first=st.integers(0, 30),
        size=st.integers(1, 5),
        count=st.integers(1, 3),
    )
    def write(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        leader_epoch: int,
        start: int,
        first: int,
        size: int,
        count: int,
    ) -> None:
        before = self.shard.states.find(key)
        error = self.shard.write(
            StateBatch(first, first + size - 1, DONE, count),
            key=key,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start,
        )
        after = self.shard.states.find(key)
        is_behind = before is None or (
            leader_epoch < before.leader_epoch or state_epoch != before.state_epoch
        )
        assert (error is ErrorCode.none) != is_behind, "SHS-2"
        if is_behind:
            assert after == before, "SHS-2"

    @rule(key=KEYS)
    def delete(self, key: SharePartitionKey) -> None:
        self.shard.do(DeleteState(key))

    @rule()
    def snapshot_cold(self) -> None:
        self.shard.now_ms += 10
        for key in self.shard.states.cold_keys(self.shard.now_ms, self.shard.end_offset):
            self.shard.do(SnapshotState(key))

    @rule()
    def prune(self) -> None:
        self.shard.prune()

    @invariant()
    def reloading_changes_nothing(self) -> None:
        again = self.shard.reload()
        assert set(again) == set(self.shard.states), "SHS-3"
        for key in again:
            assert again.find(key) == self.shard.states.find(key), "SHS-3"
        end_offset = self.shard.end_offset
        assert again.needed_from(end_offset) == self.shard.states.needed_from(end_offset)


TestCoordinator = Coordinator.TestCase
TestCoordinator.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
