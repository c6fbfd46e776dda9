"""The simple assignor of share groups: everything is taken from, everybody has something, and loads
are alike (SHG-4)."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from moldau.coordinators.groups.rules.assigned_partitions import AssignedPartitions
from moldau.coordinators.groups.rules.assignors import (
    AssignableShareMember,
    assign_simply,
    wanted_partitions,
)

CLICKS, ORDERS = UUID(int=1), UUID(int=2)


def takers(count: int, *topics: UUID, **former: AssignedPartitions) -> list[AssignableShareMember]:
    return [
        AssignableShareMember(name, frozenset(topics or (CLICKS,)), former.get(name, {}))
        for name in (chr(ord("a") + number) for number in range(count))
    ]


def whole(topic: UUID, count: int) -> AssignedPartitions:
    return {topic: frozenset(range(count))}


def test_partitions_are_dealt_out() -> None:
    targets = assign_simply(takers(2), whole(CLICKS, 4))
    assert targets == {"a": {CLICKS: frozenset({0, 2})}, "b": {CLICKS: frozenset({1, 3})}}


def test_members_share_partitions_where_they_are_more() -> None:
    targets = assign_simply(takers(5), whole(CLICKS, 2))
    assert targets == {
        name: {CLICKS: frozenset({number % 2})} for number, name in enumerate("abcde")
    }


def test_who_has_something_keeps_it() -> None:
    before = assign_simply(takers(3), whole(CLICKS, 3))
    after = assign_simply(takers(2, a=before["b"], b=before["a"]), whole(CLICKS, 3))
    assert after["a"][CLICKS] >= before["b"][CLICKS]
    assert after["b"][CLICKS] >= before["a"][CLICKS]


def test_nothing_is_given_where_there_is_nothing() -> None:
    assert assign_simply(takers(2), {}) == {"a": {}, "b": {}}
    assert assign_simply([], whole(CLICKS, 2)) == {}


def test_only_initialized_partitions_are_wanted() -> None:
    assert wanted_partitions({CLICKS: 3, ORDERS: 1}, {CLICKS: frozenset({0, 5})}) == {
        CLICKS: frozenset({0})
    }


WISHES = st.sampled_from([frozenset({CLICKS}), frozenset({ORDERS}), frozenset({CLICKS, ORDERS})])


@given(
    st.lists(WISHES, max_size=7),
    st.lists(WISHES, max_size=7),
    st.integers(0, 6),
    st.integers(0, 6),
)
def test_everything_is_taken_from_and_everybody_has_something(
    former: list[frozenset[UUID]], wishes: list[frozenset[UUID]], clicks: int, orders: int
) -> None:
    assignable = {**whole(CLICKS, clicks), **whole(ORDERS, orders)}
    members = [AssignableShareMember(f"m{number}", wish, {}) for number, wish in enumerate(former)]
    before = assign_simply(members, assignable)
    takers = [
        AssignableShareMember(f"m{number}", wish, before.get(f"m{number}", {}))
        for number, wish in enumerate(wishes)
    ]
    targets = assign_simply(takers, assignable)
    assert set(targets) == {one.member_id for one in takers}
    for topic_id, partitions in assignable.items():
        wanting = [one for one in takers if topic_id in one.topics]
        taken = {p for one in wanting for p in targets[one.member_id].get(topic_id, ())}
        assert taken == (partitions if wanting else set()), "SHG-4"
    for taker in takers:
        target = targets[taker.member_id]
        assert target.keys() <= taker.topics
        if any(assignable[topic_id] for topic_id in taker.topics):
            assert target, "SHG-4"
    for wish in set(wishes):
        loads = [
            sum(map(len, targets[one.member_id].values())) for one in takers if one.topics == wish
        ]
        assert max(loads) - min(loads) <= 1, "SHG-4"
    again = assign_simply(
        [one._replace(former=targets[one.member_id]) for one in takers], assignable
    )
    assert again == targets  # nothing moves without a reason
