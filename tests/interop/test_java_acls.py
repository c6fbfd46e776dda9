"""Kafka's own tool for access control lists (kafka-acls.sh is this class)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import moldau.testing
from support.kafka_jars import JarsUnavailableError, require_class_path

TOOL = "org.apache.kafka.tools.AclCommand"
OPTIONS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def class_path() -> str:
    try:
        return require_class_path()
    except JarsUnavailableError as error:
        pytest.skip(str(error))


def run_tool(class_path: str, bootstrap: str, *arguments: str) -> str:
    command = ["java", "-cp", class_path, TOOL, "--bootstrap-server", bootstrap, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_kafka_acls_lists_adds_and_removes(class_path: str, tmp_path: Path) -> None:
    with moldau.testing.broker(OPTIONS) as broker:

        def tool(*arguments: str) -> str:
            return run_tool(class_path, broker.bootstrap, *arguments)

        who = ("--allow-principal", "User:alice", "--consumer", "--topic", "t", "--group", "g")
        assert "User:alice" in tool("--add", *who)
        tool(
            *("--add", "--deny-principal", "User:eve", "--operation", "Write"),
            *("--topic", "orders.", "--resource-pattern-type", "prefixed"),
        )
        with moldau.Admin(broker.bootstrap) as admin:
            found = {str(one) for one in admin.describe_acls()}
        assert found == {
            "Allow User:alice from * to Read Topic:t",
            "Allow User:alice from * to Describe Topic:t",
            "Allow User:alice from * to Read Group:g",
            "Deny User:eve from * to Write Topic:orders. (Prefixed)",
        }
        listed = tool("--list", "--topic", "orders.eu", "--resource-pattern-type", "match")
        assert "User:eve" in listed
        assert "User:alice" not in listed
        tool("--remove", "--force", *who)
        assert "User:alice" not in tool("--list")
