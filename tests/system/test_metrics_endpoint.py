"""The metrics port of a real broker, read by Prometheus' own client after real work."""

from __future__ import annotations

import http.client
import json
import re
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from moldau.metrics.catalogue import CATALOGUE
from moldau.testing import broker as start_broker
from moldau.testing.running_broker import RunningBroker
from support.waiting import PATIENCE_SECONDS, eventually

MONITORING = Path(__file__).parents[2] / "monitoring"
Samples = Mapping[str, list[tuple[Mapping[str, str], float]]]


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    settings = {
        "metrics.listener": "127.0.0.1:0",
        "group.initial.rebalance.delay.ms": "0",
        "log.flush.interval.messages": "1",
    }
    with start_broker(settings) as running:
        _work(running.bootstrap)
        yield running


def _work(bootstrap: str) -> None:
    """Records, a group, a transaction, an error."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("clicks", 3, 1)])["clicks"].result(PATIENCE_SECONDS)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
    producer.init_transactions(PATIENCE_SECONDS)
    producer.begin_transaction()
    for number in range(30):
        producer.produce("clicks", b"x" * 100, partition=number % 3)
    producer.commit_transaction(PATIENCE_SECONDS)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["clicks"])
    seen = 0
    while seen < 30:
        message = consumer.poll(PATIENCE_SECONDS)
        assert message is not None
        seen += message.error() is None
    consumer.commit(
        offsets=[TopicPartition("clicks", number, 4) for number in range(3)], asynchronous=False
    )
    with pytest.raises(KafkaException):
        admin.create_topics([NewTopic("clicks", 1, 1)])["clicks"].result(PATIENCE_SECONDS)
    consumer.close()


def get(running: RunningBroker, path: str, **headers: str) -> tuple[int, str, str]:
    request = urllib.request.Request(f"{running.metrics_url}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


def scrape(running: RunningBroker) -> Samples:
    found: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    for family in read_text(get(running, "/metrics")[2]):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def value(samples: Samples, name: str, **labels: str) -> float:
    return sum(v for given, v in samples[name] if labels.items() <= given.items())


def test_what_was_done_is_counted(broker: RunningBroker) -> None:
    samples = scrape(broker)
    assert value(samples, "moldau_topic_records_in_total", topic="clicks") == 33  # and 3 markers
    assert value(samples, "moldau_topic_bytes_in_total", topic="clicks") > 3000
    assert value(samples, "moldau_topic_records_out_total", topic="clicks") == 33
    assert value(samples, "moldau_topic_bytes_out_total", topic="clicks") > 3000
    assert value(samples, "moldau_topic_log_bytes", topic="clicks") > 3000
    assert value(samples, "moldau_request_duration_seconds_count", api="Produce") >= 1
    assert value(samples, "moldau_request_duration_seconds_count", api="Fetch") >= 1
    errors = {"api": "CreateTopics", "error": "TOPIC_ALREADY_EXISTS"}
    assert value(samples, "moldau_request_errors_total", **errors) == 1
    assert value(samples, "moldau_connections_accepted_total", listener="PLAINTEXT") >= 3
    assert value(samples, "moldau_leaders") == value(samples, "moldau_partitions") >= 3
    assert value(samples, "moldau_under_replicated_partitions") == 0
    assert value(samples, "moldau_controller_active") == 1
    assert value(samples, "moldau_transactions", state="CompleteCommit") == 1
    assert value(samples, "moldau_groups") == 1
    assert value(samples, "moldau_group_rebalances_total") >= 1
    assert value(samples, "moldau_log_flush_duration_seconds_count") >= 1
    assert value(samples, "process_resident_memory_bytes") > 1 << 20
    assert value(samples, "process_open_fds") > 3


def test_the_lag_of_a_group_is_told_in_records_and_in_seconds(broker: RunningBroker) -> None:
    wanted = {"group": "readers", "topic": "clicks"}
    samples = eventually(
        lambda: (found := scrape(broker)) and "moldau_group_lag_records" in found and found,
        "the coordinator has looked at its groups",
    )
    assert value(samples, "moldau_group_lag_records", **wanted) == 21  # 3 of 11, with the marker
    assert value(samples, "moldau_group_lag_seconds", **wanted) >= 0


def test_every_sample_is_declared_and_openmetrics_reads_it(broker: RunningBroker) -> None:
    status, kind, text = get(broker, "/metrics", Accept="application/openmetrics-text")
    assert status == 200
    assert kind.startswith("application/openmetrics-text")
    declared = {metric.name: metric for metric in CATALOGUE}
    for family in read_openmetrics(text):
        metric = declared[family.name]
        assert family.type == metric.kind.value
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(metric.labels)


def test_the_dashboard_and_the_alerts_name_what_a_broker_serves(broker: RunningBroker) -> None:
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    alerts = yaml.safe_load((MONITORING / "alerts.yml").read_text())
    expressions = [
        target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())
    ]
    expressions += [one["query"]["query"] for one in dashboard["templating"]["list"][1:]]
    expressions += [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]
    named = {name for text in expressions for name in re.findall(r"\b(?:moldau|process)_\w+", text)}
    named.discard("moldau_certificate_expiry_timestamp_seconds")  # where there are certificates
    assert len(named) > 40
    eventually(
        lambda: not named - scrape(broker).keys(),
        lambda: f"the endpoint has {sorted(named - scrape(broker).keys())}",
    )


def test_a_broker_that_serves_is_alive_and_ready(broker: RunningBroker) -> None:
    status, _, text = get(broker, "/healthz")
    assert (status, json.loads(text)["status"]) == (200, "alive")
    status, _, text = get(broker, "/readyz")
    assert (status, json.loads(text)["status"]) == (200, "ready")


def test_the_history_tells_why_a_group_rebalanced(broker: RunningBroker) -> None:
    events = json.loads(get(broker, "/history?kind=rebalance&subject=readers")[2])
    assert any("preparing to rebalance" in event["message"] for event in events)
    assert {event["subject"] for event in events} == {"readers"}
    assert get(broker, "/history?kind=nonsense")[0] == 400


def test_what_is_not_served_is_refused(broker: RunningBroker) -> None:
    assert get(broker, "/secret")[0] == 404
    host = urlsplit(broker.metrics_url or "").netloc
    connection = http.client.HTTPConnection(host, timeout=PATIENCE_SECONDS)
    for method, status in (("POST", 405), ("GET", 200)):
        connection.request(method, "/healthz")
        answer = connection.getresponse()
        answer.read()
        assert answer.status == status
    connection.request("HEAD", "/metrics")
    answer = connection.getresponse()
    assert answer.read() == b""
    assert answer.status == 200
    connection.close()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / HTTP/3.0\r\n\r\n", b"505"),
        (b"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000, b"431"),
    ],
)
def test_a_bad_request_is_answered_and_its_connection_ended(
    broker: RunningBroker, sent: bytes, status: bytes
) -> None:
    parts = urlsplit(broker.metrics_url or "")
    with socket.create_connection((parts.hostname or "", parts.port or 0)) as sock:
        sock.settimeout(PATIENCE_SECONDS)
        sock.sendall(sent)
        received = b""
        while data := _receive(sock):
            received += data
    assert received.split(b" ")[1] == status


def _receive(sock: socket.socket) -> bytes:
    try:
        return sock.recv(65536)
    except ConnectionResetError:  # it had more to read than it wanted
        return b""
