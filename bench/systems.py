"""The systems that are compared: how each is started, watched, killed and started again.

A system is a name, the protocol that it speaks, and a class below `Running` that knows its command.
A peer that is not on this machine has an obstacle, in words; its rows are left out with them. The
jars of Apache Kafka come from Maven, the others are looked for on the PATH.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.processes import (
    ServerProcess,
    StartedElsewhere,
    broker_command,
    cpu_seconds,
    resident_bytes,
)
from moldau.coordination.zookeeper.server import (
    NodePorts,
    ServerOptions,
    ZookeeperEnsemble,
    require_server,
)
from moldau.errors import StartupError
from moldau.testing.free_ports import take_port

KAFKA_VERSION = "4.3.0"
_KAFKA_CHOICE = "MOLDAU_BENCH_KAFKA"
_KAFKA_POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>bench</groupId><artifactId>bench</artifactId><version>1</version>
<dependencies><dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
<version>{version}</version></dependency></dependencies></project>
"""
_MAVEN_SECONDS = 600
_JVM = (  # what Kafka's own scripts give it
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
_CLUSTER_ID = "bW9sZGF1LWJlbmNoLWNsdQ"


class UnavailableError(Exception):
    """A peer is not on this machine; the message says what is missing."""


class Running:
    """Nodes of one system, with a folder each. All go with `close`."""

    def __init__(self, system: System, folder: Path) -> None:
        self.system = system
        self.folder = folder
        self.nodes: dict[int, ServerProcess] = {}
        """By number from 1 on; a node that was killed is not in it."""
        self.authority: Path | None = None
        """Whose certificate the nodes show, where they speak TLS."""

    def command(self, node: int) -> tuple[list[str], int]:
        """What is run for a node, and the port it will accept on; 0 where it prints it itself."""
        raise NotImplementedError

    def open(self) -> None:
        """Make what the first start of all nodes needs; no clock runs yet."""

    def launch(self, node: int) -> ServerProcess:
        (self.folder / str(node)).mkdir(parents=True, exist_ok=True)
        command, port = self.command(node)
        process = ServerProcess(command, port, self.folder / f"{node}.log")
        process.authority = self.authority
        self.nodes[node] = process
        return process

    def start(self) -> None:
        self.open()
        for node in range(1, self.system.nodes + 1):
            self.launch(node)
        for process in self.nodes.values():
            process.wait_until_ready()

    def kill(self, node: int) -> None:
        self.nodes.pop(node).end()

    def close(self) -> None:
        for node in list(self.nodes):
            self.kill(node)

    @property
    def first(self) -> ServerProcess:
        return next(iter(self.nodes.values()))

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    @property
    def client_settings(self) -> dict[str, str]:
        """Of confluent-kafka."""
        settings = {"bootstrap.servers": self.bootstrap}
        if self.authority is not None:
            settings |= {"security.protocol": "SSL", "ssl.ca.location": str(self.authority)}
        return settings

    def pids(self) -> list[int]:
        """Of everything that belongs to the system, coordination included."""
        return [node.pid for node in self.nodes.values()]

    def cpu_seconds(self) -> float:
        return sum(map(cpu_seconds, self.pids()))

    def resident_bytes(self) -> int:
        return sum(map(resident_bytes, self.pids()))


# --- Moldau -----------------------------------------------------------------------------------


class _Moldau(Running):
    def command(self, node: int) -> tuple[list[str], int]:
        return broker_command(self.folder / str(node)), 0


def _tls_settings(folder: Path) -> dict[str, object]:
    """Of a broker of Moldau or Kafka, with a certificate that is made for it: P-256, TLS 1.3."""
    from moldau.testing.running_secured_broker import write_certificates

    folder.mkdir(parents=True, exist_ok=True)
    write_certificates(folder)
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": folder / "broker.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": folder / "ca.pem",
    }


