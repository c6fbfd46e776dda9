"""The driver's part of exactlyOnce, step by step, with a real broker: whoever dies where.

What tasks leave is prepared with our producer, as tasks do. Spark itself, and drivers that are
killed, are in `test_exactly_once_kill.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

import moldau
import moldau.testing
from moldau.client.admin.values import ONGOING
from moldau.client.producer.rules.transaction_manager import PreparedTransaction
from moldau.errors import ConfigurationError, TransactionAbortedError
from moldau.spark import exactly_once
from moldau.spark.exactly_once import (
    STATE_TOPIC,
    DecisionLog,
    PreparedRows,
    abort_batch,
    commit_batch,
)
from moldau.spark.options import WriteOptions, read_write_options
from moldau.spark.rules.batch_decisions import Decision, task_transactional_id
from moldau.spark.writer import make_batch_writer, make_stream_writer
from support.topics import Topics
from support.waiting import eventually


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with moldau.testing.broker({"transaction.two.phase.commit.enable": "true"}) as broker:
        yield broker.bootstrap
        exactly_once.close_logs()
        while _left:
            _left.pop().close()


_left: list[DecisionLog] = []
"""Of drivers that are gone. Here they live on in this process: they would look for their broker for
as long as that does, and tell the log of other tests."""


class Query:
    """A query with its id and its topic, and the drivers that it has one after the other."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.query_id = str(uuid4())
        self.topic = Topics(bootstrap).create()
        given = {"kafka.bootstrap.servers": bootstrap, "topic": self.topic, "exactlyOnce": "true"}
        self.options: WriteOptions = read_write_options(
            {name.lower(): value for name, value in given.items()}
        )

    def task(self, batch_id: int, *values: bytes) -> PreparedRows:
        """A task has written, and its worker is gone."""
        if not values:
            return PreparedRows(self.query_id, batch_id, 0, None)
        name = task_transactional_id(self.query_id, uuid4().hex)
        with moldau.Producer(
            self.bootstrap, transactional_id=name, transaction_two_phase_commit_enable=True
        ) as producer:
            producer.begin_transaction()
            producer.send_many(self.topic, values)
            prepared = producer.prepare_transaction()
        return PreparedRows(self.query_id, batch_id, len(values), prepared)

    def commit(self, batch_id: int, *messages: PreparedRows) -> None:
        commit_batch(messages, batch_id, self.options)

    def abort(self, batch_id: int, *messages: PreparedRows | None) -> None:
        abort_batch(messages, batch_id, self.options)

    def restart(self) -> None:
        """The driver's process is gone, and with it what it knew."""
        _left.extend(exactly_once._logs.values())
        exactly_once._logs.clear()

    def decide_and_die(self, batch_id: int, *messages: PreparedRows) -> None:
        """The driver dies when it has recorded its decision, and has completed nothing."""
        with exactly_once._open_admin(self.options) as admin:
            log = exactly_once._open_log(self.query_id, admin, self.options)
            offered = tuple(one.prepared for one in messages if one.prepared is not None)
            open_ones = exactly_once._find_open(admin, self.query_id, offered)
            strays = tuple(one for one in open_ones if one not in offered)
            log.record(Decision(batch_id=batch_id, commit=offered, abort=strays))
        self.restart()

    def seen(self) -> list[bytes]:
        table = moldau.read_table(self.topic, bootstrap=self.bootstrap, read_committed=True)
        return sorted(table["value"].to_pylist())

    def require(self, *values: bytes) -> None:
        """These are seen by readers of committed records, and nothing is left open."""
        with moldau.Admin(self.bootstrap) as admin:
            eventually(
                lambda: not admin.list_transactions(states=[ONGOING]), "no transaction is open"
            )
        eventually(lambda: len(self.seen()) >= len(values), "all rows are seen")
        assert self.seen() == sorted(values)


@pytest.fixture
def query(bootstrap: str) -> Query:
    return Query(bootstrap)


def test_rows_are_seen_when_their_batch_is_committed_and_not_before(query: Query) -> None:
    first, second, empty = query.task(0, b"a", b"b"), query.task(0, b"c"), query.task(0)
    assert query.seen() == []
    query.commit(0, first, second, empty)
    query.require(b"a", b"b", b"c")
    query.commit(1, query.task(1))  # a batch without rows
    query.commit(2, query.task(2, b"d"))
    query.require(b"a", b"b", b"c", b"d")


def test_attempts_that_lost_are_aborted_with_the_decision(query: Query) -> None:
    query.task(0, b"lost")
    query.commit(0, query.task(0, b"won"))
    query.require(b"won")


def test_a_driver_that_dies_before_its_decision_leaves_nothing(query: Query) -> None:
    query.task(0, b"a")
    query.restart()
    query.commit(0, query.task(0, b"a"))
    query.require(b"a")


def test_a_driver_that_dies_behind_its_decision_is_completed_by_the_next_one(query: Query) -> None:
    query.commit(0, query.task(0, b"a"))
    query.task(1, b"lost")
    query.decide_and_die(1, query.task(1, b"b"))
    assert query.seen() == [b"a"]
    query.commit(1, query.task(1, b"b"))  # Spark repeats the batch
    query.require(b"a", b"b")
    query.commit(2, query.task(2, b"c"))
    query.require(b"a", b"b", b"c")


def test_a_batch_that_is_complete_can_be_repeated_and_so_can_one_long_before(query: Query) -> None:
    for batch_id, value in enumerate((b"a", b"b")):
        query.commit(batch_id, query.task(batch_id, value))
        query.restart()
        query.commit(batch_id, query.task(batch_id, value))
    query.commit(0, query.task(0, b"a"))
    query.require(b"a", b"b")


