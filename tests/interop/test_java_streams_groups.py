"""Kafka Streams with its own group protocol (KIP-1071), and `kafka-streams-groups.sh`."""

from __future__ import annotations

import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from moldau.testing.running_broker import RunningBroker, broker
from support.kafka_jars import NEWEST, JarsUnavailableError, require_class_path
from support.topics import Topics
from support.waiting import PATIENCE_SECONDS, eventually

JAVA = Path(__file__).parent / "java"
FRUGAL = ("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
SETTINGS = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.min.heartbeat.interval.ms": "500",
    "group.streams.session.timeout.ms": "10000",
    "group.streams.min.session.timeout.ms": "1000",
    "group.streams.num.standby.replicas": "1",
}
GROUP = "word-count"  # the application id
INTERNAL = (f"{GROUP}-counts-repartition", f"{GROUP}-counts-changelog")
WORDS = ("river", "rain", "snow", "spring")
WORDS_EACH_TIME = 400
PARTITIONS = 3
JAVA_SECONDS = 4 * PATIENCE_SECONDS
"""On a busy machine each start of Java takes many seconds."""


@pytest.fixture(scope="module")
def class_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Kafka's jars and the program of this folder, or a skip with the reason."""
    folder = tmp_path_factory.mktemp("streams")
    try:
        jars = require_class_path(NEWEST)
    except JarsUnavailableError as error:
        pytest.skip(str(error))
    source = str(JAVA / "WordCount.java")
    subprocess.run(["javac", "-cp", jars, "-d", str(folder), source], check=True, timeout=300)
    return f"{folder}:{jars}"


@pytest.fixture
def running() -> Iterator[RunningBroker]:
    with broker(SETTINGS) as started:
        Topics(started.bootstrap).create_named("words", PARTITIONS)
        Topics(started.bootstrap).create_named("counts", 2)
        yield started


@contextmanager
def instance(class_path: str, bootstrap: str, state: Path) -> Iterator[subprocess.Popen[bytes]]:
    """An instance of the application; killed at the end if it was not before."""
    state.mkdir()
    words = ("WordCount", bootstrap, str(state), "group.protocol=streams")
    endpoint = f"application.server=127.0.0.1:{7000 + len(state.name)}"
    command = ["java", *FRUGAL, "-cp", class_path, *words, endpoint]
    application = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield application
    finally:
        application.kill()
        application.wait()


class Tool:
    """`kafka-streams-groups.sh`."""

    def __init__(self, class_path: str, bootstrap: str) -> None:
        name = "org.apache.kafka.tools.streams.StreamsGroupCommand"
        self._command = ("java", *FRUGAL, "-cp", class_path, name, "--bootstrap-server", bootstrap)

    def __call__(self, *arguments: str) -> str:
        done = subprocess.run(
            [*self._command, *arguments], capture_output=True, text=True, timeout=300, check=False
        )
        assert "Error" not in done.stdout, done.stdout + done.stderr
        assert "Exception" not in done.stderr, done.stdout + done.stderr
        return done.stdout

    def rows(self, *arguments: str) -> list[list[str]]:
        """Of the group."""
        lines = self("--group", GROUP, *arguments).splitlines()
        return [line.split() for line in lines if line.startswith(GROUP)]


class Counts:
    """The application's input, and what it makes of it."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap})
        settings = {"group.id": "x", "isolation.level": "read_committed"}
        self._reader = Consumer({"bootstrap.servers": bootstrap, **settings})
        self._reader.assign([TopicPartition("counts", number, 0) for number in range(2)])
        self.wanted: Counter[str] = Counter()
        self.seen: dict[str, list[int]] = defaultdict(list)

    def write(self) -> None:
        for number in range(WORDS_EACH_TIME):
            word = WORDS[number % len(WORDS)]
            self.wanted[word] += 1
            self._producer.produce("words", word, key=str(number))
        assert self._producer.flush(PATIENCE_SECONDS) == 0

    def wait_for(self, share: float) -> None:
        """Until so much of the input is counted."""

        def is_counted() -> bool:
            message = self._reader.poll(0.2)
            if message is not None and message.error() is None:
                self.seen[str(message.key(), "ascii")].append(int(message.value() or 0))
            return sum(map(len, self.seen.values())) >= self.wanted.total() * share

        told = lambda: f"{self.wanted}: {[len(one) for one in self.seen.values()]}"  # noqa: E731
        eventually(is_counted, told, JAVA_SECONDS)

    def close(self) -> None:
        self._reader.close()


def count_tasks(tool: Tool) -> list[tuple[int, int]]:
    """How many tasks each member runs, and of how many it has a copy, as the tool tells it."""
    told = []
    for row in tool.rows("--describe", "--members"):
        active, _, standby = " ".join(row[4:]).partition("STANDBY:")
        told.append((_count(active), _count(standby)))
    return sorted(told)


def _count(tasks: str) -> int:
    """`0:[0,1]; 1:[2]; `"""
    return sum(len(one.split(",")) for one in re.findall(r"\[([\d,]+)\]", tasks))


def test_kafka_streams_counts_each_word_once_in_its_own_protocol(
    class_path: str, running: RunningBroker, tmp_path: Path
) -> None:
    bootstrap = running.bootstrap
    tool, topics, counts = Tool(class_path, bootstrap), Topics(bootstrap), Counts(bootstrap)
    counts.write()
    with (
        instance(class_path, bootstrap, tmp_path / "a") as first,
        instance(class_path, bootstrap, tmp_path / "bb"),
    ):
        counts.wait_for(0.5)
        assert [len(topics.describe(name)[1]) for name in INTERNAL] == [PARTITIONS] * 2
        assert topics.config(INTERNAL[1])["cleanup.policy"] == "compact"
        spread = [(3, 1), (3, 2)]  # two subtopologies, of which one has state, in 3 partitions
        told = lambda: str(count_tasks(tool))  # noqa: E731
        eventually(lambda: count_tasks(tool) == spread, told, JAVA_SECONDS)
        assert tool.rows("--describe", "--state")[0][-2:] == ["Stable", "2"]
        assert {row[1] for row in tool.rows("--describe")} == {"words", INTERNAL[0]}
        first.kill()
        first.wait()
        counts.write()
        running.restart()
        counts.wait_for(1.0)
    counts.close()
    assert counts.seen == {word: list(range(1, counts.wanted[word] + 1)) for word in WORDS}
    _look_after(tool, topics)


def _look_after(tool: Tool, topics: Topics) -> None:
    """What an administrator does with a group that nobody is in."""
    is_empty: Callable[[], bool] = lambda: "Empty" in tool("--list", "--state")  # noqa: E731
    eventually(is_empty, "its members are not lost", JAVA_SECONDS)
    which = ("--input-topic", "words")
    reset = tool.rows("--reset-offsets", *which, "--to-earliest", "--execute")
    assert sorted(row[1:] for row in reset) == [
        ["words", str(number), "0"] for number in range(PARTITIONS)
    ]
    tool("--delete-offsets", "--group", GROUP, *which)
    tool("--delete", "--group", GROUP, "--delete-all-internal-topics")
    assert GROUP not in tool("--list")
    eventually(lambda: not topics.names() & set(INTERNAL), "its internal topics are not deleted")
