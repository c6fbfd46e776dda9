"""Real ZooKeeper servers on this machine: one node, or an ensemble. Blocks; never on a loop.

Every node has a folder with its configuration, its data, its log and its pid file, so that
another process finds it again. They listen on loopback only; with `ServerSecurity` they speak TLS
with each other and with clients, who need a certificate as well.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import signal
import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from moldau.errors import StartupError
from moldau.processes import BackgroundProcess, NoJavaError, require_java, wait_until

HOST = "127.0.0.1"

_PEER_OFFSET = 1_000  # from the port of the clients to the one of the other nodes
_ELECTION_OFFSET = 2_000
_READY_SECONDS = 60.0
_STOP_SECONDS = 10.0
_MODE = re.compile(r"^Mode: (\w+)$", re.MULTILINE)
_LINE = re.compile(r"^([\w.]+)=(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePorts:
    """Where a node listens: for clients, for the other nodes, for elections."""

    client: int
    peer: int
    election: int

    @classmethod
    def beginning_at(cls, port: int) -> NodePorts:
        return cls(client=port, peer=port + _PEER_OFFSET, election=port + _ELECTION_OFFSET)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSecurity:
    """PEM files of the servers: a certificate with its key, and who signs those of clients."""

    key_store: Path
    trust_store: Path

    def lines(self) -> list[str]:
        """Of a node's configuration. Files are read again when they change."""
        lines = [
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.clientAuth=need",
            "ssl.enabledProtocols=TLSv1.3,TLSv1.2",  # Kafka's own tools begin with the latter
            "client.certReload=true",
            "sslQuorum=true",
            "sslQuorumReloadCertFiles=true",
        ]
        for scope in ("ssl", "ssl.quorum"):
            lines += [
                f"{scope}.keyStore.location={self.key_store}",
                f"{scope}.keyStore.type=PEM",
                f"{scope}.trustStore.location={self.trust_store}",
                f"{scope}.trustStore.type=PEM",
            ]
        return lines

    @classmethod
    def find(cls, lines: Mapping[str, str]) -> ServerSecurity | None:
        """The one that a configuration has."""
        stores = lines.get("ssl.keyStore.location"), lines.get("ssl.trustStore.location")
        if stores[0] is None or stores[1] is None:
            return None
        return cls(key_store=Path(stores[0]), trust_store=Path(stores[1]))

    def client_context(self) -> ssl.SSLContext:
        """To ask a server how it is, with its own certificate."""
        context = ssl.create_default_context(cafile=self.trust_store)
        context.load_cert_chain(self.key_store)
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """How the servers of one ensemble work."""

    tick_ms: int = 1_000  # sessions time out after two of them at the earliest
    flushes: bool = True  # every change to disk before it is confirmed
    ends_with_parent: bool = False
    security: ServerSecurity | None = None
    lines: Sequence[str] = ()  # more of the configuration
    java_properties: Mapping[str, str] = field(default_factory=dict)


_DEFAULTS = ServerOptions()


