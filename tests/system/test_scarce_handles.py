"""A broker without a file handle left: it refuses what needs one, lives on, and loses nothing."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

import moldau
from moldau.client.admin.values import PREPARE_ABORT, TransactionDescription
from support.broker_process import BrokerProcess, broker_process
from support.topics import fresh_name
from support.waiting import PATIENCE_SECONDS, eventually

SEGMENTS = {"internal.segment.bytes": "5000"}
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
VALUE = b"v" * 500

pytestmark = pytest.mark.skipif(
    not hasattr(resource, "prlimit"), reason="only Linux limits a process that runs already"
)


@contextlib.contextmanager
def no_handle_left(broker: BrokerProcess) -> Iterator[None]:
    """What is open stays open: the connections, and the logs that are written to."""
    limits = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        yield
    finally:
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, limits)


class Story:
    """The clients, all of them connected, and each with everything behind it that it will do."""

    def __init__(self, bootstrap: str, stack: contextlib.ExitStack) -> None:
        self.topic = fresh_name()
        self.transactional_id = fresh_name("till")
        self.admin = stack.enter_context(moldau.Admin(bootstrap))
        made = moldau.NewTopic(name=self.topic, configs=SEGMENTS)
        assert not isinstance(self.admin.create_topics([made])[self.topic], Exception)
        patience_ms = int(PATIENCE_SECONDS * 1000)
        self.producer = stack.enter_context(
            moldau.Producer(bootstrap, delivery_timeout_ms=patience_ms, retry_backoff_max_ms=200)
        )
        self.till = stack.enter_context(
            moldau.Producer(bootstrap, transactional_id=self.transactional_id)
        )
        self.kept = [b"plain", b"committed"]
        self.producer.send(self.topic, b"plain").result()
        with self.till.transaction():
            self.till.send(self.topic, b"committed")
        self.give_up(b"aborted")
        eventually(lambda: self.state() != PREPARE_ABORT, "the first transaction is over")

    def give_up(self, value: bytes) -> None:
        """All of a transaction, to its end, which its coordinator has to bring about."""
        self.till.begin_transaction()
        self.till.send(self.topic, value).result()
        self.till.abort_transaction()

    def state(self) -> str:
        found = self.admin.describe_transactions([self.transactional_id])[self.transactional_id]
        assert isinstance(found, TransactionDescription), found
        return found.state

    def send_more_than_a_segment(self) -> Iterator[Future[moldau.RecordMetadata]]:
        for number in range(20):
            value = b"%d " % number + VALUE
            self.kept.append(value)
            yield self.producer.send(self.topic, value)


def test_what_cannot_be_opened_is_done_when_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The index of aborted transactions and the next segment are files that have to be made."""
    with broker_process(tmp_path, settings=SETTINGS) as broker, contextlib.ExitStack() as stack:
        broker.start()
        story = Story(broker.bootstrap, stack)
        for future in story.send_more_than_a_segment():  # now the active one has no index of them
            future.result()
        with no_handle_left(broker):
            story.give_up(b"aborted, too")
            assert story.state() == PREPARE_ABORT
            sent = list(story.send_more_than_a_segment())
            eventually(
                lambda: any("KAFKA_STORAGE_ERROR" in one for one in caplog.messages),
                lambda: f"a refusal: {broker.output}",
            )
            assert story.state() == PREPARE_ABORT
            assert broker.is_alive
        for future in sent:
            future.result()
        eventually(lambda: story.state() != PREPARE_ABORT, lambda: f"its end: {broker.output}")
        assert "offline" not in broker.output
        broker.kill()
        broker.start()
        found = moldau.read_table(story.topic, bootstrap=broker.bootstrap, read_committed=True)
        assert sorted(found["value"].to_pylist()) == sorted(story.kept)
