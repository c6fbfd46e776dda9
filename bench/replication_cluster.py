"""The cluster that is measured: a ZooKeeper of its own and three brokers, all ended with the block.

The brokers' view of the cluster is what clients get, from the metadata of any of them.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata

from bench.processes import ServerProcess, broker_command, temporary_folder
from bench.raw_client import RawClient
from bench.report import Outcome, Table
from moldau.coordination.zookeeper.server import (
    NodePorts,
    ServerOptions,
    ZookeeperEnsemble,
    require_server,
    send_command,
)
from moldau.errors import StartupError
from moldau.testing.free_ports import take_port

REPLICAS = 3
TICK_MS = 500
_PAUSE_SECONDS = 0.01
_PATIENCE_SECONDS = 120.0
_ANSWER_SECONDS = 10.0
_QUIET = {"log_level": 0, "log.connection.close": False}


class RunningCluster:
    """Brokers 1 to 3; they can be killed and started again."""

    def __init__(
        self, zookeeper: ZookeeperEnsemble, folder: Path, settings: Mapping[str, str]
    ) -> None:
        self._zookeeper = zookeeper
        self._folder = folder
        self._settings = [f"{name}={value}" for name, value in settings.items()]
        self.brokers: dict[int, ServerProcess] = {}
        self._admin: AdminClient | None = None

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def start(self, *numbers: int) -> None:
        for number in numbers:
            command = broker_command(self._folder / f"broker-{number}", self._settings)
            command += ["--broker-id", str(number), "--zookeeper", self._zookeeper.connect]
            self.brokers[number] = ServerProcess(command)
        for number in numbers:
            self.brokers[number].wait_until_ready()
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap, **_QUIET})
        self.wait_for(lambda found: len(found.brokers) == len(self.brokers), "all brokers")

    def kill(self, number: int) -> None:
        self.brokers.pop(number).end()

    def end(self) -> None:
        for broker in self.brokers.values():
            broker.end()

    # What is known of it

    def metadata(self) -> ClusterMetadata:
        if self._admin is None:
            raise RuntimeError("the cluster is not running")
        return self._admin.list_topics(timeout=_ANSWER_SECONDS)

    def wait_for(
        self, is_so: Callable[[ClusterMetadata], bool], what: str, since: float = 0.0
    ) -> float:
        """Until the metadata says so; the seconds since a moment."""
        deadline = time.perf_counter() + _PATIENCE_SECONDS
        while not self._is_so(is_so):
            if time.perf_counter() > deadline:
                raise RuntimeError(f"not within {_PATIENCE_SECONDS:.0f} s: {what}")
            time.sleep(_PAUSE_SECONDS)
        return time.perf_counter() - since

    def _is_so(self, is_so: Callable[[ClusterMetadata], bool]) -> bool:
        try:
            return is_so(self.metadata())
        except KafkaException:  # nobody answers yet: the client asks one that was killed
            return False

    def wait_until_whole(self) -> None:
        self.wait_for(_is_whole, "all replicas are in sync")

    def controller(self) -> int:
        """Waits until there is one."""
        self.wait_for(lambda found: found.controller_id in self.brokers, "a controller")
        return int(self.metadata().controller_id)

    def create_topic(self, name: str, partitions: int = 1, replicas: int = REPLICAS) -> int:
        """The broker that leads the first partition."""
        with RawClient(self.brokers[self.controller()]) as client:
            client.create_topic(name, partitions, replication_factor=replicas)
        self.wait_for(lambda found: name in found.topics, name)
        self.wait_until_whole()
        return int(self.metadata().topics[name].partitions[0].leader)

    def cpu_seconds(self) -> float:
        """Of all brokers."""
        return sum(broker.cpu_seconds() for broker in self.brokers.values())

    def watch_count(self) -> int:
        """At ZooKeeper, of all brokers."""
        answer = send_command(self._zookeeper.nodes[0].port, "mntr") or ""
        counts = (line.split("\t") for line in answer.splitlines() if "\t" in line)
        return int(dict(counts)["zk_watch_count"])


def _is_whole(found: ClusterMetadata) -> bool:
    return all(
        part.leader >= 0 and len(part.isrs) == len(part.replicas)
        for topic in found.topics.values()
        for part in topic.partitions.values()
    )


@contextlib.contextmanager
def running_cluster(settings: Mapping[str, str]) -> Iterator[RunningCluster]:
    with temporary_folder() as folder:
        ports = NodePorts(client=take_port(), peer=0, election=0)
        options = ServerOptions(tick_ms=TICK_MS, flushes=False, ends_with_parent=True)
        zookeeper = ZookeeperEnsemble.make(folder / "zookeeper", [ports], options)
        cluster = RunningCluster(zookeeper, folder, settings)
        try:
            zookeeper.start()
            cluster.start(*range(1, REPLICAS + 1))
            yield cluster
        finally:
            cluster.end()
            zookeeper.kill()


def find_obstacle() -> Outcome | None:
    """What to hand back where ZooKeeper cannot run."""
    try:
        require_server(speaks_tls=False)
    except StartupError as error:
        table = Table(title="Replication: skipped", columns=("why",), rows=[(str(error),)])
        return Outcome(tables=[table])
    return None
