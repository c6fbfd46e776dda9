from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from moldau.cluster.rules.replica_placement import (
    Assignment,
    BrokerRack,
    alternate_racks,
    place_replicas,
)
from moldau.model import BrokerId


def brokers_of(*racks: str | None) -> list[BrokerRack]:
    return [BrokerRack(BrokerId(number), rack) for number, rack in enumerate(racks)]


def place(
    brokers: list[BrokerRack],
    partitions: int,
    factor: int,
    start: int = 0,
    shift: int = 0,
    first: int = 0,
) -> Assignment:
    return place_replicas(
        brokers,
        partition_count=partitions,
        replication_factor=factor,
        start_index=start,
        replica_shift=shift,
        first_partition=first,
    )


def test_without_racks_the_table_of_kafka_comes_out() -> None:
    # The example in the comment of Kafka's AdminUtils: five brokers, ten partitions, three each.
    assert place(brokers_of(*[None] * 5), 10, 3) == (
        (0, 1, 2),
        (1, 2, 3),
        (2, 3, 4),
        (3, 4, 0),
        (4, 0, 1),
        (0, 2, 3),
        (1, 3, 4),
        (2, 4, 0),
        (3, 0, 1),
        (4, 1, 2),
    )


def test_with_racks_the_table_of_kafka_comes_out() -> None:
    brokers = brokers_of("rack1", "rack3", "rack3", "rack2", "rack2", "rack1")
    assert place(brokers, 7, 3) == (
        (0, 3, 1),
        (3, 1, 5),
        (1, 5, 4),
        (5, 4, 2),
        (4, 2, 0),
        (2, 0, 3),
        (0, 4, 2),
    )


def test_brokers_alternate_between_racks() -> None:
    racks = {BrokerId(number): f"rack{number // 3}" for number in range(9)}
    assert alternate_racks(racks) == [0, 3, 6, 1, 4, 7, 2, 5, 8]


def test_racks_of_different_sizes_alternate_while_they_can() -> None:
    racks = {BrokerId(0): "a", BrokerId(1): "b", BrokerId(2): "b", BrokerId(3): "b"}
    assert alternate_racks(racks) == [0, 1, 2, 3]


def test_the_start_values_move_leaders_and_followers() -> None:
    brokers = brokers_of(None, None, None)
    assert place(brokers, 1, 2, start=1) == ((1, 2),)
    assert place(brokers, 1, 2, start=1, shift=1) == ((1, 0),)


def test_one_broker_takes_everything() -> None:
    assert place(brokers_of(None), 3, 1) == ((0,), (0,), (0,))
    assert place(brokers_of("rack"), 3, 1) == ((0,), (0,), (0,))


def test_racks_count_only_when_every_broker_names_its_own() -> None:
    assert place(brokers_of("a", None, "a"), 3, 2) == place(brokers_of(None, None, None), 3, 2)


def test_the_order_in_which_brokers_are_given_does_not_matter() -> None:
    brokers = brokers_of(None, None, None, None)
    assert place(brokers[::-1], 8, 3) == place(brokers, 8, 3)


def test_followers_of_added_partitions_move_on_at_each_round_of_the_brokers() -> None:
    brokers = brokers_of(None, None, None)
    assert place(brokers, 3, 2, first=4) == ((1, 2), (2, 0), (0, 2))
    assert place(brokers, 1, 2, first=3) == ((0, 2),)