class _MoldauTls(Running):
    def open(self) -> None:
        self._settings = {"listeners": "SSL://127.0.0.1:0", **_tls_settings(self.folder)}
        self.authority = self.folder / "ca.pem"

    def command(self, node: int) -> tuple[list[str], int]:
        settings = [f"{name}={value}" for name, value in self._settings.items()]
        return broker_command(self.folder / str(node), settings), 0


class _MoldauCluster(Running):
    """Three brokers and a ZooKeeper of their own."""

    def open(self) -> None:
        ports = NodePorts(client=take_port(), peer=0, election=0)
        options = ServerOptions(tick_ms=500, flushes=False, ends_with_parent=True)
        self._zookeeper = ZookeeperEnsemble.make(self.folder / "zookeeper", [ports], options)
        self._zookeeper.start()

    def command(self, node: int) -> tuple[list[str], int]:
        command = broker_command(self.folder / str(node))
        return [*command, "--broker-id", str(node), "--zookeeper", self._zookeeper.connect], 0

    def close(self) -> None:
        super().close()
        self._zookeeper.kill()

    def pids(self) -> list[int]:
        found = [node.find_pid() for node in self._zookeeper.nodes]
        return super().pids() + [pid for pid in found if pid is not None]


class _MoldauBrokers(Running):
    """Several brokers of one machine under one supervisor, on one store, without ZooKeeper."""

    _supervisor: ServerProcess | None = None

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [*broker_command(self.folder / "data"), "--brokers", str(self.system.nodes)]
        self._supervisor = ServerProcess(command, 0, self.folder / "brokers.log")
        self._supervisor.wait_until_ready()
        for node, address in enumerate(self._supervisor.bootstrap.split(","), start=1):
            host, _, port = address.rpartition(":")
            pid = int(self._folder_of(node).joinpath("broker.pid").read_text())
            self.nodes[node] = StartedElsewhere(host, int(port), pid)

    def _folder_of(self, node: int) -> Path:
        first = self.folder / "data"
        return first if node == 1 else first / "brokers" / str(node)

    def close(self) -> None:
        if self._supervisor is not None:
            self._supervisor.end()  # first: it would start the others again
        pids = super().pids()
        super().close()
        wait_until(lambda: not any(map(_is_there, pids)), "the brokers have ended")

    def pids(self) -> list[int]:
        supervisor = [] if self._supervisor is None else [self._supervisor.pid]
        return super().pids() + supervisor


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _find_zookeeper_obstacle() -> str | None:
    try:
        require_server(speaks_tls=False)
    except StartupError as error:
        return str(error)
    return None


# --- Apache Kafka -----------------------------------------------------------------------------


class _Kafka(Running):
    """Brokers that are controllers too (KRaft), with Kafka's own defaults beside ports, folders."""

    _protocol = "PLAINTEXT"

    def security_settings(self) -> Mapping[str, object]:
        return {}

    def open(self) -> None:
        security = self.security_settings()
        everyone = range(1, self.system.nodes + 1)
        self._ports = {node: (take_port(), take_port()) for node in everyone}
        voters = ",".join(f"{node}@127.0.0.1:{self._ports[node][1]}" for node in everyone)
        for node, (port, controller_port) in self._ports.items():
            data = self.folder / str(node)
            data.mkdir(parents=True)
            settings = {
                "process.roles": "broker,controller",
                "node.id": node,
                "controller.quorum.voters": voters,
                "controller.listener.names": "CONTROLLER",
                "listeners": f"{self._protocol}://127.0.0.1:{port},"
                f"CONTROLLER://127.0.0.1:{controller_port}",
                "log.dirs": data,
                "offsets.topic.replication.factor": self.system.nodes,
                "transaction.state.log.replication.factor": self.system.nodes,
                "share.coordinator.state.topic.replication.factor": self.system.nodes,
                "share.coordinator.state.topic.min.isr": 1,
                "group.initial.rebalance.delay.ms": 0,
                "log.segment.delete.delay.ms": 1000,
                **self.system.settings,
                **security,
            }
            lines = "".join(f"{name}={value}\n" for name, value in settings.items())
            self._properties(node).write_text(lines, encoding="utf-8")
            self._format(node)

    def _format(self, node: int) -> None:
        arguments = ("format", "-t", _CLUSTER_ID, "-c", str(self._properties(node)))
        subprocess.run(
            (*self._java(), "kafka.tools.StorageTool", *arguments), check=True, capture_output=True
        )

    def command(self, node: int) -> tuple[list[str], int]:
        java = self._java(f"-Xmx{self.system.heap}", f"-Xms{self.system.heap}", *_JVM)
        return [*java, "kafka.Kafka", str(self._properties(node))], self._ports[node][0]

    def _properties(self, node: int) -> Path:
        return self.folder / f"{node}.properties"

    def _java(self, *options: str) -> list[str]:
        jars = _require_kafka_jars()
        return ["java", *options, "-cp", str(jars / "*"), f"-Dkafka.logs.dir={self.folder}"]


