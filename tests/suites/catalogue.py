"""The suites: the pinned versions, the brokers that they run against, and the known differences."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import moldau
from moldau.coordination.zookeeper.server import require_server
from moldau.errors import StartupError
from moldau.testing.free_ports import take_port
from suites.sources import (
    CACHE,
    Environment,
    GoSuite,
    LeftOutError,
    PythonSuite,
    fetch,
    fetch_go_module,
    go_environment,
)
from support.broker_process import BrokerProcess, broker_process
from support.cluster_processes import cluster_processes
from support.waiting import eventually
from support.zookeeper import running_ensemble

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@contextlib.contextmanager
def broker_with_login(
    folder: Path, plain: int, secured: int, settings: Mapping[str, str]
) -> Iterator[BrokerProcess]:
    """One broker with a listener for everybody, and one for users with a password."""
    listeners = f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{secured}"
    with broker_process(folder, settings={"listeners": listeners, **settings}) as broker:
        yield broker.start()


def _require_free(*ports: int) -> None:
    """Some suites have fixed ports."""
    for port in ports:
        with contextlib.closing(socket.socket()) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                taken = f"the suite needs port {port}, which is in use; stop what listens there"
                raise LeftOutError(taken) from None


# franz-go


@contextlib.contextmanager
def franz_go_broker(folder: Path) -> Iterator[Environment]:
    plain, secured = take_port(), take_port()
    settings = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "group.share.delivery.count.limit": "10",  # as in that suite's own runs
    }
    with broker_with_login(folder, plain, secured, settings):
        with moldau.Admin(f"127.0.0.1:{plain}") as admin:
            admin.set_scram_password("testuser", "testpass")
        yield {
            "KGO_SEEDS": f"127.0.0.1:{plain}",
            "KGO_TEST_SCRAM_SEEDS": f"127.0.0.1:{secured}",
            "KGO_TEST_SCRAM": "testuser:testpass",
        }


FRANZ_GO = GoSuite(
    name="franz-go",
    version="1.22.2",
    module="github.com/twmb/franz-go",
    packages=("./pkg/kgo",),
    brokers=franz_go_broker,
    least_passed=420,
    limit_seconds=1_800,
    environment={"KGO_TEST_RF": "1", "KGO_TEST_RECORDS": "5000", "KGO_TEST_STABLE_FETCH": "true"},
)


# kafka-python


@contextlib.contextmanager
def kafka_python_broker(folder: Path) -> Iterator[Environment]:
    port = take_port()
    settings = {
        **AUTHORIZER,
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",  # as in that suite's own file
        "num.partitions": "4",
        "group.min.session.timeout.ms": "1000",
    }
    arguments = ("--broker-id", "0")
    with broker_process(folder, settings=settings, arguments=arguments, port=port) as broker:
        broker.start()
        yield {"KAFKA_URI": f"kafka://{broker.bootstrap}", "KAFKA_ROOT": str(folder)}


_SERVICE = '''"""In place of the module that the source distribution lacks."""


class ExternalService:
    """A broker that was started by others."""

    def __init__(self, host, port):
        self.host = host
        self.port = port

    def open(self):
        pass

    def close(self):
        pass

    stop = close


class SpawnedService:
    def __init__(self, *arguments, **named):
        raise RuntimeError("no Kafka is started here")
'''

KAFKA_PYTHON = PythonSuite(
    name="kafka-python",
    version="3.0.12",
    extras="testing,lz4,snappy,zstd",
    folder="test/integration",
    missing_files={"test/__init__.py": "", "test/service.py": _SERVICE},
    brokers=kafka_python_broker,
    least_passed=50,
    limit_seconds=1_800,
    environment={"KAFKA_VERSION": "4.3.0"},
    known_differences={
        "test_ssl_integration": "starts a Kafka of its own, with TLS",
        "test_admin_integration::test_describe_metadata_quorum": (
            "asks for the quorum of KRaft's controllers, which Moldau does not have"
        ),
    },
)


# kafka-go


@contextlib.contextmanager
def kafka_go_broker(folder: Path) -> Iterator[Environment]:
    """With the settings that the suite has for Kafka 4.0."""
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    settings = {
        **AUTHORIZER,
        "advertised.listeners": "PLAINTEXT://localhost:9092,SASL_PLAINTEXT://localhost:9093",
        "super.users": "User:adminscram256;User:adminscram512;User:adminplain",
        "message.max.bytes": "200000000",
        "group.initial.rebalance.delay.ms": "0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'{plain} user_adminplain="admin-secret";'
        ),
    }
    with broker_with_login(folder, *_KAFKA_GO_PORTS, settings):
        with moldau.Admin(f"127.0.0.1:{_KAFKA_GO_PORTS[0]}") as admin:
            for size in ("256", "512"):
                mechanisms = (f"SCRAM-SHA-{size}",)
                user, password = f"adminscram{size}", f"admin-secret-{size}"
                admin.set_scram_password(user, password, mechanisms=mechanisms)
        yield {}


_KAFKA_GO_PORTS = (9092, 9093)


def require_kafka_go_ports(_: Path) -> None:
    _require_free(*_KAFKA_GO_PORTS)


_DELETED = (
    "asks for a deleted topic with a request that creates topics, and expects that the first "
    "answer has no partitions yet: Moldau's answer waits for the new topic"
)
KAFKA_GO = GoSuite(
    name="kafka-go",
    version="0.4.51",
    module="github.com/segmentio/kafka-go",
    packages=(".", "./sasl"),
    brokers=kafka_go_broker,
    least_passed=500,
    require=require_kafka_go_ports,
    limit_seconds=2_400,
    environment={"KAFKA_VERSION": "4.0.0", "KAFKA_SKIP_NETTEST": "1"},
    known_differences={
        "kafka-go.TestConn/test_delete_topics": _DELETED,
        "kafka-go.TestConn/test_delete_topics_with_an_invalid_topic": _DELETED,
        "kafka-go.TestReaderReadCompactedMessage": (
            "asks for segments of 200 bytes, which Kafka 4 refuses, too: it fails there as well"
        ),
        "kafka-go.TestReaderConsumerGroup/consumer_group_rebalance": (
            "expects 12 of 24 records from each of two readers of three partitions: it fails with "
            "Kafka 4.3 as well"
        ),
    },
    not_run={
        f"kafka-go.TestReaderConsumerGroup/{name}": (
            "its function getOffsets calls a function that is nil, which ends the whole suite"
        )
        for name in (
            "verify_offset_committed",
            "verify_offset_committed_when_using_interval_committer",
            "consumer_group_commits_on_close",
        )
    },
)


# sarama

_PROXY_PORTS = range(29_091, 29_096)
_TOXIPROXY = ("github.com/Shopify/toxiproxy/v2", "2.5.0")
_TOXIPROXY_SERVER = CACHE / f"toxiproxy-server-{_TOXIPROXY[1]}"
_DOCKER = """#!{python}
import sys, urllib.request
compose, action, *options, service = sys.argv[1:]
asked = f"http://127.0.0.1:{port}/{{action}}/{{service}}"
with urllib.request.urlopen(asked, data=b"", timeout=120) as answer:
    sys.stdout.buffer.write(answer.read())
