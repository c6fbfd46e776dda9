"""What a user's test does with `moldau.testing`: topics, records, restarts, errors, fixtures."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

import moldau.testing
from moldau.errors import TopicExistsError, UnknownTopicError
from moldau.testing import RunningBroker, RunningCluster


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with moldau.testing.broker() as running:
        yield running


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with moldau.testing.cluster(1) as running:
        yield running


@pytest.fixture(params=["broker", "cluster"])
def some(request: pytest.FixtureRequest) -> RunningBroker | RunningCluster:
    found: RunningBroker | RunningCluster = request.getfixturevalue(request.param)
    return found


def test_what_was_produced_is_there_in_order(some: RunningBroker | RunningCluster) -> None:
    topic = some.create_topic(partitions=2)
    some.produce(topic, "one", b"two", key="k", partition=1, headers=[("h", b"v")])
    some.produce(topic, None, key=b"gone", partition=0)

    found = some.records(topic)
    assert [(one.partition, one.key, one.value) for one in found] == [
        (0, b"gone", None),
        (1, b"k", b"one"),
        (1, b"k", b"two"),
    ]
    assert tuple(found[1].headers) == (("h", b"v"),)
    assert [one.value for one in some.records(topic, 1)] == [b"one", b"two"]
    assert some.records(some.create_topic()) == []


def test_names_are_fresh_or_as_given(some: RunningBroker | RunningCluster) -> None:
    assert some.create_topic() != some.create_topic()
    some.create_topic("mine", config={"retention.ms": "1000"})
    with pytest.raises(TopicExistsError):
        some.create_topic("mine")
    some.delete_topic("mine")
    with pytest.raises(UnknownTopicError):
        some.delete_topic("mine")
    with some.fresh_topic(partitions=3) as name:
        assert some.records(name, 2) == []
    with pytest.raises(UnknownTopicError):
        some.delete_topic(name)


def test_records_are_waited_for(some: RunningBroker | RunningCluster) -> None:
    producer = Producer({"bootstrap.servers": some.bootstrap, "log_level": 2})
    topic = some.create_topic()
    for number in range(3):
        producer.produce(topic, str(number).encode())
    producer.flush(60)
    assert [one.value for one in some.wait_for_records(topic, 3)] == [b"0", b"1", b"2"]
    with pytest.raises(TimeoutError, match=r"not-there has 0 records after 0\.1 s, not 1"):
        some.wait_for_records("not-there", timeout_seconds=0.1)


def test_only_what_was_committed_is_seen_by_those_who_want_it_so(broker: RunningBroker) -> None:
    topic = broker.create_topic()
    with moldau.Producer(broker.bootstrap, transactional_id="t") as producer:
        with contextlib.suppress(ZeroDivisionError), producer.transaction():
            producer.send(topic, value=b"aborted").result(60)
            raise ZeroDivisionError
        with producer.transaction():
            producer.send(topic, value=b"committed")
    assert [one.value for one in broker.records(topic, read_committed=True)] == [b"committed"]
    assert [one.value for one in broker.records(topic)] == [b"aborted", b"committed"]


def test_a_broker_that_is_restarted_has_its_port_and_its_data() -> None:
    with moldau.testing.broker() as broker:
        topic, bootstrap = broker.create_topic(), broker.bootstrap
        broker.produce(topic, "before")
        broker.restart()
        assert broker.bootstrap == bootstrap
        broker.produce(topic, "after")
        assert [one.value for one in broker.records(topic)] == [b"before", b"after"]


def test_one_broker_answers_with_an_error_on_request(broker: RunningBroker) -> None:
    topic = broker.create_topic()
    fault = broker.inject("produce", "not_leader_or_follower", times=2)
    broker.produce(topic, "in spite of it")
    assert fault.times_met == 2
    assert [one.value for one in broker.records(topic)] == [b"in spite of it"]
    with pytest.raises(ValueError, match="is no API; did you mean produce"):
        broker.inject("prodcue", "not_leader_or_follower")


def test_a_condition_is_waited_for(broker: RunningBroker) -> None:
    topic = broker.create_topic()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 2})
    producer.produce(topic, b"x")
    broker.wait_until(lambda: len(broker.records(topic)) == 1, "the record is there")
    assert producer.flush(60) == 0


USERS_TESTS = """
seen = set()

def test_one(moldau_broker_session, moldau_topic):
    seen.add((moldau_broker_session.bootstrap, moldau_topic))
    moldau_broker_session.produce(moldau_topic, "one")
    assert len(moldau_broker_session.records(moldau_topic)) == 1

def test_two(moldau_broker_session, moldau_topic):
    seen.add((moldau_broker_session.bootstrap, moldau_topic))
    assert moldau_broker_session.records(moldau_topic) == []
    assert len({bootstrap for bootstrap, _ in seen}) == 1
    assert len({topic for _, topic in seen}) == 2

def test_three(moldau_cluster_session):
    topic = moldau_cluster_session.create_topic(partitions=3)
    moldau_cluster_session.produce(topic, "one")
    assert len(moldau_cluster_session.wait_for_records(topic)) == 1
"""


def test_the_fixtures_of_a_session_share_a_broker_and_no_topic(tmp_path: Path) -> None:
    (tmp_path / "test_users.py").write_text(USERS_TESTS)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_users.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
