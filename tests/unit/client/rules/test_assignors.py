"""Assignors: the examples of Kafka's own documentation, and what holds for any group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from moldau.client.consumer.rules.assignors import (
    BY_NAME,
    Assignor,
    CooperativeStickyAssignor,
    MemberSubscription,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    require_assignor,
)
from moldau.errors import ConfigurationError
from moldau.model import TopicPartition
from moldau.wire.consumer_protocol import Subscription

Owned = Mapping[str, Iterable[TopicPartition]]

RANGE, ROUND_ROBIN = RangeAssignor(), RoundRobinAssignor()
STICKY, COOPERATIVE = StickyAssignor(), CooperativeStickyAssignor()
every_assignor = pytest.mark.parametrize("assignor", BY_NAME.values(), ids=BY_NAME)


def parse(text: str) -> list[TopicPartition]:
    """`t0p1 t1p0`."""
    pairs = (word.rpartition("p") for word in text.split())
    return [TopicPartition(topic, int(index)) for topic, _, index in pairs]


def table(**rows: str) -> dict[str, list[TopicPartition]]:
    return {member: parse(text) for member, text in rows.items()}


def sorted_table(assigned: Mapping[str, Iterable[TopicPartition]]) -> dict[str, list[object]]:
    return {member: sorted(some) for member, some in assigned.items()}


def members(
    subscriptions: Mapping[str, Sequence[str]],
    *,
    assignor: Assignor = RANGE,
    owned: Owned | None = None,
    generation: int = 3,
) -> list[MemberSubscription]:
    """Members that had something in a generation, or are new to the group."""
    found = []
    for name, topics in subscriptions.items():
        had = tuple(owned[name]) if owned is not None and name in owned else None
        since = -1 if had is None else generation
        subscription = Subscription(
            tuple(topics),
            assignor.user_data(had or (), since),
            (had or ()) if assignor.is_cooperative else (),
            since,
        )
        found.append(MemberSubscription(name, None, subscription))
    return found


# --- the examples of Kafka's documentation ----------------------------------------------------


def test_range_gives_neighbours() -> None:
    assigned = RANGE.assign({"t0": 3, "t1": 3}, members({"C0": ["t0", "t1"], "C1": ["t0", "t1"]}))
    assert assigned == table(C0="t0p0 t0p1 t1p0 t1p1", C1="t0p2 t1p2")


def test_round_robin_deals_out_in_turns() -> None:
    both = {"C0": ["t0", "t1"], "C1": ["t0", "t1"]}
    assigned = ROUND_ROBIN.assign({"t0": 3, "t1": 3}, members(both))
    assert assigned == table(C0="t0p0 t0p2 t1p1", C1="t0p1 t1p0 t1p2")


def test_round_robin_passes_over_those_who_do_not_read_the_topic() -> None:
    different = {"C0": ["t0"], "C1": ["t0", "t1"], "C2": ["t0", "t1", "t2"]}
    assigned = ROUND_ROBIN.assign({"t0": 1, "t1": 2, "t2": 3}, members(different))
    assert assigned == table(C0="t0p0", C1="t1p0", C2="t1p1 t2p0 t2p1 t2p2")


FOUR_TOPICS = {f"t{number}": 2 for number in range(4)}


def test_sticky_starts_like_round_robin() -> None:
    three = {name: list(FOUR_TOPICS) for name in ("C0", "C1", "C2")}
    assigned = STICKY.assign(FOUR_TOPICS, members(three, assignor=STICKY))
    assert assigned == table(C0="t0p0 t1p1 t3p0", C1="t0p1 t2p0 t3p1", C2="t1p0 t2p1")


@pytest.mark.parametrize("assignor", [STICKY, COOPERATIVE])
def test_sticky_moves_only_what_the_leaver_had(assignor: Assignor) -> None:
    had = table(C0="t0p0 t1p1 t3p0", C2="t1p0 t2p1")
    two = {name: list(FOUR_TOPICS) for name in ("C0", "C2")}
    assigned = assignor.assign(FOUR_TOPICS, members(two, assignor=assignor, owned=had))
    assert sorted_table(assigned) == sorted_table(
        table(C0="t0p0 t0p1 t1p1 t3p0", C2="t1p0 t2p0 t2p1 t3p1")
    )


DIFFERENT = {"C0": ["t0"], "C1": ["t0", "t1"], "C2": ["t0", "t1", "t2"]}
DIFFERENT_COUNTS = {"t0": 1, "t1": 2, "t2": 3}


@pytest.mark.parametrize("assignor", [STICKY, COOPERATIVE])
def test_sticky_is_even_where_members_read_different_topics(assignor: Assignor) -> None:
    assigned = assignor.assign(DIFFERENT_COUNTS, members(DIFFERENT, assignor=assignor))
    assert assigned == table(C0="t0p0", C1="t1p0 t1p1", C2="t2p0 t2p1 t2p2")


@pytest.mark.parametrize("assignor", [STICKY, COOPERATIVE])
def test_sticky_keeps_what_it_can_where_members_read_different_topics(assignor: Assignor) -> None:
    had = table(C1="t1p0 t1p1", C2="t2p0 t2p1 t2p2")
    left = {name: DIFFERENT[name] for name in ("C1", "C2")}
    assigned = assignor.assign(DIFFERENT_COUNTS, members(left, assignor=assignor, owned=had))
    assert sorted_table(assigned) == table(C1="t0p0 t1p0 t1p1", C2="t2p0 t2p1 t2p2")


# --- details ----------------------------------------------------------------------------------


def test_static_members_come_first_by_their_names() -> None:
    named = MemberSubscription("z-id", "first", Subscription(("t",)))
    other = MemberSubscription("y-id", "second", Subscription(("t",)))
    plain = MemberSubscription("a-id", None, Subscription(("t",)))
    assigned = RANGE.assign({"t": 4}, [plain, other, named])
    assert assigned == {"z-id": parse("tp0 tp1"), "y-id": parse("tp2"), "a-id": parse("tp3")}


def test_who_keeps_one_more_is_decided_as_java_decides_it() -> None:
    """Three had three each, a fourth comes: Java lets the first in its hash map keep three."""
    had = table(x="tp0 tp1 tp2", y="tp3 tp4 tp5", p="tp6 tp7 tp8")
    group = {name: ["t"] for name in ("x", "y", "p", "new")}
    assigned = STICKY.assign({"t": 9}, members(group, assignor=STICKY, owned=had))
    # "p" is 112, "x" 120, "y" 121: buckets 0, 8 and 9.
    assert sorted_table(assigned) == table(x="tp0 tp1", y="tp3 tp4", p="tp6 tp7 tp8", new="tp2 tp5")


def test_a_partition_of_two_owners_goes_to_the_newer_generation() -> None:
    old = MemberSubscription("old", None, Subscription(("t",), None, tuple(parse("tp0 tp1")), 4))
    new = MemberSubscription("new", None, Subscription(("t",), None, tuple(parse("tp0")), 5))
    assert COOPERATIVE.assign({"t": 2}, [old, new]) == table(old="tp1", new="tp0")


def test_a_partition_of_two_owners_of_one_generation_is_given_up_first() -> None:
    one = MemberSubscription("a", None, Subscription(("t",), None, tuple(parse("tp0 tp1")), 4))
    two = MemberSubscription("b", None, Subscription(("t",), None, tuple(parse("tp0")), 4))
    assert COOPERATIVE.assign({"t": 2}, [one, two]) == table(a="tp1", b="")


def test_cooperative_members_of_older_versions_have_their_generation_in_the_user_data() -> None:
    old = Subscription(("t",), b"\x00\x00\x00\x04", tuple(parse("tp0 tp1")))
    new = Subscription(("t",), b"\x00\x00\x00\x05", tuple(parse("tp0")))
    group = [MemberSubscription("old", None, old), MemberSubscription("new", None, new)]
    assert COOPERATIVE.assign({"t": 2}, group) == table(old="tp1", new="tp0")


@pytest.mark.parametrize("data", [None, b"", b"\x00", b"\x00\x00\x00\x07garbage"])
def test_user_data_that_nobody_can_read_is_as_good_as_none(data: bytes | None) -> None:
    group = [MemberSubscription("a", None, Subscription(("t",), data))]
    assert STICKY.assign({"t": 2}, group) == table(a="tp0 tp1")


def test_user_data_of_the_first_sticky_version_has_no_generation() -> None:
    data = STICKY.user_data(parse("tp1"), 7)
    assert data is not None
    group = [
        MemberSubscription("a", None, Subscription(("t",))),
        MemberSubscription("b", None, Subscription(("t",), data[:-4])),
    ]
    assert STICKY.assign({"t": 2}, group) == table(a="tp0", b="tp1")


def test_partitions_that_are_gone_are_nobodys() -> None:
    had = table(a="tp0 tp5 gonep0")
    assigned = STICKY.assign({"t": 2}, members({"a": ["t", "gone"]}, assignor=STICKY, owned=had))
    assert assigned == table(a="tp0 tp1")


@every_assignor
def test_a_topic_that_nobody_reads_is_left_alone(assignor: Assignor) -> None:
    group = members({"a": ["t"], "b": ["t"]}, assignor=assignor)
    assigned = assignor.assign({"t": 2, "other": 3}, group)
    assert sorted(one for some in assigned.values() for one in some) == parse("tp0 tp1")


@every_assignor
def test_nothing_to_read_is_an_empty_assignment(assignor: Assignor) -> None:
    assert assignor.assign({}, members({"a": ["t"], "b": []})) == {"a": [], "b": []}


def test_assignors_are_found_by_their_name_and_by_javas() -> None:
    assert require_assignor("sticky").name == "sticky"
    java = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
    assert require_assignor(java).name == "cooperative-sticky"
    with pytest.raises(ConfigurationError, match="range, roundrobin"):
        require_assignor("rangy")


# --- what holds for any group -----------------------------------------------------------------

topics = st.sampled_from(["a", "b", "c", "d"])
counts = st.dictionaries(topics, st.integers(1, 7), min_size=1)
names = st.sampled_from([f"m{number}" for number in range(8)])
groups = st.dictionaries(names, st.lists(topics, unique=True, min_size=1), min_size=1)


def require_one_owner(
    counts: Mapping[str, int],
    group: Mapping[str, Sequence[str]],
    assigned: Mapping[str, Sequence[TopicPartition]],
) -> None:
    """Every partition that somebody reads has exactly one owner, who reads its topic."""
    given = [one for some in assigned.values() for one in some]
    assert len(given) == len(set(given))
    read = {topic for subscribed in group.values() for topic in subscribed}
    expected = {TopicPartition(t, i) for t, n in counts.items() if t in read for i in range(n)}
    assert set(given) == expected
    for member, some in assigned.items():
        assert {one.topic for one in some} <= set(group[member])


@every_assignor
@given(counts=counts, group=groups)
def test_every_partition_has_one_owner_who_reads_it(
    assignor: Assignor, counts: Mapping[str, int], group: Mapping[str, Sequence[str]]
) -> None:
    assigned = assignor.assign(counts, members(group, assignor=assignor))
    assert assigned.keys() == group.keys()
    require_one_owner(counts, group, assigned)


@every_assignor
@given(counts=counts, group=groups, data=st.data())
def test_the_order_in_which_members_come_does_not_matter(
    assignor: Assignor,
    counts: Mapping[str, int],
    group: Mapping[str, Sequence[str]],
    data: st.DataObject,
) -> None:
    group_members = members(group, assignor=assignor)
    shuffled = data.draw(st.permutations(group_members))
    assert assignor.assign(counts, shuffled) == assignor.assign(counts, group_members)


@given(counts=counts, size=st.integers(1, 8))
def test_sticky_is_even(counts: Mapping[str, int], size: int) -> None:
    group = {f"m{number}": list(counts) for number in range(size)}
    loads = [len(some) for some in STICKY.assign(counts, members(group, assignor=STICKY)).values()]
    assert max(loads) - min(loads) <= 1


@given(counts=counts, group=groups)
def test_sticky_leaves_no_partition_that_would_be_better_elsewhere(
    counts: Mapping[str, int], group: Mapping[str, Sequence[str]]
) -> None:
    assigned = STICKY.assign(counts, members(group, assignor=STICKY))
    for owner, some in assigned.items():
        for partition in some:
            for other, subscribed in group.items():
                if partition.topic in subscribed and other != owner:
                    assert len(assigned[other]) + 1 >= len(some)


@pytest.mark.parametrize("assignor", [STICKY, COOPERATIVE])
@given(counts=counts, group=groups)
def test_sticky_changes_nothing_when_nothing_has_changed(
    assignor: Assignor, counts: Mapping[str, int], group: Mapping[str, Sequence[str]]
) -> None:
    first = assignor.assign(counts, members(group, assignor=assignor))
    again = assignor.assign(counts, members(group, assignor=assignor, owned=first))
    assert sorted_table(again) == sorted_table(first)


@given(counts=counts, size=st.integers(2, 8), data=st.data())
def test_sticky_members_keep_all_they_have_when_one_leaves(
    counts: Mapping[str, int], size: int, data: st.DataObject
) -> None:
    group = {f"m{number}": list(counts) for number in range(size)}
    first = STICKY.assign(counts, members(group, assignor=STICKY))
    leaver = data.draw(st.sampled_from(sorted(group)))
    del group[leaver]
    second = STICKY.assign(counts, members(group, assignor=STICKY, owned=first))
    assert all(set(first[name]) <= set(second[name]) for name in group)
    require_one_owner(counts, group, second)


@given(counts=counts, size=st.integers(1, 7))
def test_sticky_moves_partitions_only_to_the_one_who_joins(
    counts: Mapping[str, int], size: int
) -> None:
    group = {f"m{number}": list(counts) for number in range(size)}
    first = STICKY.assign(counts, members(group, assignor=STICKY))
    joined = {**group, "new": list(counts)}
    second = STICKY.assign(counts, members(joined, assignor=STICKY, owned=first))
    assert all(set(second[name]) <= set(first[name]) for name in group)
    require_one_owner(counts, joined, second)


def rebalance_until_at_rest(
    counts: Mapping[str, int],
    before: Mapping[str, Sequence[str]],
    after: Mapping[str, Sequence[str]],
) -> int:
    """How many assignments a changed group needs until one changes nothing for anybody.

    No assignment may give a partition to a member while another one still has it.
    """
    assigned = COOPERATIVE.assign(counts, members(before, assignor=COOPERATIVE))
    has = {
        name: [one for one in assigned.get(name, []) if one.topic in subscribed]
        for name, subscribed in after.items()
    }
    for round_count in range(10):
        claims = {name: some for name, some in has.items() if name in before or round_count}
        group = members(after, assignor=COOPERATIVE, owned=claims, generation=3 + round_count)
        assigned = COOPERATIVE.assign(counts, group)
        for name, some in assigned.items():
            others = {one for other, had in has.items() if other != name for one in had}
            assert not others & set(some)
        if sorted_table(assigned) == sorted_table(has):
            require_one_owner(counts, after, assigned)
            return round_count
        has = assigned
    raise AssertionError(f"still moving: {sorted_table(has)}")


@given(counts=counts, before=st.sets(names, min_size=1), after=st.sets(names, min_size=1))
def test_cooperative_members_never_share_a_partition_and_come_to_rest_in_two_rounds(
    counts: Mapping[str, int], before: set[str], after: set[str]
) -> None:
    """One to give up and one to take over: where all read the same topics."""
    topics = list(counts)
    old, new = dict.fromkeys(before, topics), dict.fromkeys(after, topics)
    assert rebalance_until_at_rest(counts, old, new) <= 2


@given(counts=counts, before=groups, after=groups)
@example(
    counts={"b": 3, "d": 3},
    before={"m6": ["b", "d"]},
    after={"m1": ["d"], "m6": ["b", "d"], "m7": ["b", "d"]},
)
def test_cooperative_members_of_different_topics_come_to_rest_in_five_rounds(
    counts: Mapping[str, int],
    before: Mapping[str, Sequence[str]],
    after: Mapping[str, Sequence[str]],
) -> None:
    """Two are not always enough there, as the example shows: it takes three.

    What members have given up is dealt out anew in the second round, to whoever has least by then;
    with that to build on, moving one more partition may make the result more even, and that one
    has to be given up first. The assignment remembers nothing of what the first round had in mind:
    Java's does not either, and their results have to be the same, as either may be the leader.
    Kafka's own test of CooperativeStickyAssignor is content with four rounds after the first.
    """
    assert rebalance_until_at_rest(counts, before, after) <= 5
