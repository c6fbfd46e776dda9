"""The commands of an operator against Apache Kafka: what the protocol tells they tell, and what
only brokers of Moldau know, they say so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from bench.systems import SYSTEMS

import moldau
from moldau.cli.main import run

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker with a topic, a group that has read it, and an aborted record."""
    system = SYSTEMS["kafka-256m"]
    obstacle = system.find_obstacle()
    if obstacle is not None:
        pytest.skip(f"no Apache Kafka: {obstacle}")
    running = system.start(tmp_path_factory.mktemp("kafka") / "data")
    try:
        _fill(running.bootstrap)
        yield running.bootstrap
    finally:
        running.close()


def _fill(bootstrap: str) -> None:
    with moldau.Admin(bootstrap) as admin:
        made = admin.create_topics([moldau.NewTopic(name="orders", partitions=2)])
        assert not isinstance(made["orders"], Exception)
    with moldau.Producer(bootstrap, transactional_id="t") as producer:
        with producer.transaction():
            for number in range(4):
                producer.send("orders", b"value", key=b"%d" % number, partition=0)
        producer.begin_transaction()
        producer.send("orders", b"not this one", partition=0).result()
        producer.abort_transaction()
    with moldau.Consumer(
        bootstrap, group="readers", topics=["orders"], auto_offset_reset="earliest"
    ) as consumer:
        read = 0
        while read < 4:
            read += len(consumer.poll(5))
        consumer.commit()


class Command:
    def __init__(self, bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._bootstrap = bootstrap
        self._capsys = capsys
        self.out = ""  # of the last one

    def __call__(self, *words: str, code: int = 0) -> str:
        """What a command says; it ends with this code and without a traceback."""
        self._capsys.readouterr()
        assert run([*words, "--bootstrap", self._bootstrap]) == code, words
        told = self._capsys.readouterr()
        assert "Traceback" not in told.err
        self.out = told.out
        return told.out + told.err

    def json(self, *words: str) -> Any:
        self(*words, "--json")
        return json.loads(self.out)


@pytest.fixture
def command(kafka: str, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(kafka, capsys)


def test_doctor_and_health_look_at_kafka(command: Command) -> None:
    found = command.json("doctor", "--watch", "0")
    assert found["findings"] == []
    assert (found["brokers"], found["groups"]) == (1, 1)
    assert len(found["unchecked"]) == 1
    assert "only brokers of Moldau tell them" in found["unchecked"][0]
    assert "healthy" in command("cluster", "health")
    assert "1 broker" in command("doctor", "--watch", "0")


def test_explain_tells_what_the_protocol_tells(command: Command) -> None:
    assert "it is here" in command("explain", "record", "orders", "0", "0")
    assert "aborted" in command("explain", "record", "orders", "0", "5")
    assert "transaction marker" in command("explain", "record", "orders", "0", "4")
    assert "never written" in command("explain", "record", "orders", "1", "0")
    assert "nothing is held back" in command("explain", "partition", "orders", "0")
    assert "retention" in command("explain", "topic", "orders")
    told = command("explain", "group", "readers", "--watch", "0")
    assert "only brokers of Moldau remember them" in told
    for words in (
        ("record", "nowhere", "0", "0"),
        ("record", "orders", "9", "0"),
        ("partition", "nowhere", "0"),
        ("group", "nobody"),
        ("topic", "nowhere"),
    ):
        assert "there is no" in (told := command("explain", *words, code=1)) or "no number" in told


def test_a_deleted_record_is_explained_by_what_kafka_tells(kafka: str, command: Command) -> None:
    with moldau.Producer(kafka) as producer:
        for _ in range(3):
            producer.send("orders", b"old", partition=1).result()
    command("topics", "trim", "orders:1", "--before-offset", "2", "--yes")
    told = command("explain", "record", "orders", "1", "0")
    assert "the log starts at offset 2" in told
    assert "Kafka forgets which" in told


def test_plan_bench_and_rebalance_measure_kafka(command: Command) -> None:
    plan = command("plan", "--target", "1MB/s", "--seconds", "0.3")
    assert "for 1 MB/s" in plan
    assert "these brokers are not Moldau's" in plan
    for what in ("produce", "consume", "latency", "requests"):
        assert command.json("bench", what, "--seconds", "0.3")
    assert "nothing has to move" in command("rebalance", "--sample", "0.2")
    assert "nothing has to move" in command("rebalance", "--sample", "0", "--execute")


def test_what_kafka_cannot_do_is_said(command: Command) -> None:
    assert "these brokers make no branches" in command(
        "topics", "branch", "orders", "trial", code=1
    )
    assert "trial" not in command("topics", "list")
