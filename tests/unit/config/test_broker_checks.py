from __future__ import annotations

import pytest

from moldau.config.broker_options import BrokerOptions
from moldau.config.properties import load_properties
from moldau.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("broker.id=-2", "broker.id=-2 is less than -1"),
        ("broker.id=1\nnode.id=2", "node.id=2 differs from broker.id=1; set one of the two"),
        (
            "broker.id.generation.enable=false",
            "broker.id is not set and broker.id.generation.enable is false; set broker.id",
        ),
        (
            "broker.id=1001\nzookeeper.connect=localhost:2181",
            "broker.id=1001 is above reserved.broker.max.id=1000; take a smaller id",
        ),
        ("log.dirs=", "log.dirs is empty; name at least one directory"),
        ("log.dir=", "log.dir is empty; name at least one directory"),
        ("log.dirs=/a,/b,/a", "log.dirs names /a twice"),
        ("listeners=", "listeners leaves nothing to listen on; name an address"),
        (
            "listeners=CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER",
            "listeners leaves nothing to listen on",
        ),
        ("listeners=localhost:9092", "listeners=localhost:9092 has the address 'localhost:9092'"),
        ("listeners=CLIENTS://:1", "add CLIENTS:PLAINTEXT to listener.security.protocol.map"),
        (
            "listeners=A://x:1,B://x:1\nlistener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT",
            "listeners names the address x:1 twice",
        ),
        (
            "advertised.listeners=PLAINTEXT://0.0.0.0:9092",
            "advertised.listeners has PLAINTEXT://0.0.0.0:9092, which no client can connect to; "
            "name a host or an address that clients can reach",
        ),
        ("advertised.listeners=PLAINTEXT://:9092", "which no client can connect to"),
        ("advertised.listeners=PLAINTEXT://box:0", "name the real port"),
        ("advertised.listeners=SSL://box:9093", "but listeners has no SSL; add it there"),
        ("inter.broker.listener.name=INTERNAL", "is not among listeners; name one of them"),
        (
            "inter.broker.listener.name=PLAINTEXT\nsecurity.inter.broker.protocol=PLAINTEXT",
            "are both set; remove one",
        ),
        (
            "group.min.session.timeout.ms=9\ngroup.max.session.timeout.ms=8",
            "group.min.session.timeout.ms=9 is larger than group.max.session.timeout.ms=8",
        ),
        (
            "group.consumer.session.timeout.ms=9",
            "group.consumer.session.timeout.ms=9 is not within "
            "group.consumer.min.session.timeout.ms=45000 and "
            "group.consumer.max.session.timeout.ms=60000; change it or the bounds",
        ),
        (
            "group.consumer.max.heartbeat.interval.ms=4999",
            "group.consumer.heartbeat.interval.ms=5000 is not within",
        ),
        (
            "group.consumer.min.session.timeout.ms=5000\ngroup.consumer.session.timeout.ms=5000",
            "group.consumer.heartbeat.interval.ms=5000 is not smaller than",
        ),
        (
            "group.consumer.assignment.interval.ms=15001",
            "group.consumer.assignment.interval.ms=15001 is not within "
            "group.consumer.min.assignment.interval.ms=0 and ",
        ),
        (
            "group.share.min.assignment.interval.ms=1",
            "group.share.assignment.interval.ms=0 is not within",
        ),
        (
            "log.cleaner.min.compaction.lag.ms=9\nlog.cleaner.max.compaction.lag.ms=8",
            "log.cleaner.min.compaction.lag.ms=9 is larger than",
        ),
        ("replica.fetch.wait.max.ms=40000", "idle followers would fall out of sync; lower it"),
    ],
)
def test_options_that_do_not_fit_together_are_refused_with_advice(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        BrokerOptions.resolve(load_properties(text, "server.properties"))
    assert message in str(caught.value)
    assert str(caught.value).startswith("server.properties line ")


def test_a_conflict_names_the_line_of_the_option_to_change() -> None:
    text = "broker.id=1\nadvertised.listeners=PLAINTEXT://0.0.0.0:9092\n"
    with pytest.raises(ConfigurationError, match=r"^server.properties line 2: advertised"):
        BrokerOptions.resolve(load_properties(text, "server.properties"))


@pytest.mark.parametrize(
    "static",
    [
        {"broker.id": "5", "node.id": "5"},
        {"broker.id": "1001"},
        {
            "broker.id": "1001",
            "broker.id.generation.enable": "false",
            "zookeeper.connect": "localhost:2181",
        },
        {
            "listeners": "A://x:0,B://x:0",
            "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
            "inter.broker.listener.name": "b",
        },
        {"advertised.listeners": "PLAINTEXT://kafka.example.org:443"},
    ],
)
def test_options_that_fit_together_pass(static: dict[str, str]) -> None:
    BrokerOptions.resolve(static)
