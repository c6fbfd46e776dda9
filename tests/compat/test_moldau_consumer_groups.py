"""Our consumer in a group at a real broker, beside confluent-kafka, and what is left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition as ConfluentPartition

import moldau
from support import confluent_client
from support.rows import numbered_rows
from support.topics import Topics, fresh_name
from support.waiting import PATIENCE_SECONDS, eventually

BROKER_SETTINGS = {
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
}

CLASSIC: dict[str, Any] = {"heartbeat_interval_ms": 200}
CONSUMER: dict[str, Any] = {"group_protocol": "consumer"}
FROM_THE_BEGINNING: dict[str, Any] = {"auto_offset_reset": "earliest"}


def find_committed(bootstrap: str, group: str, topic: str) -> int | None:
    """As confluent-kafka sees it."""
    with confluent_client.consumer(bootstrap, group_id=group) as theirs:
        (found,) = theirs.committed([ConfluentPartition(topic, 0)], PATIENCE_SECONDS)
        return None if found.offset < 0 else int(found.offset)


@contextmanager
def polling(poll: Callable[[], object]) -> Iterator[None]:
    """Poll in a thread meanwhile."""
    is_over = threading.Event()

    def run() -> None:
        while not is_over.is_set():
            poll()

    with ThreadPoolExecutor(1) as pool:
        task = pool.submit(run)
        try:
            yield
        finally:
            is_over.set()
            task.result(PATIENCE_SECONDS)


def other_member(
    bootstrap: str, group: str, **options: object
) -> closing[confluent_kafka.Consumer]:
    settings = {"enable_auto_commit": False, **options}
    connecting = {"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0}
    return closing(confluent_kafka.Consumer(connecting | confluent_client.dotted(settings)))


def has_share(theirs: confluent_kafka.Consumer) -> bool:
    """Whether it owns two partitions; polls, in this thread alone: its calls hold the GIL."""
    theirs.poll(0.1)
    return len(theirs.assignment()) == 2


@pytest.fixture(params=[CLASSIC, CONSUMER], ids=["classic", "consumer"])
def protocol(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The options of a member by either protocol, ours and confluent-kafka's."""
    found: dict[str, Any] = request.param
    return found


@pytest.fixture
def wide_topic(topics: Topics, bootstrap: str) -> str:
    """Four partitions of fifty records."""
    topic = topics.create(partitions=4)
    for partition in range(4):
        confluent_client.produce(bootstrap, topic, numbered_rows(50), partition=partition)
    return topic


def test_streams_feed_threads_in_order(
    bootstrap: str, wide_topic: str, protocol: dict[str, Any]
) -> None:
    seen: dict[int, list[tuple[int, int]]] = {0: [], 1: []}

    def work(number: int, stream: Any) -> None:
        for record in stream:
            seen[number].append((record.partition, record.offset))

    group = fresh_name("streams")
    consumer = moldau.Consumer(
        bootstrap, group=group, topics=wide_topic, **protocol, **FROM_THE_BEGINNING
    )
    with ThreadPoolExecutor(2) as pool:
        tasks = [pool.submit(work, *one) for one in enumerate(consumer.streams(2))]
        try:
            eventually(lambda: len(seen[0]) + len(seen[1]) == 200, lambda: f"200 records: {seen}")
        finally:
            consumer.close()
        for task in tasks:
            task.result(PATIENCE_SECONDS)

    assert all(len({partition for partition, _ in some}) == 2 for some in seen.values())
    for partition in range(4):
        offsets = [at for some in seen.values() for p, at in some if p == partition]
        assert offsets == list(range(50))


def test_a_pattern_finds_what_others_make_later_but_not_what_is_denied(
    bootstrap: str, topics: Topics, protocol: dict[str, Any]
) -> None:
    prefix = fresh_name("pattern")
    wanted = [f"{prefix}-a", f"{prefix}-b"]
    first, denied, later = wanted[0], f"{prefix}-test", wanted[1]

    def make(name: str) -> None:
        topics.create_named(name)
        confluent_client.produce(bootstrap, name, numbered_rows(1))

    make(denied)
    make(first)
    with moldau.Consumer(
        bootstrap,
        group=prefix,
        pattern=f"{prefix}-.*",
        deny=".*-test",
        metadata_max_age_ms=200,
        **protocol,
        **FROM_THE_BEGINNING,
    ) as consumer:
        assert [one.topic for one in consumer.poll(PATIENCE_SECONDS)] == [first]
        make(later)
        assert [one.topic for one in consumer.poll(PATIENCE_SECONDS)] == [later]
        assert consumer.subscription == set(wanted)