class ZookeeperNode:
    """One server, running or not."""

    def __init__(self, folder: Path, port: int, security: ServerSecurity | None = None) -> None:
        self.folder = folder
        self.port = port
        self._security = security
        self._config_file = folder / "zoo.cfg"
        self._process = BackgroundProcess(
            pid_file=folder / "zookeeper.pid",
            log_file=folder / "zookeeper.log",
            mark=str(self._config_file),
        )
        self.find_pid = self._process.find_pid
        self.kill = self._process.kill
        self.detach = self._process.detach

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def is_running(self) -> bool:
        return self._process.is_running

    def mode(self) -> str | None:
        """leader, follower or standalone; None while it serves nobody."""
        found = _MODE.search(self.send_command("srvr") or "")
        return None if found is None else found[1]

    def send_command(self, word: str) -> str | None:
        """As `send_command`."""
        return send_command(self.port, word, security=self._security)

    def configure(self, number: int, ensemble: Sequence[NodePorts], options: ServerOptions) -> None:
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        client_port = "clientPort" if options.security is None else "secureClientPort"
        lines = [
            f"{client_port}={self.port}",
            f"{client_port}Address={HOST}",
            f"dataDir={data}",
            f"tickTime={options.tick_ms}",
            "initLimit=20",
            "syncLimit=10",
            "maxSessionTimeout=60000",
            "maxClientCnxns=0",
            "admin.enableServer=false",
            "4lw.commands.whitelist=srvr,ruok,mntr,conf",
            "autopurge.purgeInterval=24",
            *(() if options.security is None else options.security.lines()),
            *options.lines,
        ]
        if len(ensemble) > 1:
            (data / "myid").write_text(f"{number}\n")
            lines += [
                f"server.{other}={HOST}:{ports.peer}:{ports.election}"
                for other, ports in enumerate(ensemble, start=1)
            ]
        self._config_file.write_text("\n".join(lines) + "\n")

    def launch(self, options: ServerOptions = _DEFAULTS) -> None:
        """Start the process, and do not wait for it."""
        properties = {
            "zookeeper.preAllocSize": "4096",  # KiB of log at a time, not 64 MiB
            **options.java_properties,
        }
        if not options.flushes:
            properties["zookeeper.forceSync"] = "no"
        speaks_tls = self._security is not None
        command = zookeeper_command(self._config_file, properties, speaks_tls=speaks_tls)
        self._process.launch(command, ends_with_parent=options.ends_with_parent)

    def wait_until_ready(self) -> None:
        wait_until(lambda: not self.is_running or self.mode() is not None, _READY_SECONDS)
        if not self.is_running:
            raise StartupError(
                f"ZooKeeper at {self.address} ended as it started; {self._process.log_file} says:\n"
                f"{self._process.read_last_lines()}"
            )
        if self.mode() is None:
            raise StartupError(f"ZooKeeper at {self.address} is not ready; see {self.folder}")

    def terminate(self) -> None:
        """Ask it to end, and do not wait."""
        self._process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        self._process.stop(_STOP_SECONDS)

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)


class ZookeeperEnsemble:
    """All servers of one ensemble on this machine."""

    def __init__(self, nodes: Sequence[ZookeeperNode], options: ServerOptions = _DEFAULTS) -> None:
        self.nodes = tuple(nodes)
        self._options = options

    @classmethod
    def make(
        cls, folder: Path, ports: Sequence[NodePorts], options: ServerOptions = _DEFAULTS
    ) -> ZookeeperEnsemble:
        """With new configurations; data that is there from an earlier run is used."""
        folder = folder.resolve()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # what ZooKeeper writes has no mode
        existing = cls.find(folder).nodes
        if existing and len(existing) != len(ports):
            raise StartupError(
                f"{folder} holds an ensemble of {len(existing)}, not of {len(ports)}; "
                "choose another folder with --data-dir"
            )
        nodes = []
        for number, own in enumerate(ports, start=1):
            node = ZookeeperNode(folder / f"node-{number}", own.client, options.security)
            node.configure(number, ports, options)
            nodes.append(node)
        return cls(nodes, options)

    @classmethod
    def find(cls, folder: Path, options: ServerOptions = _DEFAULTS) -> ZookeeperEnsemble:
        """The one that was made there, running or not; without nodes when there is none."""
        nodes = []
        for config in sorted(folder.resolve().glob("node-*/zoo.cfg")):
            lines = dict(_LINE.findall(config.read_text()))
            port = lines.get("clientPort") or lines.get("secureClientPort")
            if port is not None:
                nodes.append(ZookeeperNode(config.parent, int(port), ServerSecurity.find(lines)))
        return cls(nodes, options)

    @property
    def connect(self) -> str:
        """For --zookeeper."""
        return ",".join(node.address for node in self.nodes)

    def start(self) -> None:
        """Return when every node serves. If one does not, those started here are ended."""
        missing = [node for node in self.nodes if not node.is_running]
        try:
            for node in missing:
                node.launch(self._options)
            for node in self.nodes:
                node.wait_until_ready()
        except BaseException:
            for node in missing:
                node.kill()
            raise

    def stop(self) -> None:
        for node in self.nodes:
            node.terminate()
        for node in self.nodes:
            node.stop()

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()

    def detach(self) -> None:
        for node in self.nodes:
            node.detach()