@given(
    st.integers(1, 8),
    st.integers(1, 40),
    st.integers(0, 20),
    st.integers(0, 20),
    st.integers(0, 30),
    st.data(),
)
def test_replicas_are_unique_and_spread_evenly(
    broker_count: int, partitions: int, start: int, shift: int, first: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, broker_count))
    assignment = place(brokers_of(*[None] * broker_count), partitions, factor, start, shift, first)
    assert len(assignment) == partitions
    assert all(len(set(replicas)) == factor == len(replicas) for replicas in assignment)
    leaders = Counter(replicas[0] for replicas in assignment)
    assert spread(leaders, broker_count) <= 1
    if first == 0 and partitions % broker_count == 0:
        everyone = Counter(broker for replicas in assignment for broker in replicas)
        assert spread(everyone, broker_count) == 0


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 24), st.integers(0, 9), st.data())
def test_replicas_reach_as_many_racks_as_they_can(
    rack_count: int, brokers_per_rack: int, partitions: int, start: int, data: st.DataObject
) -> None:
    racks = [f"rack{number % rack_count}" for number in range(rack_count * brokers_per_rack)]
    factor = data.draw(st.integers(1, len(racks)))
    assignment = place(brokers_of(*racks), partitions, factor, start, start)
    for replicas in assignment:
        assert len(set(replicas)) == factor
        assert len({racks[broker] for broker in replicas}) == min(factor, rack_count)
    leaders = Counter(replicas[0] for replicas in assignment)
    assert spread(leaders, len(racks)) <= 1
    if factor == rack_count and partitions % len(racks) == 0:
        everyone = Counter(broker for replicas in assignment for broker in replicas)
        assert spread(everyone, len(racks)) == 0


@given(st.integers(1, 6), st.integers(1, 20), st.integers(1, 20), st.integers(0, 5))
def test_added_partitions_go_on_where_the_first_ones_ended(
    broker_count: int, before: int, added: int, start: int
) -> None:
    brokers = brokers_of(*[None] * broker_count)
    leaders_at_once = [r[0] for r in place(brokers, before + added, 1, start)]
    first = [r[0] for r in place(brokers, before, 1, start)]
    later = [r[0] for r in place(brokers, added, 1, start, first=before)]
    assert first + later == leaders_at_once


def spread(counts: Counter[BrokerId], broker_count: int) -> int:
    amounts = [counts[BrokerId(broker)] for broker in range(broker_count)]
    return max(amounts) - min(amounts)


def place_with_away(
    alive: list[BrokerRack], away: list[BrokerRack], partitions: int, factor: int
) -> Assignment:
    return place_replicas(
        alive,
        partition_count=partitions,
        replication_factor=factor,
        start_index=0,
        replica_shift=0,
        away=away,
    )


def test_brokers_that_are_away_get_nothing_while_enough_are_alive() -> None:
    brokers = brokers_of(*[None] * 4)
    assert place_with_away(brokers[:3], brokers[3:], 6, 3) == place(brokers[:3], 6, 3)


def test_brokers_that_are_away_are_chosen_from_racks_without_a_replica() -> None:
    brokers = brokers_of("a", "b", "b", "c", "d")
    for replicas in place_with_away(brokers[:1], brokers[1:], 8, 3):
        racks = ["abbcd"[broker] for broker in replicas]
        assert len(set(racks)) == 3


def test_a_broker_that_is_away_takes_its_turn_as_preferred_leader() -> None:
    brokers = brokers_of(*[None] * 3)
    assert place_with_away(brokers[:2], brokers[2:], 3, 3) == ((0, 1, 2), (1, 2, 0), (2, 0, 1))


def test_racks_without_a_living_broker_come_first() -> None:
    brokers = brokers_of("a", "b", "a", "b", "c")
    for replicas in place_with_away(brokers[:2], brokers[2:], 9, 3):
        assert sorted(replicas) == [0, 1, 4]


@given(
    alive=st.integers(1, 5),
    away=st.integers(1, 5),
    partitions=st.integers(1, 20),
    data=st.data(),
)
def test_where_too_few_are_alive_each_of_them_has_a_replica_and_the_rest_is_spread(
    alive: int, away: int, partitions: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(alive + 1, alive + away))
    brokers = brokers_of(*[None] * (alive + away))
    placed = place_with_away(brokers[:alive], brokers[alive:], partitions, factor)
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        assert set(range(alive)) <= set(replicas)
    counts = Counter(broker for replicas in placed for broker in replicas)
    shares = [counts[BrokerId(broker)] for broker in range(alive, alive + away)]
    assert max(shares) - min(shares) <= factor - alive
