"""Brokers of one cluster, each a process of its own, with a real ZooKeeper that others can share.

What the cluster looks like is read from ZooKeeper directly, so that no broker has to be asked that
may be dead, paused or wrong. All processes end with the test.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import socket
import ssl
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.retry import KazooRetry

from moldau.cli.secure import SecureFolder
from support.broker_process import NOTHING, BrokerProcess, broker_process
from support.confluent_client import admin_client
from support.topics import fresh_name
from support.waiting import PATIENCE_SECONDS, eventually
from support.zookeeper import Zookeeper

SESSION_TIMEOUT_MS = 3_000
SETTINGS: Mapping[str, str] = {
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "replica.lag.time.max.ms": "5000",
    "replica.fetch.backoff.ms": "100",
    "replica.socket.timeout.ms": "5000",
}
"""Three copies of everything, and faults that are noticed within seconds."""


class PartitionView(NamedTuple):
    """What ZooKeeper says about a partition."""

    leader: int
    isr: Sequence[int]
    replicas: Sequence[int]

    @property
    def is_whole(self) -> bool:
        return self.leader in self.isr and set(self.isr) == set(self.replicas)


class Network(Protocol):
    """Where the brokers are, when it is not all the same place (`network_namespaces`)."""

    def reach(self, zookeeper: str) -> str:
        """The address of ZooKeeper as brokers see it."""
        ...

    def place(self, number: int) -> Mapping[str, object]:
        """Options of a broker's process; its settings go before those of all brokers."""
        ...


class ClusterBooks(ABC):
    """What is known of a cluster by its store, and what is on the disks of its brokers."""

    broker_ids: Sequence[int]

    @property
    @abstractmethod
    def bootstrap(self) -> str: ...

    @abstractmethod
    def data_folder(self, number: int) -> Path: ...

    @abstractmethod
    def _find(self, path: str) -> dict[str, Any] | None: ...

    @abstractmethod
    def _children(self, path: str) -> list[str]: ...

    def create_topic(self, partitions: int = 1, config: Mapping[str, str] = NOTHING) -> str:
        name = fresh_name("cluster")
        admin = admin_client(self.bootstrap)
        wanted = NewTopic(name, partitions, len(self.broker_ids), config=dict(config))

        def create() -> bool:
            try:
                admin.create_topics([wanted])[name].result(PATIENCE_SECONDS)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.INVALID_REPLICATION_FACTOR:
                    return False  # the broker that we asked does not know all others yet
                raise
            return True

        eventually(create, "enough brokers for a topic")
        self.wait_until_whole()
        return name

    # What the store knows

    def controller(self) -> int:
        """Who is it; waits until there is one."""
        return int(eventually(lambda: self._find("/controller"), "a controller")["brokerid"])

    def registered(self) -> set[int]:
        return {int(name) for name in self._children("/brokers/ids")}

    def view(self, topic: str, partition: int = 0) -> PartitionView:
        return self._view(topic, partition, self._assignment(topic)[partition])

    def views(self, topic: str) -> dict[int, PartitionView]:
        return {
            number: self._view(topic, number, replicas)
            for number, replicas in self._assignment(topic).items()
        }

    def _assignment(self, topic: str) -> dict[int, list[int]]:
        found = (self._find(f"/brokers/topics/{topic}") or {}).get("partitions", {})
        return {int(number): replicas for number, replicas in found.items()}

    def _view(self, topic: str, partition: int, replicas: Sequence[int]) -> PartitionView:
        state = self._find(f"/brokers/topics/{topic}/partitions/{partition}/state")
        state = state or {"leader": -1, "isr": ()}
        return PartitionView(state["leader"], state["isr"], replicas)

    def wait_until_led_by_another(self, topic: str, former: int, partition: int = 0) -> int:
        def find_other() -> int | None:
            leader = self.view(topic, partition).leader
            return None if leader in (former, -1) else leader

        return eventually(find_other, f"another leader than {former}")

    def wait_until_whole(self) -> None:
        """Every replica of every partition is in sync."""
        eventually(lambda: not self._incomplete(), lambda: f"in sync: {self._incomplete()}")

    def _incomplete(self) -> dict[tuple[str, int], PartitionView]:
        return {
            (topic, number): view
            for topic in self._children("/brokers/topics")
            for number, view in self.views(topic).items()
            if not view.is_whole
        }

    # What is on the disks

    def segments(self, number: int, topic: str, partition: int = 0) -> list[Path]:
        folder = self.data_folder(number) / f"{topic}-{partition}"
        return sorted(folder.glob("*.log"))

    def assert_replicas_agree(self, topic: str, partitions: int) -> None:
        """Byte for byte, as soon as the followers have everything."""
        for partition in range(partitions):
            eventually(
                lambda: len(set(self._logs(topic, partition).values())) == 1,  # noqa: B023
                lambda: f"the same log everywhere: {self._describe_logs(topic, partition)}",  # noqa: B023
            )

    def _logs(self, topic: str, partition: int) -> dict[int, bytes]:
        return {
            number: b"".join(path.read_bytes() for path in self.segments(number, topic, partition))
            for number in self.view(topic, partition).replicas
        }

    def _describe_logs(self, topic: str, partition: int) -> str:
        logs = self._logs(topic, partition)
        shortest = min(map(len, logs.values()))
        differs = next(
            (i for i in range(shortest) if len({log[i] for log in logs.values()}) > 1), shortest
        )
        sizes = {number: len(log) for number, log in logs.items()}
        return f"partition {partition}, sizes {sizes}, the same up to byte {differs}"