class _KafkaTls(_Kafka):
    _protocol = "SSL"

    def security_settings(self) -> Mapping[str, object]:
        self.authority = self.folder / "ca.pem"
        return {
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,SSL:SSL",
            "inter.broker.listener.name": "SSL",
            **_tls_settings(self.folder),
        }


def _find_kafka_obstacle() -> str | None:
    if shutil.which("java") is None:
        return "there is no java on the PATH"
    try:
        _require_kafka_jars()
    except UnavailableError as error:
        return str(error)
    return None


@cache
def _require_kafka_jars() -> Path:
    """The folder of the jars: of a Kafka that `MOLDAU_BENCH_KAFKA` names, or fetched by Maven."""
    given = os.environ.get(_KAFKA_CHOICE)
    if given:
        return Path(given) / "libs"
    caches = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "moldau"
    jars = caches / f"kafka-{KAFKA_VERSION}"
    caches.mkdir(parents=True, exist_ok=True)
    with (caches / ".kafka.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jars.exists():
            _fetch_kafka(jars)
    return jars


def _fetch_kafka(jars: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise UnavailableError(
            f"there is no mvn to fetch Apache Kafka with; {_KAFKA_CHOICE} may name a folder of it"
        )
    print(f"fetching Apache Kafka {KAFKA_VERSION} with Maven", file=sys.stderr, flush=True)
    with TemporaryDirectory(dir=jars.parent) as name:
        folder = Path(name)
        pom = folder / "pom.xml"
        pom.write_text(_KAFKA_POM.format(version=KAFKA_VERSION), encoding="utf-8")
        command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
        command += [f"-DoutputDirectory={folder / 'jars'}", "-DincludeScope=runtime"]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=_MAVEN_SECONDS)
        except (subprocess.SubprocessError, OSError) as error:
            raise UnavailableError(f"Maven cannot fetch Apache Kafka {KAFKA_VERSION}") from error
        (folder / "jars").rename(jars)


# --- others -----------------------------------------------------------------------------------


class _Mock(Running):
    """librdkafka's mock broker."""

    def command(self, node: int) -> tuple[list[str], int]:
        return [sys.executable, "-m", "bench.servers", "mock"], 0


class _Plain(Running):
    """A Python process that receives frames, writes them to a file, acknowledges: the floor."""

    def command(self, node: int) -> tuple[list[str], int]:
        stored = self.folder / str(node) / "stored"
        return [sys.executable, "-m", "bench.servers", "store", str(stored)], 0


class _Redis(Running):
    """Streams, with the append-only file written every second: a page cache's promise as well."""

    def command(self, node: int) -> tuple[list[str], int]:
        port = take_port()
        options = {
            "port": port,
            "bind": "127.0.0.1",
            "dir": self.folder / str(node),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "auto-aof-rewrite-percentage": 0,
            "save": "",
            "maxclients": 4096,
        }
        flat = [part for name, value in options.items() for part in (f"--{name}", str(value))]
        return ["redis-server", *flat], port


class _Nats(Running):
    """JetStream with streams in files."""

    def command(self, node: int) -> tuple[list[str], int]:
        port = take_port()
        folder = str(self.folder / str(node))
        return ["nats-server", "-js", "-a", "127.0.0.1", "-p", str(port), "-sd", folder], port


def _find_on_path(name: str, remedy: str) -> Callable[[], str | None]:
    def find_obstacle() -> str | None:
        return None if shutil.which(name) else f"there is no {name} on the PATH ({remedy})"

    return find_obstacle


def _find_confluent_obstacle() -> str | None:
    try:
        import confluent_kafka  # noqa: F401
    except ImportError:
        return "confluent-kafka is not installed"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """What can be started."""

    name: str
    title: str
    protocol: str
    run: type[Running]
    nodes: int = 1
    replicas: int = 0
    """Of a topic; 0: one on each node."""
    heap: str = ""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Of Kafka: what differs from its defaults."""
    find_obstacle: Callable[[], str | None] = lambda: None

    def start(self, folder: Path) -> Running:
        running = self.run(self, folder)
        try:
            running.start()
        except BaseException:
            running.close()
            raise
        return running

    @property
    def copies(self) -> int:
        return self.replicas or self.nodes

    @property
    def family(self) -> str:
        """As `--against` names it."""
        return self.name.partition("-")[0]


def _kafka(name: str, title: str, heap: str, nodes: int = 1, run: type[Running] = _Kafka) -> System:
    return System(
        name=name,
        title=title,
        protocol="kafka",
        run=run,
        nodes=nodes,
        heap=heap,
        find_obstacle=_find_kafka_obstacle,
    )


SYSTEMS = {
    system.name: system
    for system in (
        System(name="moldau", title="Moldau", protocol="kafka", run=_Moldau),
        System(name="moldau-tls", title="Moldau, TLS", protocol="kafka", run=_MoldauTls),
        System(
            name="moldau-3",
            title="Moldau",
            protocol="kafka",
            run=_MoldauCluster,
            nodes=3,
            find_obstacle=_find_zookeeper_obstacle,
        ),
        *(
            System(
                name=f"moldau-brokers-{count}",
                title=f"Moldau, {count} brokers",
                protocol="kafka",
                run=_MoldauBrokers,
                nodes=count,
                replicas=1,
            )
            for count in (2, 4)
        ),
        _kafka("kafka", "Kafka, 1 GB heap", "1g"),
        _kafka("kafka-256m", "Kafka, 256 MB heap", "256m"),
        _kafka("kafka-tls", "Kafka, TLS, 1 GB heap", "1g", run=_KafkaTls),
        _kafka("kafka-3", "Kafka, 1 GB heap", "1g", nodes=3),
        _kafka("kafka-3-256m", "Kafka, 256 MB heap", "256m", nodes=3),
        System(
            name="mock",
            title="librdkafka's mock",
            protocol="kafka",
            run=_Mock,
            find_obstacle=_find_confluent_obstacle,
        ),
        System(
            name="redis",
            title="Redis Streams",
            protocol="redis",
            run=_Redis,
            find_obstacle=_find_on_path("redis-server", "Debian: redis-server"),
        ),
        System(
            name="nats",
            title="NATS JetStream",
            protocol="nats",
            run=_Nats,
            find_obstacle=_find_on_path("nats-server", "Debian: nats-server"),
        ),
        System(name="plain", title="receive and write", protocol="plain", run=_Plain),
    )
}


def wait_until(is_so: Callable[[], bool], what: str, seconds: float = 120.0) -> float:
    """The seconds that it took."""
    before = time.perf_counter()
    while not is_so():
        if time.perf_counter() - before > seconds:
            raise RuntimeError(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.005)
    return time.perf_counter() - before
