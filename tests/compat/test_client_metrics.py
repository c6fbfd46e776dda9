"""librdkafka pushes its own metrics when somebody subscribes to them (KIP-714)."""

from __future__ import annotations

import urllib.request

from confluent_kafka import Producer

import moldau
from moldau.client.admin.values import ConfigChange, ConfigOperation, ConfigResource, ResourceType
from moldau.testing import broker as start_broker
from moldau.testing.running_broker import RunningBroker
from support.waiting import PATIENCE_SECONDS, eventually

SUBSCRIPTION = ConfigResource(ResourceType.CLIENT_METRICS, "everything")


def scrape(running: RunningBroker) -> str:
    with urllib.request.urlopen(f"{running.metrics_url}/metrics", timeout=30) as answer:
        return str(answer.read().decode())


def subscribe(running: RunningBroker, **settings: str) -> None:
    changes = [
        ConfigChange(name=name.replace("_", "."), value=value, operation=ConfigOperation.SET)
        for name, value in settings.items()
    ]
    with moldau.Admin(running.bootstrap) as admin:
        (error,) = admin.alter_configs({SUBSCRIPTION: changes}).values()
        assert error is None
        assert SUBSCRIPTION in admin.list_config_resources()
        (entries,) = admin.describe_configs([SUBSCRIPTION]).values()
        assert not isinstance(entries, Exception)
        known = {entry.name: entry.value for entry in entries}
        assert known == {"metrics": "*", "interval.ms": "200", "match": "client_id=watched"}


def test_the_figures_of_a_real_client_are_on_the_metrics_port() -> None:
    with start_broker({"metrics.listener": "127.0.0.1:0"}) as running:
        subscribe(running, metrics="*", interval_ms="200", match="client_id=watched")
        watched = Producer(
            {"bootstrap.servers": running.bootstrap, "client.id": "watched", "linger.ms": 0}
        )
        silent = Producer({"bootstrap.servers": running.bootstrap, "client.id": "silent"})

        def is_shown() -> bool:
            for producer in (watched, silent):
                producer.produce("clicks", b"x")
                producer.flush(PATIENCE_SECONDS)
            return 'client_id="watched"' in scrape(running)

        eventually(is_shown, "the producer has pushed its metrics")
        text = scrape(running)
        assert "moldau_client_producer_" in text
        assert 'client_software="confluent-kafka-python' in text
        assert 'client_id="silent"' not in text


def test_a_subscription_goes_when_nothing_is_set_any_more() -> None:
    with start_broker({"metrics.listener": "127.0.0.1:0"}) as running:
        subscribe(running, metrics="*", interval_ms="200", match="client_id=watched")
        changes = [
            ConfigChange(name=name, value=None, operation=ConfigOperation.DELETE)
            for name in ("metrics", "interval.ms", "match")
        ]
        with moldau.Admin(running.bootstrap) as admin:
            assert admin.alter_configs({SUBSCRIPTION: changes}) == {SUBSCRIPTION: None}
            assert SUBSCRIPTION not in admin.list_config_resources()
            wrong = ConfigChange(name="match", value="shoe_size=4", operation=ConfigOperation.SET)
            (error,) = admin.alter_configs({SUBSCRIPTION: [wrong]}).values()
            assert "shoe_size" in str(error)
