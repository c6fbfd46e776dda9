"""Clients that work throughout while things happen to a cluster, and what they were promised.

An idempotent producer with acks=all, a consumer that reads every partition to its end, and a group
that reads and commits. Nothing may come twice, be missing or go back; the longest time without an
acknowledgement is measured and shown, and never a reason to fail.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from support import confluent_client
from support.cluster_processes import ClusterBooks
from support.load import Load, Tail, assert_log_is_what_was_sent
from support.topics import fresh_name
from support.waiting import PATIENCE_SECONDS, eventually

_ABOUT_CONNECTIONS = (
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._RESOLVE,
)
_ANSWER_SECONDS = 5.0
_PAUSE_SECONDS = 0.05
_PATIENT = {"request_timeout_ms": 5_000, "message_timeout_ms": int(PATIENCE_SECONDS * 1000)}
_QUICK = {
    "socket_timeout_ms": 5_000,
    "retry_backoff_ms": 50,
    "retry_backoff_max_ms": 100,
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 100,
    "topic_metadata_refresh_fast_interval_ms": 50,
}


class MeasuredLoad(Load):
    """A few thousand records a second, and how long there was no acknowledgement at most."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        error_cb: Callable[[KafkaError], None],
    ) -> None:
        super().__init__(
            bootstrap,
            topic,
            partitions,
            most_in_flight=60,  # with the linger time this sets the pace
            linger_ms=20,
            batch_num_messages=1_000,
            error_cb=error_cb,
            **_QUICK,
            **_PATIENT,
        )
        self._last_time: float | None = None
        self.longest_gap_seconds = 0.0

    def _run(self) -> None:
        try:
            super()._run()
        except KafkaException as error:  # the producer cannot go on
            self.errors.append(error.args[0])

    def _note(self, error: KafkaError | None, message: Message) -> None:
        super()._note(error, message)
        now = time.monotonic()
        if self._last_time is not None:
            self.longest_gap_seconds = max(self.longest_gap_seconds, now - self._last_time)
        self._last_time = now


class Committer:
    """One member of a group, which commits what it has read, batch by batch.

    Whatever happens to the group: whenever partitions are given to it, their commits are asked
    for, and are never before the last one that was acknowledged.
    """

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, error_cb: Callable[[KafkaError], None]
    ) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._error_cb = error_cb
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="committer")
        self.group = fresh_name("group")
        self.positions = dict.fromkeys(range(partitions), 0)  # the next offset never seen
        self.committed = dict.fromkeys(range(partitions), 0)  # acknowledged
        self._starts = dict.fromkeys(range(partitions), 0)  # what it was given to begin with
        self.failure: AssertionError | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def wait_for_commits(self, ends: dict[int, int]) -> None:
        """Until everything up to these offsets is committed."""
        self._wait_until(lambda: self.committed == ends, str(ends))

    def wait_for_more(self) -> None:
        """Until something more is committed."""
        before = sum(self.committed.values())
        self._wait_until(lambda: sum(self.committed.values()) > before, "more")

    def _wait_until(self, is_so: Callable[[], bool], what: str) -> None:
        eventually(
            lambda: self.failure or is_so(),
            lambda: f"commits: {what}, there are {self.committed}",
        )
        if self.failure is not None:
            raise self.failure

    def assert_commits_are_kept(self) -> None:
        """What a broker answers now is what it acknowledged."""
        wanted = [TopicPartition(self._topic, number) for number in self.committed]
        with confluent_client.consumer(self._bootstrap, group_id=self.group) as client:
            found = client.committed(wanted, PATIENCE_SECONDS)
        assert {one.partition: one.offset for one in found} == self.committed

    def _run(self) -> None:
        with confluent_client.consumer(
            self._bootstrap,
            group_id=self.group,
            auto_offset_reset="earliest",
            session_timeout_ms=4_000,
            heartbeat_interval_ms=500,
            error_cb=self._error_cb,
            **_QUICK,
        ) as client:
            client.subscribe([self._topic], on_assign=self._begin)
            while not self._stopping.is_set() and self.failure is None:
                messages = client.consume(500, 0.1)
                read = {m.partition() for m in messages if self._note(m)}
                offsets = [TopicPartition(self._topic, n, self.positions[n]) for n in read]
                behind = any(self.committed[n] < end for n, end in self.positions.items())
                if not offsets and behind:  # a commit failed, and nothing more came
                    offsets = [TopicPartition(self._topic, n, p) for n, p in self.positions.items()]
                if offsets:
                    self._commit(client.commit, offsets)

    def _begin(self, client: Consumer, partitions: list[TopicPartition]) -> None:
        """In the thread that commits, so that no commit is under way while we ask."""
        while not self._stopping.is_set():
            try:
                found = client.committed(partitions, _ANSWER_SECONDS)
            except KafkaException:
                continue
            if not any(one.error for one in found):
                break
        else:
            return
        starts = [TopicPartition(one.topic, one.partition, max(one.offset, 0)) for one in found]
        for one in starts:
            if one.offset < self.committed[one.partition]:
                self._fail(f"{self.committed} were committed, and {one} is what is left of it")
            self._starts[one.partition] = one.offset
        client.assign(starts)

    def _commit(
        self, commit: Callable[..., list[TopicPartition] | None], offsets: list[TopicPartition]
    ) -> None:
        try:
            done = commit(offsets=offsets, asynchronous=False) or ()
        except KafkaException:
            self._stopping.wait(_PAUSE_SECONDS)
            return  # it may have happened or not, and is tried again
        for one in done:
            if one.error is None:
                self.committed[one.partition] = one.offset

    def _note(self, message: Message) -> bool:
        if message.error() is not None:
            is_new = not any(self.positions.values())
            if is_new and message.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return False  # the broker that was asked does not know the topic yet
            if message.topic() is not None:
                self._fail(str(message.error()))
            return False
        partition, offset = message.partition(), message.offset()
        start, position = self._starts[partition], self.positions[partition]
        if not start <= offset <= position:
            self._fail(f"offset {offset} of partition {partition}, not of {start} to {position}")
        self.positions[partition] = max(position, offset + 1)
        return True

    def _fail(self, what: str) -> None:
        if self.failure is None:
            self.failure = AssertionError(what)


