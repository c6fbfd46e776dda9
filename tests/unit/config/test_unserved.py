from __future__ import annotations

import pytest

from moldau.config.broker_options import BrokerOptions
from moldau.config.describe import find_unknown
from moldau.config.properties import load_properties
from moldau.errors import ConfigurationError

THREE_VOTERS = "controller.quorum.voters=1@a:9093,2@b:9093,3@c:9093\n"


def refusal(text: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        BrokerOptions.resolve(load_properties(text, "server.properties"))
    return str(caught.value)


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("sasl.kerberos.service.name=kafka", "asks for Kerberos"),
        ("listener.name.internal.gssapi.sasl.jaas.config=hunter2", "asks for Kerberos"),
        ("principal.builder.class=com.example.Builder", "names a class of Java"),
        ("ssl.engine.factory.class=com.example.Factory", "names a class of Java"),
        ("create.topic.policy.class.name=com.example.Policy", "names a class of Java"),
        ("client.quota.callback.class=com.example.Quotas", "names a class of Java"),
        ("remote.log.storage.system.enable=true", "asks for a copy of closed segments"),
        ("zookeeper.ssl.crl.enable=true", "asks whether certificates were revoked"),
    ],
)
def test_a_line_that_protects_and_is_not_served_stops_the_start(line: str, missing: str) -> None:
    name = line.partition("=")[0]
    said = refusal(f"broker.id=1\n{line}\n")
    assert said.startswith(f"server.properties line 2: {name} {missing}")
    assert "hunter2" not in said


@pytest.mark.parametrize(
    "line",
    [
        "remote.log.storage.system.enable=false",
        "broker.no.such.secret=x",
    ],
)
def test_a_line_that_protects_nothing_does_not(line: str) -> None:
    static = load_properties(f"{line}\n", "server.properties")
    BrokerOptions.resolve(static)
    assert [one.name for one in find_unknown(static)] == [line.partition("=")[0]]


def test_every_such_line_is_named_at_once() -> None:
    said = refusal(
        "create.topic.policy.class.name=a.B\nprincipal.builder.class=a.B\n" + THREE_VOTERS
    )
    assert [line.split(":")[0] for line in said.splitlines()] == [
        "server.properties line 1",
        "server.properties line 2",
        "server.properties line 3",
    ]


@pytest.mark.parametrize(
    "text",
    [
        THREE_VOTERS,
        "process.roles=broker,controller\n" + THREE_VOTERS,
        "controller.quorum.bootstrap.servers=a:9093,b:9093\n",
        "process.roles=broker\n",
    ],
)
def test_a_broker_of_a_quorum_does_not_start_alone(text: str) -> None:
    said = refusal(text)
    assert "this broker would be alone" in said
    assert "zookeeper.connect" in said


def test_a_controller_without_a_broker_is_not_started() -> None:
    assert "start the brokers only" in refusal("process.roles=controller\n")


@pytest.mark.parametrize(
    "text",
    [
        "zookeeper.connect=zk:2181\n" + THREE_VOTERS,
        "zookeeper.connect=zk:2181\nprocess.roles=broker\n",
        "process.roles=broker,controller\ncontroller.quorum.voters=1@localhost:9093\n",
    ],
)
def test_a_broker_that_is_meant_to_be_alone_or_joins_by_zookeeper_starts(text: str) -> None:
    BrokerOptions.resolve(load_properties(text, "server.properties"))