"""
"""The suite calls `docker compose stop kafka-1`, `start` and `logs --since TIME`."""


def require_zookeeper_and_toxiproxy(log: Path) -> None:
    try:
        require_server(speaks_tls=False)
    except StartupError as error:
        raise LeftOutError(f"ZooKeeper cannot run: {error}") from None
    _require_free(*_PROXY_PORTS)
    if not _TOXIPROXY_SERVER.exists():
        folder = fetch_go_module(*_TOXIPROXY, log)
        build = ("go", "build", "-o", str(_TOXIPROXY_SERVER), "./cmd/server")
        fetch(build, log, folder=folder, environment=go_environment())


class Racks:
    """Each broker in its rack, with a listener that clients reach through toxiproxy; a `Network` of
    `cluster_processes`."""

    def __init__(self) -> None:
        self.proxies: list[dict[str, object]] = []

    def reach(self, zookeeper: str) -> str:
        return zookeeper

    def place(self, number: int) -> Mapping[str, object]:
        near, behind = take_port(), take_port()
        proxy = f"127.0.0.1:{_PROXY_PORTS[number - 1]}"
        self.proxies.append(
            {
                "name": f"kafka{number}",
                "listen": proxy,
                "upstream": f"127.0.0.1:{behind}",
                "enabled": True,
            }
        )
        return {
            "port": near,
            "settings": {
                "listeners": f"INTERNAL://127.0.0.1:{near},LOCAL://127.0.0.1:{behind}",
                "advertised.listeners": f"INTERNAL://127.0.0.1:{near},LOCAL://{proxy}",
                "listener.security.protocol.map": "INTERNAL:PLAINTEXT,LOCAL:PLAINTEXT",
                "inter.broker.listener.name": "INTERNAL",
                "broker.rack": str(number),
            },
        }


@contextlib.contextmanager
def sarama_brokers(folder: Path) -> Iterator[Environment]:
    """Five brokers with the settings of the suite's own, and Kafka's defaults where it has none."""
    racks = Racks()
    settings = {
        "default.replication.factor": "2",
        "offsets.topic.replication.factor": "2",
        "offsets.topic.num.partitions": "50",
        "transaction.state.log.replication.factor": "2",
        "min.insync.replicas": "1",
        "zookeeper.session.timeout.ms": "6000",
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "replica.lag.time.max.ms": "30000",
        "replica.socket.timeout.ms": "30000",
        "auto.create.topics.enable": "false",
        "group.min.session.timeout.ms": "6000",
    }
    with (
        running_ensemble(1) as zookeeper,
        cluster_processes(
            folder, zookeeper.fresh_connect(), count=5, settings=settings, network=racks
        ) as cluster,
        toxiproxy(folder, racks.proxies) as address,
        brokers_as_containers(cluster.brokers, folder / "bin") as path,
    ):
        yield {
            "TOXIPROXY_ADDR": f"http://{address}",
            "KAFKA_VERSION": "4.3.1",
            "PATH": f"{path}{os.pathsep}{os.environ['PATH']}",
        }


@contextlib.contextmanager
def toxiproxy(folder: Path, proxies: Sequence[Mapping[str, object]]) -> Iterator[str]:
    """The address of its interface, once all proxies listen."""
    port = take_port()
    config = folder / "proxies.json"
    config.write_text(json.dumps(proxies), encoding="utf-8")
    command = (str(_TOXIPROXY_SERVER), "-host=127.0.0.1", f"-port={port}", f"-config={config}")
    with (folder / "toxiproxy.out").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        for listening in (port, *_PROXY_PORTS):
            eventually(partial(_answers, listening), f"toxiproxy listens on {listening}")
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    with contextlib.closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def brokers_as_containers(brokers: Mapping[int, BrokerProcess], folder: Path) -> Iterator[Path]:
    """A folder with a `docker` that knows the brokers as `kafka-1`, `kafka-2`, ..."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            action, service = self.path.strip("/").split("/")
            broker = brokers[int(service.removeprefix("kafka-"))]
            if action == "start" and not broker.is_alive:
                broker.start()
            elif action == "stop" and broker.is_alive:
                broker.stop()
            self.send_response(200 if action in ("start", "stop", "logs") else 404)
            self.end_headers()
            if action == "logs":
                self.wfile.write(broker.output.encode())

        def log_message(self, format: str, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    folder.mkdir()
    docker = folder / "docker"
    docker.write_text(_DOCKER.format(python=sys.executable, port=server.server_port))
    docker.chmod(0o755)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield folder
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


SARAMA = GoSuite(
    name="sarama",
    version="1.61.1",
    module="github.com/IBM/sarama",
    packages=(".",),
    arguments=("-tags=functional",),
    test_files="functional_*_test.go",
    brokers=sarama_brokers,
    least_passed=74,
    require=require_zookeeper_and_toxiproxy,
    limit_seconds=3_600,
)

SUITES = {suite.name: suite for suite in (FRANZ_GO, KAFKA_PYTHON, KAFKA_GO, SARAMA)}
