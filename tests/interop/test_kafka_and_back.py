"""Apache Kafka's brokers, their folders taken over by Moldau, and given back: docs/migrating.md."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import moldau
from moldau.client.admin.values import ConfigResource
from moldau.errors import MoldauError
from moldau.testing.free_ports import take_port
from support.broker_process import broker_process
from support.kafka_jars import (
    CORE,
    ON_ZOOKEEPER,
    Dependencies,
    JarsUnavailableError,
    require_class_path,
)
from support.waiting import PATIENCE_SECONDS, eventually
from support.zookeeper import Zookeeper, zookeeper  # noqa: F401

SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
}
KRAFT = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
}
CLUSTER_ID = "bW9sZGF1LXRlc3QtY2x1cw"

JAVA_SECONDS = 120.0
"""Until Kafka has started or stopped. It takes eight seconds of CPU, which are long on a busy
machine."""


class Kafka:
    """A broker of Apache Kafka over one folder, started and stopped."""

    def __init__(self, jars: str, folder: Path, settings: dict[str, str]) -> None:
        self.port = take_port()
        self.data = folder / "kafka-data"
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.properties = folder / "server.properties"
        self._java = ["java", "-Xmx400m", "-XX:+UseSerialGC", "-cp", jars]
        self._folder = folder
        listener = {"listeners": f"PLAINTEXT://{self.bootstrap}", "log.dirs": str(self.data)}
        self._write({**SETTINGS, **listener, **settings})

    def format(self) -> None:
        """As a broker of a quorum of its own needs it."""
        tool = ["kafka.tools.StorageTool", "format", "--cluster-id", CLUSTER_ID]
        subprocess.run([*self._java, *tool, "--config", str(self.properties)], check=True)

    @contextmanager
    def running(self) -> Iterator[None]:
        log = self._folder / "kafka.log"
        with log.open("ab") as output:
            command = [*self._java, "kafka.Kafka", str(self.properties)]
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            eventually(
                lambda: process.poll() is not None or answers(self.bootstrap),
                lambda: f"a broker of Kafka:\n{log.read_text()}",
                JAVA_SECONDS,
            )
            assert process.poll() is None, log.read_text()
            yield
            process.terminate()
            process.wait(JAVA_SECONDS)
        finally:
            process.kill()
            process.wait()

    def _write(self, settings: dict[str, str]) -> None:
        lines = "".join(f"{name}={value}\n" for name, value in settings.items())
        self.properties.write_text(lines, encoding="utf-8")


def answers(bootstrap: str) -> bool:
    try:
        with moldau.Admin(bootstrap, default_api_timeout_ms=10_000) as admin:
            return bool(admin.list_topics() is not None)
    except MoldauError:
        return False


def require_jars(dependencies: Dependencies) -> str:
    if shutil.which("java") is None:
        pytest.skip("there is no Java to run Apache Kafka with")
    try:
        return require_class_path(dependencies)
    except JarsUnavailableError as error:
        pytest.skip(str(error))


def fill(bootstrap: str) -> None:
    """Two topics with settings of their own, and a group that has read a part."""
    with moldau.Admin(bootstrap) as admin:
        topics = [
            moldau.NewTopic(name="clicks", partitions=2, configs={"retention.ms": "-1"}),
            moldau.NewTopic(name="users", configs={"cleanup.policy": "compact"}),
        ]
        made = admin.create_topics(topics)
        assert not [error for error in made.values() if isinstance(error, Exception)]
    write(bootstrap, 0, 100)


def write(bootstrap: str, first: int, end: int) -> None:
    with moldau.Producer(bootstrap) as producer:
        for number in range(first, end):
            producer.send("clicks", b"%d" % number, key=b"%d" % (number % 7))
        producer.send("users", b"%d" % end, key=b"last")


def read_by_group(bootstrap: str, count: int) -> set[int]:
    found: set[int] = set()
    with moldau.Consumer(
        bootstrap, group="readers", topics=["clicks"], auto_offset_reset="earliest"
    ) as consumer:
        for record in consumer:
            found.add(int(record.value or b"-1"))
            if len(found) == count:
                break
    return found


def read_all(bootstrap: str, count: int) -> set[int]:
    with moldau.Consumer(bootstrap, topics=["clicks"], auto_offset_reset="earliest") as consumer:
        found: set[int] = set()
        while len(found) < count:
            found |= {int(record.value or b"-1") for record in consumer.poll(PATIENCE_SECONDS)}
    return found


def test_a_cluster_of_kafka_on_zookeeper_is_taken_over_and_given_back(
    tmp_path: Path,
    zookeeper: Zookeeper,  # noqa: F811
) -> None:
    jars = require_jars(ON_ZOOKEEPER)
    connect = zookeeper.fresh_connect()
    kafka = Kafka(jars, tmp_path, {"broker.id": "1", "zookeeper.connect": connect})
    with kafka.running():
        fill(kafka.bootstrap)
        read = read_by_group(kafka.bootstrap, 60)

    arguments = ("--config", str(kafka.properties))
    with broker_process(
        tmp_path / "moldau",
        data_folder=kafka.data,
        settings={"listeners": f"PLAINTEXT://{kafka.bootstrap}"},
        arguments=arguments,
        port=kafka.port,
    ) as broker:
        broker.start()
        with moldau.Admin(kafka.bootstrap) as admin:
            users = ConfigResource.topic("users")
            (found,) = admin.describe_configs([users], names=["cleanup.policy"])[users]
        assert found.value == "compact"
        assert read_all(kafka.bootstrap, 100) == set(range(100))
        write(kafka.bootstrap, 100, 150)
        read |= read_by_group(kafka.bootstrap, 90)
        assert read == set(range(150))
        assert broker.stop() == 0

    with kafka.running():
        assert read_all(kafka.bootstrap, 150) == set(range(150))
        write(kafka.bootstrap, 150, 160)
        assert read_by_group(kafka.bootstrap, 10) == set(range(150, 160))


def test_the_folder_of_a_kraft_broker_is_served_and_given_back(tmp_path: Path) -> None:
    jars = require_jars(CORE)
    controller = f"127.0.0.1:{take_port()}"
    kafka = Kafka(jars, tmp_path, {**KRAFT, "controller.quorum.voters": f"1@{controller}"})
    text = kafka.properties.read_text().replace(
        f"listeners=PLAINTEXT://{kafka.bootstrap}",
        f"listeners=PLAINTEXT://{kafka.bootstrap},CONTROLLER://{controller}",
    )
    kafka.properties.write_text(text)
    kafka.format()
    with kafka.running():
        fill(kafka.bootstrap)
        read = read_by_group(kafka.bootstrap, 60)

    with broker_process(tmp_path / "moldau", data_folder=kafka.data, port=kafka.port) as broker:
        broker.start()
        assert "clicks" in broker.output, "nobody was told whose settings are not known"
        assert read_all(kafka.bootstrap, 100) == set(range(100))
        write(kafka.bootstrap, 100, 150)
        read |= read_by_group(kafka.bootstrap, 90)
        assert read == set(range(150))
        assert broker.stop() == 0

    with kafka.running():
        assert read_all(kafka.bootstrap, 150) == set(range(150))
        write(kafka.bootstrap, 150, 160)
        assert read_by_group(kafka.bootstrap, 10) == set(range(150, 160))