def require_free_ports(ports: Sequence[int], remedy: str) -> None:
    """Raises `StartupError` that names the first one that is taken."""
    for port in ports:
        with contextlib.closing(socket.socket()) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError as error:
                raise StartupError(
                    f"cannot listen on {HOST}:{port}: {error.strerror}; {remedy}"
                ) from error


def all_ports(ports: Sequence[NodePorts]) -> list[int]:
    """A node alone talks to no others."""
    if len(ports) == 1:
        return [ports[0].client]
    return [port for node in ports for port in (node.client, node.peer, node.election)]


def find_mode(port: int) -> str | None:
    found = _MODE.search(send_command(port, "srvr") or "")
    return None if found is None else found[1]


def send_command(
    port: int, word: str, seconds: float = 2.0, security: ServerSecurity | None = None
) -> str | None:
    """What a server answers to one of ZooKeeper's four-letter words; None when it does not."""
    try:
        with contextlib.ExitStack() as stack:
            connection = socket.create_connection((HOST, port), timeout=seconds)
            stack.enter_context(contextlib.closing(connection))
            if security is not None:
                context = security.client_context()
                connection = context.wrap_socket(connection, server_hostname=HOST)
                stack.enter_context(contextlib.closing(connection))
            connection.sendall(word.encode())
            chunks = iter(lambda: connection.recv(4096), b"")
            return b"".join(chunks).decode(errors="replace")
    except OSError:
        return None


_JARS = ("zookeeper-3*", "zookeeper-jute-*", "slf4j-api-*", "metrics-core-*", "snappy-java-*")
_NETTY = "netty-*"  # what TLS is spoken with; the parts in machine code are not needed
_NATIVE = ("native-epoll", "native-kqueue", "boringssl", "netty-all")
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"

# A small heap, and no time spent on optimising what runs for seconds or idles for days.
_FLAGS = ("-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")


def zookeeper_command(
    config_file: Path, properties: Mapping[str, str], *, speaks_tls: bool = False
) -> list[str]:
    """What to run for one node. Raises `StartupError` that says what is missing."""
    jars = find_jars(speaks_tls=speaks_tls)
    settings = [f"-D{name}={value}" for name, value in properties.items()]
    class_path = os.pathsep.join(map(str, jars))
    return [_java_command(), *_FLAGS, *settings, "-cp", class_path, _MAIN, str(config_file)]


def require_server(*, speaks_tls: bool) -> None:
    """Raises `StartupError` where a server could not be run: before anything is made for it."""
    find_jars(speaks_tls=speaks_tls)
    _java_command()


def find_jars(*, speaks_tls: bool = False) -> list[Path]:
    folder = _jar_folder()
    if folder is None:
        raise StartupError(
            "ZooKeeper's own server comes with PySpark, which is not installed: "
            "`pip install 'moldau[spark]'`, or start brokers on servers that you have: "
            "`moldau start --zookeeper HOST:PORT,...`"
        )
    jars = []
    for pattern in _JARS:
        found = sorted(folder.glob(f"{pattern}.jar"))
        if not found:
            raise StartupError(f"{folder} has no {pattern}.jar; PySpark 4 has it")
        jars.append(found[-1])
    if speaks_tls:
        found = [
            jar
            for jar in sorted(folder.glob(f"{_NETTY}.jar"))
            if not any(part in jar.name for part in _NATIVE)
        ]
        if not found:
            raise StartupError(f"{folder} has no {_NETTY}.jar, and TLS needs it; PySpark 4 has it")
        jars += found
    return jars


def _jar_folder() -> Path | None:
    """Without importing PySpark, which takes a second."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0]) / "jars"
    return folder if folder.is_dir() else None


def _java_command() -> str:
    try:
        return require_java("ZooKeeper").command
    except NoJavaError as error:
        raise StartupError(str(error)) from error
