"""Three brokers with SASL_SSL among themselves, on a ZooKeeper with TLS and nodes of their own:
what `moldau secure init` makes. They are killed, and their certificates are renewed, under load."""

from __future__ import annotations

import hashlib
import itertools
import json
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

import moldau
from moldau.cli.secure import SecureFolder
from moldau.client.admin.values import NewTopic
from moldau.config.properties import parse_properties
from support import confluent_client
from support.broker_process import moldau_command
from support.cluster_processes import ClusterProcesses, cluster_processes
from support.cluster_traffic import traffic_on
from support.topics import fresh_name
from support.waiting import PATIENCE_SECONDS, eventually
from support.zookeeper import Zookeeper, require_zookeeper, running_ensemble

Show = Callable[[str], None]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> SecureFolder:
    require_zookeeper()
    made = SecureFolder(tmp_path_factory.mktemp("secured-cluster") / "made")
    call("secure", "init", "--out", str(made.path))
    return made


@pytest.fixture(scope="module")
def servers(secured: SecureFolder) -> Iterator[Zookeeper]:
    with running_ensemble(3, security=secured.server_security()) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(
    secured: SecureFolder, servers: Zookeeper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterProcesses]:
    folder = tmp_path_factory.mktemp("brokers")
    with (
        confluent_client.secured_by(read(secured.librdkafka_properties)),
        cluster_processes(folder, servers.fresh_connect(), secured=secured) as running,
    ):
        yield running


def call(*arguments: str) -> None:
    subprocess.run(moldau_command(*arguments), check=True, timeout=60, capture_output=True)


def read(properties: Path) -> dict[str, str]:
    return {line.name: line.value for line in parse_properties(properties.read_text())}


def served_certificate(cluster: ClusterProcesses, number: int) -> str:
    """What a broker shows to a new connection."""
    broker = cluster.brokers[number]
    shown = ssl.get_server_certificate((broker.host, broker.port), timeout=60)
    return hashlib.sha256(shown.encode()).hexdigest()


def test_a_leader_and_a_server_of_zookeeper_are_killed(
    cluster: ClusterProcesses, servers: Zookeeper, show_figure: Show
) -> None:
    with traffic_on(cluster, show_figure) as (topic, traffic):
        leader = cluster.view(topic).leader
        cluster.kill(leader)
        cluster.wait_until_led_by_another(topic, leader)
        traffic.wait_until_it_flows()
        cluster.start(leader)
        killed = servers.leader()
        killed.kill()
        servers.leader()  # waits for the next
        traffic.wait_until_it_flows()
        servers.start_node(killed)


class OwnProducer:
    """Moldau's producer, busy on its connections, and one that connects anew for each record."""

    def __init__(self, bootstrap: str, topic: str, options: dict[str, str]) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._options = options
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(work,)) for work in (self._send, self._connect)
        ]
        self.counts = {"sent": 0, "connected": 0}
        self.errors: list[BaseException] = []

    def __enter__(self) -> OwnProducer:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - whatever a client would see
            self.errors.append(error)

    def _send(self) -> None:
        with moldau.Producer(self._bootstrap, **self._options) as producer:
            while not self._stopping.is_set():
                futures = [producer.send(self._topic, value=b"x" * 100) for _ in range(50)]
                for future in futures:
                    future.result(PATIENCE_SECONDS)
                self.counts["sent"] += len(futures)

    def _connect(self) -> None:
        while not self._stopping.is_set():
            with moldau.Admin(self._bootstrap, **self._options) as admin:
                assert self._topic in admin.list_topics()
            self.counts["connected"] += 1

    def wait_for_more(self) -> None:
        for name, before in dict(self.counts).items():
            eventually(lambda: self.errors or self.counts[name] > before + 5, name)  # noqa: B023
        assert self.errors == []


def test_certificates_are_renewed_and_no_client_sees_an_error(
    cluster: ClusterProcesses, servers: Zookeeper, secured: SecureFolder, show_figure: Show
) -> None:
    topic = fresh_name("rolled")
    options = read(secured.client_properties)
    with moldau.Admin(cluster.bootstrap, **options) as admin:
        admin.create_topics([NewTopic(name=topic, partitions=3, replication_factor=3)])
    with (
        traffic_on(cluster, show_figure) as (_, traffic),
        OwnProducer(cluster.bootstrap, topic, options) as own,
    ):
        for round_number in range(2):
            before = {number: served_certificate(cluster, number) for number in cluster.brokers}
            call("secure", "renew", "--out", str(secured.path))
            for number, former in before.items():
                eventually(
                    lambda: served_certificate(cluster, number) != former,  # noqa: B023
                    f"the new certificate of broker {number}, round {round_number}",
                )
            own.wait_for_more()
            traffic.wait_until_it_flows()
        # A broker that comes back talks to the others, and to ZooKeeper, with the new ones.
        follower = cluster.view(topic).replicas[-1]
        cluster.stop(follower)
        cluster.start(follower)
        own.wait_for_more()
    assert own.errors == []
    show_figure(f"{own.counts} of ours without an error while certificates were renewed")


def test_nobody_but_brokers_reads_secrets_or_writes_in_zookeeper(
    cluster: ClusterProcesses, servers: Zookeeper, secured: SecureFolder
) -> None:
    users = ["users", "set", "alice", "--bootstrap", cluster.bootstrap]
    users += ["--command-config", str(secured.client_properties)]
    subprocess.run(moldau_command(*users), input=b"her secret\n", check=True, timeout=60)
    root = f"{cluster._zookeeper.chroot}"
    other = str(secured.zookeeper_server)  # it may connect, and is no broker
    client = KazooClient(
        servers.connect,
        use_ssl=True,
        ca=str(secured.zookeeper_authority),
        certfile=other,
        keyfile=other,
    )
    client.start(PATIENCE_SECONDS)
    try:
        assert json.loads(client.get(f"{root}/controller")[0])["brokerid"] in cluster.brokers
        for attempt, path in itertools.product(
            (client.get, client.delete, lambda path: client.set(path, b"")),
            ("/config/users/alice", "/config/brokers"),
        ):
            with pytest.raises(NoAuthError):
                attempt(f"{root}{path}")
        for path in ("/controller", "/brokers/ids/1", "/config/topics"):
            with pytest.raises(NoAuthError):
                client.set(f"{root}{path}", b"{}")
        with pytest.raises(NoAuthError):
            client.create(f"{root}/admin/delete_topics/x")
    finally:
        client.stop()
        client.close()
