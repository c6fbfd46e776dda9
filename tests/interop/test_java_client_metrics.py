"""A Java producer pushes its own metrics, asked for by `kafka-client-metrics` (KIP-714)."""

from __future__ import annotations

import subprocess
import urllib.request

import pytest

import moldau.testing
from support.kafka_jars import JarsUnavailableError, require_class_path
from support.waiting import PATIENCE_SECONDS, eventually


@pytest.fixture(scope="module")
def class_path() -> str:
    try:
        return require_class_path()
    except JarsUnavailableError as error:
        pytest.skip(str(error))


def command(class_path: str, *arguments: str) -> list[str]:
    return ["java", "-Xmx256m", "-cp", class_path, *arguments]


def tool(class_path: str, bootstrap: str, *arguments: str) -> str:
    done = subprocess.run(
        command(
            class_path,
            "org.apache.kafka.tools.ClientMetricsCommand",
            "--bootstrap-server",
            bootstrap,
            *arguments,
        ),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_java_producer_is_seen_on_the_metrics_port(class_path: str) -> None:
    with moldau.testing.broker({"metrics.listener": "127.0.0.1:0"}) as broker:
        tool(
            class_path,
            broker.bootstrap,
            *("--alter", "--name", "java", "--metrics", "org.apache.kafka.producer."),
            *("--interval", "500", "--match", "client_software_name=apache-kafka-java"),
        )
        assert "java" in tool(class_path, broker.bootstrap, "--list")
        told = tool(class_path, broker.bootstrap, "--describe", "--name", "java")
        assert "interval.ms=500" in told
        program = command(
            class_path,
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", "clicks", "--num-records", "1000000", "--record-size", "100"),
            *("--throughput", "100", "--producer-props"),
            *(f"bootstrap.servers={broker.bootstrap}", "client.id=watched"),
        )
        with subprocess.Popen(program, stdout=subprocess.DEVNULL) as producer:
            try:
                eventually(
                    lambda: 'client_id="watched"' in scrape(broker.metrics_url),
                    "the Java producer has pushed its metrics",
                )
                text = scrape(broker.metrics_url)
            finally:
                producer.kill()
        assert "moldau_client_producer_" in text
        assert "apache-kafka-java" in text
        tool(class_path, broker.bootstrap, "--delete", "--name", "java")
        assert "java" not in tool(class_path, broker.bootstrap, "--list")


def scrape(url: str | None) -> str:
    with urllib.request.urlopen(f"{url}/metrics", timeout=PATIENCE_SECONDS) as answer:
        return str(answer.read().decode())