class Traffic:
    """All of them, on one topic."""

    def __init__(self, cluster: ClusterBooks, topic: str, partitions: int) -> None:
        self._cluster = cluster
        self._topic = topic
        self._partitions = partitions
        self.errors: list[KafkaError] = []  # that the clients told of; none reached a record
        where = (cluster.bootstrap, topic, partitions)
        self.load = MeasuredLoad(*where, self.errors.append)
        self.tail = Tail(*where)
        self.committer = Committer(*where, self.errors.append)

    def __enter__(self) -> Self:
        for part in self._parts:
            part.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        for part in reversed(self._parts):
            part.__exit__()

    @property
    def _parts(self) -> tuple[Load, Tail, Committer]:
        return self.load, self.tail, self.committer

    def wait_until_it_flows(self) -> None:
        """Records are acknowledged, and commits too."""
        self.load.wait_for_more(300)
        self.committer.wait_for_more()

    def finish(self) -> None:
        """Everything was kept, everywhere. All brokers must be running."""
        self.load.wait_for_more(300)
        self.load.finish()
        self.tail.wait_until_seen(self.load.sent)
        self.committer.wait_for_commits({n: len(sent) for n, sent in self.load.sent.items()})
        self._cluster.wait_until_whole()
        assert_log_is_what_was_sent(self._cluster.bootstrap, self._topic, self.load)
        self._cluster.assert_replicas_agree(self._topic, self._partitions)
        self.committer.assert_commits_are_kept()
        assert not [error for error in self.errors if error.fatal()]

    def unexpected_errors(self) -> list[KafkaError]:
        """What clients told of that is more than a lost connection and cannot be tried again."""
        return [
            error
            for error in self.errors
            if error.code() not in _ABOUT_CONNECTIONS and not error.retriable()
        ]


@contextlib.contextmanager
def traffic_on(
    cluster: ClusterBooks, show_figure: Callable[[str], None], partitions: int = 3
) -> Iterator[tuple[str, Traffic]]:
    """Clients at work on a new topic, before, during and after; all is checked at the end."""
    topic = cluster.create_topic(partitions)
    with Traffic(cluster, topic, partitions) as traffic:
        traffic.wait_until_it_flows()
        yield topic, traffic
        traffic.finish()
    show_figure(f"unavailable for {traffic.load.longest_gap_seconds:.1f} s at most")
