"""Transactions with Apache Kafka's own client, Kafka Streams and `kafka-transactions.sh`."""

from __future__ import annotations

import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

import moldau.testing
from moldau.errors import ErrorCode
from moldau.records.record_batch import build_batch
from support.kafka_jars import JarsUnavailableError, require_class_path
from support.requests import error_codes_of, full_request
from support.topics import Topics
from support.waiting import PATIENCE_SECONDS, eventually
from support.wire_client import WireClient

JAVA = Path(__file__).parent / "java"
SETTINGS = {
    "num.partitions": "2",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "transaction.partition.verification.enable": "false",  # so that a transaction can hang
}
WORDS = ("river", "rain", "snow", "spring")
RUNS = 3
WORDS_EACH_RUN = 400


@pytest.fixture(scope="module")
def class_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Kafka's jars and the programs of this folder, or a skip with the reason."""
    folder = tmp_path_factory.mktemp("java")
    try:
        jars = require_class_path()
    except JarsUnavailableError as error:
        pytest.skip(str(error))
    # The others need a newer client than this one.
    sources = [str(JAVA / name) for name in ("TransactionalClient.java", "WordCount.java")]
    subprocess.run(["javac", "-cp", jars, "-d", str(folder), *sources], check=True, timeout=300)
    return f"{folder}:{jars}"


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with moldau.testing.broker(SETTINGS) as broker:
        yield broker.bootstrap


def java(class_path: str, *arguments: str) -> str:
    done = subprocess.run(
        ["java", "-Xmx256m", "-cp", class_path, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def kafka_transactions(class_path: str, bootstrap: str, *arguments: str) -> list[list[str]]:
    """The rows that `kafka-transactions.sh` prints, without its heading."""
    tool = "org.apache.kafka.tools.TransactionsCommand"
    text = java(class_path, tool, "--bootstrap-server", bootstrap, *arguments)
    rows = [[cell.strip() for cell in line.split("\t")] for line in text.splitlines()]
    return rows[1:]


def test_kafkas_client_commits_aborts_is_fenced_and_times_out(
    class_path: str, bootstrap: str
) -> None:
    told = java(class_path, "TransactionalClient", bootstrap, "client")
    assert len(told.splitlines()) == 9, told


def test_kafka_streams_counts_each_word_once_whenever_it_is_killed(
    class_path: str, bootstrap: str, tmp_path: Path
) -> None:
    topics = Topics(bootstrap)
    for name in ("words", "counts"):
        topics.create_named(name, 2)
    producer = Producer({"bootstrap.servers": bootstrap})
    reader = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "x", "isolation.level": "read_committed"}
    )
    reader.assign([TopicPartition("counts", number, 0) for number in range(2)])
    wanted: Counter[str] = Counter()
    counts: dict[str, list[int]] = defaultdict(list)

    def is_counted(share: float) -> bool:
        message = reader.poll(0.2)
        if message is not None and message.error() is None:
            counts[str(message.key(), "ascii")].append(int(message.value() or 0))
        return sum(map(len, counts.values())) >= wanted.total() * share

    for run in range(RUNS):
        for number in range(WORDS_EACH_RUN):
            word = WORDS[number % len(WORDS)]
            wanted[word] += 1
            producer.produce("words", word, key=str(number))
        assert producer.flush(PATIENCE_SECONDS) == 0
        share = 1.0 if run == RUNS - 1 else 0.6  # in the middle of its work
        command = ["java", "-Xmx256m", "-cp", class_path, "WordCount", bootstrap, str(tmp_path)]
        application = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            eventually(
                lambda share=share: is_counted(share),  # type: ignore[misc]
                lambda: f"{wanted} counted, now {[len(one) for one in counts.values()]}",
                4 * PATIENCE_SECONDS,
            )
        finally:
            application.kill()
            application.wait()
    reader.close()
    assert counts == {word: list(range(1, wanted[word] + 1)) for word in WORDS}


def begin_hanging_transaction(bootstrap: str, topic: str) -> None:
    """A batch in a transaction that no coordinator knows of, from an hour ago."""
    an_hour_ago_ms = int(time.time() * 1000) - 3_600_000
    batch = build_batch(
        [(an_hour_ago_ms, None, b"lost", ())],
        producer_id=4711,
        producer_epoch=3,
        base_sequence=0,
        transactional=True,
    )
    values = {"acks": -1, "transactional_id": "nobody", "name": topic, "records": bytes(batch)}
    with WireClient(int(bootstrap.rpartition(":")[2])) as client:
        answer = client.ask(full_request(0, 9, {**values, "timeout": timedelta(seconds=10)}))
    assert error_codes_of(answer) == [ErrorCode.none], answer


def test_kafkas_tool_finds_and_aborts_a_hanging_transaction(
    class_path: str, bootstrap: str
) -> None:
    topic = Topics(bootstrap).create()
    begin_hanging_transaction(bootstrap, topic)
    ask = partial(kafka_transactions, class_path, bootstrap)
    (found,) = ask("find-hanging", "--topic", topic)
    assert found[:6] == [topic, "0", "4711", "3", "-1", "0"]
    ask("abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    assert ask("find-hanging", "--topic", topic) == []
    (producer,) = ask("describe-producers", "--topic", topic, "--partition", "0")
    assert (producer[0], producer[5]) == ("4711", "None")


def test_kafkas_tool_lists_describes_and_ends_an_open_transaction(
    class_path: str, bootstrap: str
) -> None:
    topic = Topics(bootstrap).create(2)
    name = f"open-{topic}"
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(PATIENCE_SECONDS)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=1)
    assert producer.flush(PATIENCE_SECONDS) == 0
    ask = partial(kafka_transactions, class_path, bootstrap)
    assert [(one[0], one[3]) for one in ask("list") if one[0] == name] == [(name, "Ongoing")]
    (described,) = ask("describe", "--transactional-id", name)
    assert (described[4], described[8]) == ("Ongoing", f"{topic}-1")
    ask("forceTerminateTransaction", "--transactionalId", name)
    (ended,) = ask("describe", "--transactional-id", name)
    assert (ended[4], ended[8]) == ("Empty", "")  # aborted, and its producer is fenced
    with pytest.raises(KafkaException):
        producer.commit_transaction(PATIENCE_SECONDS)