def test_a_pattern_that_the_broker_matches_finds_what_others_make_later(
    bootstrap: str, topics: Topics
) -> None:
    prefix = fresh_name("left-to-the-broker")
    with moldau.Consumer(
        bootstrap,
        group=prefix,
        pattern=f"{prefix}-[ab]",
        metadata_max_age_ms=200,
        **CONSUMER,
        **FROM_THE_BEGINNING,
    ) as consumer:
        for name in ("a", "c", "b"):
            topics.create_named(f"{prefix}-{name}")
            confluent_client.produce(bootstrap, f"{prefix}-{name}", numbered_rows(1))
            if name != "c":
                (record,) = consumer.poll(PATIENCE_SECONDS)
                assert record.topic == f"{prefix}-{name}"


@pytest.mark.parametrize(("mode", "expected"), [("after", 4), ("before", 5), ("manual", None)])
def test_each_order_of_committing_leaves_its_offset(
    bootstrap: str, topic: str, mode: str, expected: int | None, protocol: dict[str, Any]
) -> None:
    """A program that fails on the fifth of ten records: seen again, left out, or nothing kept."""
    confluent_client.produce(bootstrap, topic, numbered_rows(10))
    group = fresh_name(mode)

    def work() -> None:
        with moldau.Consumer(
            bootstrap, group=group, topics=topic, commit=mode, **protocol, **FROM_THE_BEGINNING
        ) as consumer:
            for record in consumer:
                _ = 1 // (4 - record.offset)

    with pytest.raises(ZeroDivisionError):
        work()
    assert find_committed(bootstrap, group, topic) == expected


RANGE: dict[str, Any] = {**CLASSIC, "partition_assignment_strategy": "range"}
COOPERATIVE: dict[str, Any] = {**CLASSIC, "partition_assignment_strategy": "cooperative-sticky"}


@pytest.mark.parametrize(
    ("our_options", "their_options", "given_up"),
    [
        pytest.param(RANGE, RANGE, 4, id="range"),
        pytest.param(COOPERATIVE, COOPERATIVE, 2, id="cooperative"),
        pytest.param(CONSUMER, CONSUMER, 2, id="consumer"),
        pytest.param(CONSUMER, RANGE, 2, id="consumer-beside-range"),
        pytest.param(CONSUMER, COOPERATIVE, 2, id="consumer-beside-cooperative"),
        pytest.param(COOPERATIVE, CONSUMER, 2, id="cooperative-beside-consumer"),
    ],
)
def test_functions_for_rebalances_hear_of_a_member_of_another_kind(
    bootstrap: str,
    wide_topic: str,
    our_options: dict[str, Any],
    their_options: dict[str, Any],
    given_up: int,
) -> None:
    events: list[tuple[str, int]] = []
    group = fresh_name("callbacks")
    with (
        moldau.Consumer(
            bootstrap,
            group=group,
            topics=wide_topic,
            on_assigned=lambda some: events.append(("+", len(some))),
            on_revoked=lambda some: events.append(("-", len(some))),
            **our_options,
            **FROM_THE_BEGINNING,
        ) as ours,
        polling(lambda: ours.poll(0.1)),
    ):
        eventually(lambda: events == [("+", 4)], lambda: f"all four: {events}")
        with other_member(bootstrap, group, **their_options) as theirs:
            theirs.subscribe([wide_topic])
            eventually(lambda: has_share(theirs) and len(ours.assignment) == 2, lambda: str(events))
            assert events[1] == ("-", given_up)
    assert events[-1][0] == "-"
    assert sum(count if sign == "+" else -count for sign, count in events) == 0


def test_a_static_member_that_comes_back_disturbs_nobody(
    bootstrap: str, wide_topic: str, protocol: dict[str, Any]
) -> None:
    group = fresh_name("static")
    assigned: list[list[int]] = []

    def ours() -> moldau.Consumer:
        return moldau.Consumer(
            bootstrap,
            group=group,
            topics=wide_topic,
            group_instance_id="ours",
            **protocol,
            **FROM_THE_BEGINNING,
        )

    with other_member(bootstrap, group, group_instance_id="theirs", **protocol) as theirs:
        theirs.subscribe(
            [wide_topic], on_assign=lambda _, some: assigned.append([one.partition for one in some])
        )
        with ours() as consumer, polling(lambda: consumer.poll(0.1)):
            eventually(lambda: has_share(theirs) and len(consumer.assignment) == 2, "two each")
            before, rebalance_count = consumer.assignment, len(assigned)
        with ours() as consumer, polling(lambda: consumer.poll(0.1)):
            eventually(lambda: has_share(theirs) and consumer.assignment == before, "as before")
        assert len(assigned) == rebalance_count
