from __future__ import annotations

import pytest

from moldau.config.describe import find_unknown
from moldau.config.properties import load_properties


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("log.retention.hour", "has no effect; did you mean log.retention.hours?"),
        ("completely.different", "is not an option of the broker and has no effect"),
        ("port", "is no longer an option; set listeners=PLAINTEXT://host:port"),
        ("host.name", "is no longer an option; set listeners=PLAINTEXT://host:port"),
        ("retention.ms", "is an option of topics; for all topics set log.retention.ms"),
        ("ssl.secure.random.implementation", "has no effect"),
    ],
)
def test_a_name_that_nobody_declares_is_reported_with_advice(name: str, advice: str) -> None:
    static = load_properties(f"broker.id=1\n{name}=5\n", "server.properties")
    (unknown,) = find_unknown(static)
    assert unknown.name == name
    assert str(unknown).startswith(f"server.properties line 2: {name} is ")
    assert str(unknown).endswith(advice)


def test_an_option_that_topics_and_brokers_share_is_known() -> None:
    assert find_unknown({"min.insync.replicas": "2", "compression.type": "lz4"}) == []


def test_an_option_of_a_listener_that_is_not_there_is_reported() -> None:
    name = "listener.name.outsid.ssl.client.auth"
    listeners = {"listeners": "INSIDE://127.0.0.1:1, OUTSIDE://127.0.0.1:2"}
    (unknown,) = find_unknown({**listeners, name: "required"})
    assert str(unknown).startswith(f"{name} is for a listener that is not among listeners")
    right = {
        "listener.name.outside.ssl.client.auth": "required",
        "listener.name.INSIDE.plain.sasl.jaas.config": "x",
    }
    assert find_unknown({**listeners, **right}) == []
    assert find_unknown({name: "required"}) == []  # a change of one setting, without the others
