"""`moldau acls` against a real broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import moldau.testing
from support.command_line import Cli

OPTIONS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture
def cli(capsysbinary: pytest.CaptureFixture[bytes]) -> Iterator[Cli]:
    with moldau.testing.broker(OPTIONS) as broker:
        yield Cli(broker.bootstrap, capsysbinary)


def test_lists_are_shown_added_and_removed(cli: Cli) -> None:
    cli("acls", "list")
    assert "there are no such entries" in cli.err
    who = ("--allow-principal", "User:carol", "--consumer", "--topic", "t", "--group", "g")
    added = cli.json("acls", "add", *who)
    assert {(one["resource_type"], one["name"], one["operation"]) for one in added} == {
        ("Topic", "t", "Read"),
        ("Topic", "t", "Describe"),
        ("Group", "g", "Read"),
    }
    prefixed = ("--topic", "orders.", "--resource-pattern-type", "prefixed")
    cli("acls", "add", "--deny-principal", "User:eve", "--deny-host", "10.0.0.9", *prefixed)
    table = cli("acls", "list")
    assert len(table.splitlines()) == 1 + 4
    assert "User:eve" in table
    matching = cli.json("acls", "list", "--topic", "orders.eu", "--resource-pattern-type", "match")
    assert [(one["principal"], one["permission"], one["host"]) for one in matching] == [
        ("User:eve", "Deny", "10.0.0.9")
    ]
    assert len(cli.json("acls", "list", "--principal", "User:carol")) == 3
    assert len(cli.json("acls", "remove", *who)) == 3
    assert len(cli.json("acls", "remove", *prefixed, "--force")) == 1
    assert cli.json("acls", "list") == []
    cli("acls", "remove", *who)
    assert "there were no such entries" in cli.err


def test_without_an_authorizer_it_says_what_to_set(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    with moldau.testing.broker() as broker:
        cli = Cli(broker.bootstrap, capsysbinary)
        cli("acls", "list", code=1)
        assert "authorizer.class.name" in cli.err
