"""Several workers copy one topic to another exactly once while they and their brokers are killed.

What a reader of committed records finds is exactly the input, for each key in order. One reader of
everything sees what was aborted, too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from support.cluster_processes import ClusterProcesses
from support.waiting import PATIENCE_SECONDS, eventually

TESTS = Path(__file__).parent.parent
PARTITIONS = 3
WORKERS = 2
COUNT = 100
"""Records for each partition that come before each accident."""
_FEW = {"min.insync.replicas": "2"}

Command = Callable[[str, str, str, str, int, int], Sequence[str]]
"""Of a worker: bootstrap, source, target, group, its number and which of its lives it is."""


def python_worker(client: str) -> Command:
    def command(
        bootstrap: str, source: str, target: str, group: str, number: int, life: int
    ) -> Sequence[str]:
        words = (client, bootstrap, source, target, group, number, WORKERS, life)
        return [sys.executable, "-m", "support.transform_worker", *map(str, words)]

    return command


class TransformStory:
    """The workers of one client, with topics and a group of their own."""

    def __init__(
        self, cluster: ClusterProcesses, name: str, command: Command, folder: Path
    ) -> None:
        self.name = name
        self.source = cluster.create_topic(PARTITIONS, _FEW)
        self.target = cluster.create_topic(PARTITIONS, _FEW)
        self._cluster = cluster
        self._command = command
        self._log = folder / f"{name}.txt"
        self._count = 0  # of the records in each partition
        self._group = f"copies-{self.source}"
        self._lives = [0] * WORKERS
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * WORKERS
        self._frozen: list[subprocess.Popen[bytes]] = []
        self._asker = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": self._group})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end()
        self._asker.close()

    def send(self, count: int) -> None:
        """More of the input, for each partition."""
        producer = Producer({"bootstrap.servers": self._cluster.bootstrap})
        for number in range(self._count, self._count + count):
            for partition in range(PARTITIONS):
                key, value = b"%d" % partition, b"%d" % number
                producer.produce(self.source, value, key, partition=partition)
        assert producer.flush(PATIENCE_SECONDS) == 0
        self._count += count

    # Workers

    def start(self, *numbers: int) -> None:
        """Without numbers, all of them."""
        for number in numbers or range(WORKERS):
            self._lives[number] += 1
            place = (self._cluster.bootstrap, self.source, self.target, self._group)
            paths = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
            with self._log.open("ab") as log:
                self._processes[number] = subprocess.Popen(
                    self._command(*place, number, self._lives[number]),
                    stdout=log,
                    stderr=log,
                    env={**os.environ, "PYTHONPATH": paths},
                )

    def kill(self, number: int) -> None:
        _kill(self._processes[number])

    def freeze(self, number: int) -> None:
        """It does not know that it is over; another one is started in its place."""
        process = self._processes[number]
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        self._frozen.append(process)
        self.start(number)

    def thaw(self) -> None:
        for process in self._frozen:
            process.send_signal(signal.SIGCONT)

    def bury(self) -> None:
        """Kill the frozen ones, and those that were."""
        for process in self._frozen:
            _kill(process)
        self._frozen.clear()

    def end(self) -> None:
        self.bury()
        for process in self._processes:
            _kill(process)

    def log(self) -> str:
        return self._log.read_text(errors="replace")[-4000:] if self._log.exists() else ""

    # How far they are

    def left(self) -> int:
        """How many records its group has still before it, as far as can be told."""
        places = [TopicPartition(self.source, number) for number in range(PARTITIONS)]
        total = self._count * PARTITIONS
        try:
            done = self._asker.committed(places, PATIENCE_SECONDS)
        except KafkaException:
            return total  # its coordinator is away
        return total - sum(max(one.offset, 0) for one in done)

    def wait_for(self, left: int) -> None:
        """Until no more records are left."""
        eventually(
            lambda: self.left() <= left,
            lambda: f"{self.name} has {self.left()} records before it, not {left}; {self.log()}",
            4 * PATIENCE_SECONDS,
        )

    def read(self, isolation_level: str) -> dict[bytes, list[int]]:
        """The values of each key, in order."""
        found: defaultdict[bytes, list[int]] = defaultdict(list)
        with _reader(self._cluster.bootstrap, isolation_level) as consumer:
            for partition in range(PARTITIONS):
                consumer.assign([TopicPartition(self.target, partition, 0)])
                while True:
                    message = consumer.poll(PATIENCE_SECONDS)
                    assert message is not None, f"{self.name}: no end of {self.target}"
                    if message.error():
                        break
                    found[message.key() or b""].append(int(message.value() or b""))
        return dict(found)

    def require_exactly_once(self) -> None:
        wanted = {b"%d" % one: list(range(self._count)) for one in range(PARTITIONS)}
        eventually(
            lambda: self.read("read_committed") == wanted,
            lambda: f"{self.name}: {_differences(self.read('read_committed'), wanted)}",
        )

    def aborted_count(self) -> int:
        """Of the records that only a reader of everything sees."""
        seen = sum(map(len, self.read("read_uncommitted").values()))
        return seen - self._count * PARTITIONS


def _kill(process: subprocess.Popen[bytes] | None) -> None:
    if process is not None:
        process.kill()
        process.wait(PATIENCE_SECONDS)


@contextlib.contextmanager
def _reader(bootstrap: str, isolation_level: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": isolation_level,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def _differences(found: dict[bytes, list[int]], wanted: dict[bytes, list[int]]) -> str:
    said = []
    for key, values in wanted.items():
        got = found.get(key, [])
        twice = sorted({one for one in got if got.count(one) > 1})
        said.append(
            f"key {key!r}: missing {sorted(set(values) - set(got))[:9]}, twice {twice[:9]}, "
            f"in order: {got == sorted(got)}"
        )
    return "; ".join(said)


def befall(cluster: ClusterProcesses, stories: Sequence[TransformStory], round_count: int) -> None:
    """In every round: some are killed, then a broker, some are frozen, and all of it at once; each
    in the middle of their work."""
    topic = stories[0].source
    for step in range(4 * round_count):
        for story in stories:
            story.send(COUNT)
        for story in stories:
            story.wait_for(left=COUNT * PARTITIONS * 2 // 3)
        match step % 4:
            case 0:
                _again(stories, 0)
            case 1:
                _kill_broker(cluster, topic, step % PARTITIONS)
            case 2:
                for story in stories:
                    story.freeze(1)
            case _:
                for story in stories:
                    story.thaw()
                _again(stories, 1)
                _kill_broker(cluster, topic, (step + 1) % PARTITIONS)
                for story in stories:
                    story.bury()
    for story in stories:
        story.wait_for(left=0)


def _again(stories: Sequence[TransformStory], number: int) -> None:
    for story in stories:
        story.kill(number)
    for story in stories:
        story.start(number)


def _kill_broker(cluster: ClusterProcesses, topic: str, partition: int) -> None:
    victim = cluster.view(topic, partition).leader
    cluster.kill(victim)
    cluster.wait_until_led_by_another(topic, victim, partition)
    cluster.start(victim)
    cluster.wait_until_whole()
