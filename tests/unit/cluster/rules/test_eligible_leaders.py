"""Who may lead although it is not in sync (KIP-966)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.cluster.rules.broker_shutdown import (
    ReplicaCondition,
    plan_broker_start,
    plan_controlled_shutdown,
)
from moldau.cluster.rules.leader_election import (
    decide_partition_state,
    effective_min_in_sync,
    last_known_replicas,
    with_in_sync,
    with_in_sync_by_leader,
    with_leader,
)
from moldau.cluster.rules.metadata_image import PartitionState
from moldau.model import BrokerId

from .partitions import NOBODY, ids, partition, topic


@pytest.mark.parametrize(
    ("wanted", "replicas", "counted"), [(1, 3, 1), (2, 3, 2), (2, 1, 1), (5, 3, 3)]
)
def test_no_more_must_be_in_sync_than_there_are_replicas(
    wanted: int, replicas: int, counted: int
) -> None:
    assert effective_min_in_sync(wanted, replicas) == counted


def sets_of(state: PartitionState) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    return state.isr, state.elr, state.last_known_elr


def test_who_leaves_while_enough_stay_is_not_eligible() -> None:
    state = with_in_sync(partition(1, [1, 2, 3], [1, 2, 3]), ids(1, 2), min_in_sync=2)
    assert sets_of(state) == ((1, 2), (), ())


def test_who_leaves_too_few_behind_is_eligible_and_stays_so_while_there_are_too_few() -> None:
    state = with_in_sync(partition(1, [1, 2, 3], [1, 2, 3, 4]), ids(1, 2), min_in_sync=3)
    assert sets_of(state) == ((1, 2), (3,), ())
    state = with_in_sync(state, ids(1), min_in_sync=3)
    assert sets_of(state) == ((1,), (2, 3), ())
    state = with_in_sync(state, ids(1, 3), min_in_sync=3)
    assert sets_of(state) == ((1, 3), (2,), ())
    state = with_in_sync(state, ids(1, 3, 4), min_in_sync=3)
    assert sets_of(state) == ((1, 3, 4), (), ())


def test_nobody_is_eligible_where_one_in_sync_is_enough() -> None:
    state = with_in_sync(partition(1, [1, 2], [1, 2]), ids(1), min_in_sync=1)
    assert sets_of(state) == ((1,), (), ())


def test_what_counts_is_the_number_of_replicas() -> None:
    state = with_in_sync(partition(1, [1, 2], [1, 2]), ids(1), min_in_sync=9)
    assert sets_of(state) == ((1,), (2,), ())
    state = with_in_sync(state, ids(1, 2), min_in_sync=9)
    assert sets_of(state) == ((1, 2), (), ())


def test_who_has_a_hole_is_remembered_even_while_enough_are_in_sync() -> None:
    """A whole cluster that lost power says so one after the other."""
    state = partition(1, [1, 2, 3], [1, 2, 3])
    state = with_in_sync(state, ids(2, 3), min_in_sync=2, holed=ids(1))
    assert sets_of(state) == ((2, 3), (), (1,))
    state = with_in_sync(state, ids(3), min_in_sync=2, holed=ids(2))
    assert sets_of(state) == ((3,), (), (1, 2))
    state = with_in_sync(state, (), min_in_sync=2, holed=ids(3))
    assert sets_of(state) == ((), (), (1, 2, 3))


def test_the_last_known_are_forgotten_by_a_leader_with_enough_in_sync() -> None:
    state = partition(1, [1], [1, 2, 3], last_known=[3])
    assert with_in_sync(state, ids(1, 2), min_in_sync=2).last_known_elr == (3,)
    assert with_in_sync_by_leader(state, ids(1, 2), min_in_sync=2).last_known_elr == ()
    assert with_in_sync_by_leader(state, ids(1, 2), min_in_sync=3).last_known_elr == (3,)


def test_who_comes_in_again_is_neither_eligible_nor_merely_known() -> None:
    state = partition(1, [1], [1, 2, 3, 4], elr=[2], last_known=[3])
    assert sets_of(with_in_sync_by_leader(state, ids(1, 3), min_in_sync=3)) == ((1, 3), (2,), ())


def test_who_is_no_replica_any_more_is_forgotten() -> None:
    state = partition(1, [1], [1, 2], elr=[3], last_known=[4])
    assert sets_of(with_in_sync(state, ids(1), min_in_sync=2)) == ((1,), (), ())


def test_the_last_leader_is_remembered_while_nobody_leads() -> None:
    nobody = with_leader(partition(2, [2], [1, 2]), NOBODY)
    assert (nobody.leader, nobody.leader_epoch, nobody.last_known_leader) == (NOBODY, 6, 2)
    assert with_leader(nobody, NOBODY).last_known_leader == 2
    assert with_leader(nobody, BrokerId(1)).last_known_leader == NOBODY


def test_the_last_known_are_those_with_a_hole_and_the_last_leader() -> None:
    state = partition(NOBODY, [], [1, 2, 3, 4], last_known=[3], last_leader=4)
    assert last_known_replicas(state) == (3, 4)


def test_where_nothing_was_noted_it_may_be_anybody() -> None:
    assert last_known_replicas(partition(NOBODY, [], [1, 2, 3])) == (1, 2, 3)


# The promise: whoever is in sync or eligible has all that was ever committed.


@dataclass
class Model:
    """One partition: what its state says, and what its logs hold. Logs are as long as they are;
    that they agree is the matter of other rules."""

    state: PartitionState
    ends: dict[BrokerId, int]
    alive: set[BrokerId] = field(default_factory=set)
    min_in_sync: int = 2  # as the leader sees it
    committed: int = 0
    holed: set[BrokerId] = field(default_factory=set)  # have lost something and not said so yet

    @property
    def leads(self) -> bool:
        return self.state.leader in self.alive

    def append(self, broker: BrokerId) -> None:
        if self.leads:
            self.ends[self.state.leader] += 1

    def fetch(self, broker: BrokerId) -> None:
        """A follower copies what it lacks, and gives up what its leader has not."""
        if self.leads and broker in self.alive and broker != self.state.leader:
            self.ends[broker] = self.ends[self.state.leader]

    def produce(self, broker: BrokerId) -> None:
        """Append, and copy to all that live: what happens most of the time."""
        self.append(broker)
        for other in sorted(self.alive):
            self.fetch(other)
        self.commit(broker)

    def commit(self, broker: BrokerId) -> None:
        """The rule of `Leadership.may_commit`: ELR-1."""
        needed = effective_min_in_sync(self.min_in_sync, len(self.state.replicas))
        if self.leads and not self.state.elr and len(self.state.isr) >= needed:
            ends = [self.ends[other] for other in self.state.isr]
            self.committed = max(self.committed, min(ends))

    def shrink(self, broker: BrokerId) -> None:
        if self.leads and broker in self.state.isr and broker != self.state.leader:
            isr = tuple(other for other in self.state.isr if other != broker)
            self.state = with_in_sync_by_leader(self.state, isr, min_in_sync=self.min_in_sync)

    def expand(self, broker: BrokerId) -> None:
        is_near = self.ends[broker] >= self.committed and broker in self.alive
        if self.leads and is_near and broker not in self.state.isr:
            isr = (*self.state.isr, broker)
            self.state = with_in_sync_by_leader(self.state, isr, min_in_sync=self.min_in_sync)

    def settle(self, broker: BrokerId) -> None:
        if self.leads:
            self.state = with_in_sync_by_leader(
                self.state, self.state.isr, min_in_sync=self.min_in_sync
            )

    def configure(self, broker: BrokerId) -> None:
        """The leader hears of another `min.insync.replicas` before the others do."""
        self.min_in_sync = int(broker)

    def kill(self, broker: BrokerId) -> None:
        self.alive.discard(broker)

    def die(self, broker: BrokerId) -> None:
        """Killed, and the controller hears of it."""
        self.kill(broker)
        self.elect(broker)

    def lose_power(self, broker: BrokerId) -> None:
        self.alive.discard(broker)
        self.ends[broker] //= 2
        self.holed.add(broker)

    def come_back(self, broker: BrokerId) -> None:
        if broker in self.alive:
            return
        condition = ReplicaCondition.HOLE if broker in self.holed else ReplicaCondition.WHOLE
        plan = plan_broker_start(
            [topic(self.state)],
            broker,
            tuple(self.alive),
            lambda *_: condition,
            min_in_sync_of=lambda _: 2,
        )
        for one in plan:
            self.state = one.state
        self.holed.discard(broker)
        self.alive.add(broker)

    def stop(self, broker: BrokerId) -> None:
        if broker in self.alive:
            plan = plan_controlled_shutdown(
                [topic(self.state)], broker, tuple(self.alive), min_in_sync_of=lambda _: 2
            )
            for one in plan:
                self.state = one.state
            self.alive.discard(broker)

    def elect(self, broker: BrokerId) -> None:
        state = decide_partition_state(
            self.state, tuple(self.alive), min_in_sync=2, controller_epoch=4
        )
        self.state = self.state if state is None else state

    def check(self) -> None:
        state = self.state
        promised = [b for b in (*state.isr, *state.elr) if b not in self.holed]
        assert all(self.ends[b] >= self.committed for b in promised), (self.ends, self.committed)
        assert not {*state.isr} & {*state.elr}
        assert not {*state.last_known_elr} & {*state.isr, *state.elr}
        assert {*state.isr, *state.elr, *state.last_known_elr} <= {*state.replicas}
        assert state.leader == NOBODY or state.leader in state.isr


_EVENTS = (
    Model.produce,
    Model.append,
    Model.fetch,
    Model.commit,
    Model.shrink,
    Model.expand,
    Model.settle,
    Model.configure,
    Model.kill,
    Model.die,
    Model.lose_power,
    Model.come_back,
    Model.stop,
    Model.elect,
)


@settings(max_examples=500)
@given(st.lists(st.tuples(st.sampled_from(_EVENTS), st.sampled_from(ids(1, 2, 3))), max_size=60))
def test_whoever_is_in_sync_or_eligible_has_all_that_was_committed(
    events: list[tuple[Callable[[Model, BrokerId], None], BrokerId]],
) -> None:
    everybody = ids(1, 2, 3)
    model = Model(
        state=replace(partition(1, [1, 2, 3], [1, 2, 3])),
        ends=dict.fromkeys(everybody, 0),
        alive=set(everybody),
    )
    for happen, broker in events:
        happen(model, broker)
        model.check()