class ClusterProcesses(ClusterBooks):
    """Brokers 1 to N; use `cluster_processes`."""

    def __init__(self, brokers: Mapping[int, BrokerProcess], zookeeper: KazooClient) -> None:
        self.brokers = dict(brokers)
        self.broker_ids = tuple(brokers)
        self._zookeeper = zookeeper

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def data_folder(self, number: int) -> Path:
        return self.brokers[number].data_folder

    # Their lives; without numbers, all of them

    def start(self, *numbers: int) -> None:
        start_together(self._choose(numbers))

    def kill(self, *numbers: int) -> None:
        chosen = self._choose(numbers)
        for broker in chosen:  # all of them, before the first is waited for
            if broker.is_alive:
                broker.send_signal(signal.SIGKILL)
        for broker in chosen:
            broker.kill()

    def stop(self, number: int) -> None:
        assert self.brokers[number].stop() == 0, self.brokers[number].output

    def pause(self, number: int) -> None:
        self.brokers[number].send_signal(signal.SIGSTOP)

    def resume(self, number: int) -> None:
        self.brokers[number].send_signal(signal.SIGCONT)

    def lose_data(self, number: int) -> None:
        """As if its disk had been replaced by an empty one."""
        assert not self.brokers[number].is_alive
        shutil.rmtree(self.brokers[number].data_folder)

    def _choose(self, numbers: Sequence[int]) -> list[BrokerProcess]:
        return [self.brokers[number] for number in numbers or self.brokers]

    # What ZooKeeper knows, and is told

    def ask(self, path: str, wanted: Mapping[str, object]) -> None:
        """By a node, as Kafka's older tools do; waits until it is gone, and all is done."""
        self._zookeeper.retry(self._zookeeper.create, path, json.dumps(wanted).encode())
        eventually(lambda: self._zookeeper.retry(self._zookeeper.exists, path) is None, path)

    @contextlib.contextmanager
    def without_zookeeper(self) -> Iterator[None]:
        """This test's own session is over meanwhile; another one begins afterwards."""
        self._zookeeper.stop()
        yield
        self._zookeeper.start(PATIENCE_SECONDS)

    def _find(self, path: str) -> dict[str, Any] | None:
        try:
            return dict(json.loads(self._zookeeper.retry(self._zookeeper.get, path)[0]))
        except NoNodeError:
            return None

    def _children(self, path: str) -> list[str]:
        return list(self._zookeeper.retry(self._zookeeper.get_children, path))


def start_together(brokers: Collection[BrokerProcess]) -> None:
    for broker in brokers:
        broker.launch()
    for broker in brokers:
        broker.wait_until_listening()


class _TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's own leaves a socket open when a server with TLS does not answer."""

    def __init__(self, secured: SecureFolder) -> None:
        super().__init__()
        self._context = ssl.create_default_context(cafile=secured.zookeeper_authority)
        self._context.load_cert_chain(secured.zookeeper_broker)

    def create_connection(
        self,
        address: tuple[str, int],
        hostname: str | None = None,
        timeout: float | None = None,
        **_: object,
    ) -> socket.socket:
        connection = socket.create_connection(address, timeout)
        try:
            return self._context.wrap_socket(connection, server_hostname=hostname or address[0])
        except OSError:
            connection.close()
            raise


@contextlib.contextmanager
def _connected(zookeeper: str, secured: SecureFolder | None) -> Iterator[KazooClient]:
    client = KazooClient(
        zookeeper,
        connection_retry=KazooRetry(max_tries=-1),
        handler=None if secured is None else _TlsHandler(secured),
    )
    try:
        client.start(PATIENCE_SECONDS)
        yield client
    finally:
        client.stop()
        client.close()


@pytest.fixture
def cluster(folder: Path, zookeeper_ensemble: Zookeeper) -> Iterator[ClusterProcesses]:
    """Three brokers that serve; to import, together with `zookeeper_ensemble`."""
    with cluster_processes(folder, zookeeper_ensemble.fresh_connect()) as running:
        yield running


@contextlib.contextmanager
def cluster_processes(
    folder: Path,
    zookeeper: str,
    *,
    count: int = 3,
    settings: Mapping[str, str] = NOTHING,
    network: Network | None = None,
    secured: SecureFolder | None = None,
) -> Iterator[ClusterProcesses]:
    """A cluster that serves; its processes are gone, and were healthy, at the end."""
    config = () if secured is None else ("--config", str(secured.server_properties))
    near = zookeeper if network is None else network.reach(zookeeper)
    with contextlib.ExitStack() as stack:
        brokers = {}
        for number in range(1, count + 1):
            options = {} if network is None else dict(network.place(number))
            own = cast("Mapping[str, str]", options.pop("settings", NOTHING))
            if network is not None:  # of this machine alone, and no loopback
                own = {"insecure.listeners.enable": "true", **own}
            brokers[number] = stack.enter_context(
                broker_process(
                    folder / f"broker-{number}",
                    settings={**SETTINGS, **settings, **own},
                    arguments=("--zookeeper", near, "--broker-id", str(number), *config),
                    **options,
                )
            )
        start_together(list(brokers.values()))  # they make the path that ours begins with
        yield ClusterProcesses(brokers, stack.enter_context(_connected(zookeeper, secured)))
