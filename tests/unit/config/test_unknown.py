from __future__ import annotations

import pytest

from moldau.config.static import load_properties
from moldau.config.unknown import find_unknown


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
