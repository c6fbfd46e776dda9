"""`moldau quotas`, and the levels of loggers, as a person uses them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moldau.testing.running_broker import RunningBroker, broker
from support.command_line import Cli


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningBroker]:
    with broker() as running:
        yield running


@pytest.fixture
def cli(shared: RunningBroker, capsysbinary: pytest.CaptureFixture[bytes]) -> Cli:
    return Cli(shared.bootstrap, capsysbinary)


def test_quotas_are_set_shown_and_removed(cli: Cli) -> None:
    told = cli("quotas", "set", "--user", "alice", "producer_byte_rate=1e6", "request_percentage=5")
    assert told == "user 'alice': set producer_byte_rate=1,000,000, request_percentage=5\n"
    cli("quotas", "set", "--client-id", "default", "consumer_byte_rate=10")
    cli("quotas", "set", "--ip", "10.0.0.1", "connection_creation_rate=3")
    assert cli.json("quotas", "describe") == [
        {"entity": {"client-id": "<default>"}, "quotas": {"consumer_byte_rate": 10.0}},
        {"entity": {"ip": "10.0.0.1"}, "quotas": {"connection_creation_rate": 3.0}},
        {
            "entity": {"user": "alice"},
            "quotas": {"producer_byte_rate": 1e6, "request_percentage": 5.0},
        },
    ]
    assert "1,000,000" in cli("quotas", "describe", "--user", "alice")
    cli("quotas", "remove", "--user", "alice", "producer_byte_rate")
    (left,) = cli.json("quotas", "describe", "--user", "alice")
    assert left["quotas"] == {"request_percentage": 5.0}
    cli("quotas", "remove", "--user", "alice")
    cli("quotas", "describe", "--user", "alice")
    assert cli.err == "there are no such quotas\n"


@pytest.mark.parametrize(
    ("arguments", "hint", "code"),
    [
        (("set", "producer_byte_rate=1"), "--user", 2),
        (("set", "--ip", "::1", "--user", "a", "connection_creation_rate=1"), "stands alone", 2),
        (("set", "--user", "a", "producer_byte_rate=many"), "is no number", 2),
        (("set", "--user", "a", "producer_byte_rate=0"), "greater than 0", 1),
        (("set", "--user", "a", "speed=1"), "possible are producer_byte_rate", 1),
    ],
)
def test_mistakes_are_explained(cli: Cli, arguments: tuple[str, ...], hint: str, code: int) -> None:
    cli("quotas", *arguments, code=code)
    assert hint in cli.err


def test_levels_of_loggers_are_described_and_altered(cli: Cli) -> None:
    name = "moldau.broker.purgatory"
    cli("configs", "alter", "--loggers", "1", "--set", "moldau.broker=DEBUG")
    levels = {
        row["name"]: row["value"] for row in cli.json("configs", "describe", "--loggers", "1")
    }
    assert levels["moldau.broker"] == "DEBUG"
    assert levels.get(name, "DEBUG") == "DEBUG"
    cli("configs", "alter", "--loggers", "1", "--unset", "moldau.broker")
    cli("configs", "alter", "--loggers", "1", "--set", "moldau.broker=LOUD", code=1)
    assert "TRACE, DEBUG" in cli.err
