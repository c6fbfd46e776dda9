"""Who reads what: balance, stickiness, ranges and racks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.coordinators.groups.rules.assigned_partitions import AssignedPartitions
from moldau.coordinators.groups.rules.assignors import (
    ASSIGNORS,
    AssignableMember,
    AssignableTopic,
    assign_ranges,
    assign_uniformly,
)

A, B, C = (UUID(int=number) for number in (1, 2, 3))
IDS = (A, B, C)

counts = st.dictionaries(st.sampled_from(IDS), st.integers(1, 9), min_size=1)
wishes = st.lists(st.sets(st.sampled_from(IDS), min_size=1), min_size=1, max_size=6)


def topics_of(counts: Mapping[UUID, int]) -> dict[UUID, AssignableTopic]:
    return {one: AssignableTopic(one, count) for one, count in counts.items()}


def member(
    name: str,
    *topics: UUID,
    former: AssignedPartitions | None = None,
    rack: str | None = None,
    instance: str | None = None,
) -> AssignableMember:
    return AssignableMember(name, instance, rack, frozenset(topics), former or {})


def load(partitions: AssignedPartitions) -> int:
    return sum(map(len, partitions.values()))


@pytest.mark.parametrize("name", ASSIGNORS)
@given(wishes=wishes, counts=counts)
def test_every_partition_that_somebody_wants_has_one_reader_who_wants_it(
    name: str, wishes: Sequence[set[UUID]], counts: Mapping[UUID, int]
) -> None:
    members = [member(f"m{number}", *wish) for number, wish in enumerate(wishes)]
    topics = topics_of(counts)
    targets = ASSIGNORS[name](members, topics)
    assert targets.keys() == {one.member_id for one in members}
    given_out = [
        (topic_id, partition)
        for one in members
        for topic_id, some in targets[one.member_id].items()
        for partition in some
        if topic_id in one.topics or pytest.fail("nobody asked for that")
    ]
    wanted = set().union(*wishes)
    assert sorted(given_out) == sorted(
        (one, partition)
        for one, topic in topics.items()
        if one in wanted
        for partition in range(topic.partition_count)
    )


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4), counts=counts)
def test_uniform_keeps_loads_within_one_of_each_other_whoever_comes_and_goes(
    sizes: Sequence[int], counts: Mapping[UUID, int]
) -> None:
    former: dict[str, AssignedPartitions] = {}
    topics = topics_of(counts)
    for size in sizes:
        members = [
            member(f"m{number}", *IDS, former=former.get(f"m{number}")) for number in range(size)
        ]
        targets = assign_uniformly(members, topics)
        loads = [load(target) for target in targets.values()]
        assert max(loads) - min(loads) <= 1
        former = targets


@given(wishes=wishes, counts=counts)
def test_uniform_leaves_no_single_move_that_would_make_loads_more_alike(
    wishes: Sequence[set[UUID]], counts: Mapping[UUID, int]
) -> None:
    members = [member(f"m{number}", *wish) for number, wish in enumerate(wishes)]
    targets = assign_uniformly(members, topics_of(counts))
    for giver in members:
        for receiver in members:
            could_move = targets[giver.member_id].keys() & set(receiver.topics)
            more = load(targets[giver.member_id]) - load(targets[receiver.member_id])
            assert not could_move or more <= 1


def test_uniform_moves_no_more_than_a_newcomer_needs() -> None:
    topics = topics_of({A: 10})
    before = assign_uniformly([member("m0", A), member("m1", A)], topics)
    olds = [member(name, A, former=before[name]) for name in ("m0", "m1")]
    after = assign_uniformly([*olds, member("m2", A)], topics)
    assert load(after["m2"]) == 3
    for name in ("m0", "m1"):
        assert after[name][A] < before[name][A]


def test_uniform_gives_back_nothing_that_is_not_there_any_more() -> None:
    former = {A: frozenset({0, 7}), B: frozenset({0})}
    targets = assign_uniformly([member("m0", A, B, former=former)], topics_of({A: 2}))
    assert targets == {"m0": {A: frozenset({0, 1})}}


def test_uniform_prefers_readers_in_a_rack_of_the_partition() -> None:
    racks = [frozenset({"east"}), frozenset({"west"})] * 3
    topics = {A: AssignableTopic(A, 6, racks)}
    targets = assign_uniformly([member("m0", A, rack="west"), member("m1", A, rack="east")], topics)
    assert targets == {"m0": {A: frozenset({1, 3, 5})}, "m1": {A: frozenset({0, 2, 4})}}


def test_ranges_are_contiguous_and_the_same_for_topics_of_the_same_size() -> None:
    members = [member(f"m{number}", A, B) for number in range(3)]
    targets = assign_ranges(members, topics_of({A: 7, B: 7}))
    for target in targets.values():
        assert target[A] == target[B]
    assert [sorted(targets[f"m{number}"][A]) for number in range(3)] == [[0, 1, 2], [3, 4], [5, 6]]


def test_a_static_member_keeps_its_range_under_another_id() -> None:
    def ranges(first: str) -> AssignedPartitions:
        static = member(first, A, instance="i1")
        return assign_ranges([static, member("m5", A)], topics_of({A: 4}))[first]

    assert ranges("m1") == ranges("m9") == {A: frozenset({0, 1})}


def test_ranges_prefer_readers_in_a_rack_of_the_partition() -> None:
    racks = [frozenset({"east"}), frozenset({"west"})]
    topics = {A: AssignableTopic(A, 2, racks)}
    targets = assign_ranges([member("m0", A, rack="west"), member("m1", A, rack="east")], topics)
    assert targets == {"m0": {A: frozenset({1})}, "m1": {A: frozenset({0})}}