def test_a_batch_that_is_aborted_leaves_nothing_and_can_be_written_again(query: Query) -> None:
    query.abort(0, query.task(0, b"a"), None)
    query.require()
    query.commit(0, query.task(0, b"a"))
    query.require(b"a")


def test_an_abort_behind_the_decision_takes_nothing_back(query: Query) -> None:
    message = query.task(0, b"a")
    query.decide_and_die(0, message)
    query.abort(0, message)  # Spark aborts, because the commit failed
    query.commit(0, query.task(0, b"a"))
    query.require(b"a")


def test_of_two_processes_that_commit_only_one_decides_over_a_batch(query: Query) -> None:
    query.commit(0, query.task(0, b"a"))
    key, former = next(item for item in exactly_once._logs.items() if item[0][2] == query.query_id)
    query.restart()
    query.commit(1, query.task(1, b"b"))
    later = exactly_once._logs[key]
    exactly_once._logs[key] = former  # it knows of batch 0 only, and is fenced
    query.commit(1, query.task(1, b"b"))
    query.require(b"a", b"b")
    query.restart()
    exactly_once._logs[key] = later  # fenced in its turn
    query.commit(2, query.task(2, b"c"))
    query.require(b"a", b"b", b"c")


def test_a_decision_is_found_again_when_partitions_were_added(query: Query) -> None:
    task = query.task(0, b"a")
    query.commit(0, task)
    with moldau.Admin(query.bootstrap) as admin:
        count = len(admin.describe_topics([STATE_TOPIC])[STATE_TOPIC].partitions)
        assert admin.create_partitions({STATE_TOPIC: count + 7}) == {STATE_TOPIC: None}
    query.restart()
    query.commit(0, query.task(0, b"a"))  # the same batch again, by the next driver
    query.require(b"a")


@pytest.mark.parametrize(
    ("partitions", "policy", "fault"),
    [(16, "delete", "cleanup.policy=delete"), (1, "compact", "has 1 partitions")],
)
def test_a_state_topic_that_would_forget_decisions_is_refused(
    partitions: int, policy: str, fault: str
) -> None:
    with moldau.testing.broker({"transaction.two.phase.commit.enable": "true"}) as broker:
        made = moldau.NewTopic(
            name=STATE_TOPIC, partitions=partitions, configs={"cleanup.policy": policy}
        )
        with moldau.Admin(broker.bootstrap) as admin:
            assert not isinstance(admin.create_topics([made])[STATE_TOPIC], Exception)
        query = Query(broker.bootstrap)
        task = query.task(0, b"a")
        with pytest.raises(ConfigurationError, match=fault):
            query.commit(0, task)
        assert query.seen() == []


def test_a_batch_of_thousands_of_tasks_is_one_decision(query: Query) -> None:
    """Of more bytes than a record may have without further ado."""
    many = tuple(
        PreparedTransaction(
            transactional_id=task_transactional_id(query.query_id, uuid4().hex),
            producer_id=10**6 + number,
            producer_epoch=0,
        )
        for number in range(20_000)
    )
    with exactly_once._open_admin(query.options) as admin:
        log = exactly_once._open_log(query.query_id, admin, query.options)
        log.record(Decision(batch_id=0, commit=many, abort=()))
        query.restart()
        again = exactly_once._open_log(query.query_id, admin, query.options)
    assert again.latest == Decision(batch_id=0, commit=many, abort=())


def test_a_transaction_that_an_administrator_has_ended_fails_the_batch(query: Query) -> None:
    message = query.task(0, b"a")
    assert message.prepared is not None
    with moldau.Admin(query.bootstrap) as admin:
        admin.complete_transactions([message.prepared], commit=False)
    with pytest.raises(TransactionAbortedError, match="somebody has ended transactions"):
        query.commit(0, message)
    query.commit(0, query.task(0, b"a"))
    query.require(b"a")


# What is refused


def test_a_batch_and_asynchronous_progress_have_no_exactly_once() -> None:
    given = {"kafka.bootstrap.servers": "b:1", "topic": "t", "exactlyonce": "true"}
    schema = StructType().add("value", "string")
    with pytest.raises(ConfigurationError, match="is for streams"):
        make_batch_writer(given, schema, overwrite=False)
    with pytest.raises(ConfigurationError, match="exclude each other"):
        make_stream_writer(
            {**given, "asyncprogresstrackingenabled": "true"}, schema, overwrite=False
        )
    with pytest.raises(ConfigurationError, match=r"kafka\.transactional\.id cannot be set"):
        make_stream_writer({**given, "kafka.transactional.id": "x"}, schema, overwrite=False)


def test_a_task_outside_of_a_stream_says_so(query: Query) -> None:
    writer = make_stream_writer(
        {"kafka.bootstrap.servers": query.bootstrap, "topic": query.topic, "exactlyonce": "true"},
        StructType().add("value", "string"),
        overwrite=False,
    )
    with pytest.raises(ConfigurationError, match="which query and which batch"):
        writer.write(iter([pa.record_batch({"value": ["x"]})]))


def test_brokers_without_two_phase_commit_are_named_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exactly_once, "_find_place", lambda: ("query", 0))  # as in a task
    with moldau.testing.broker() as broker:
        options = read_write_options(
            {"kafka.bootstrap.servers": broker.bootstrap, "topic": "t", "exactlyonce": "true"}
        )
        rows = iter([pa.record_batch({"value": ["x"]})])
        with pytest.raises(
            ConfigurationError,
            match=r"exactlyOnce=true needs .* set transaction\.two\.phase\.commit\.enable=true",
        ):
            exactly_once.prepare_rows(rows, options, lambda producer, batches: 0)
