"""Kafka's own tools, 4.3, with our share groups: `kafka-share-groups.sh` lists, describes, resets
and deletes them, and Kafka's formatters read what our coordinators have written."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from moldau.testing.running_broker import RunningBroker, broker
from support.kafka_jars import NEWEST, JarsUnavailableError, require_class_path
from support.share_members import ShareMember
from support.topics import Topics

TOOLS = "org.apache.kafka.tools.consumer"
COMMAND = f"{TOOLS}.group.ShareGroupCommand"
PATIENCE_SECONDS = 180
GROUP = "takers"

Java = Callable[..., str]


@pytest.fixture(scope="session")
def java() -> Java:
    """Runs a class of Kafka's tools, or skips with the reason."""
    command = shutil.which("java")
    if command is None:
        pytest.skip("there is no Java to run Kafka's own tools with")
    try:
        jars = require_class_path(NEWEST)
    except JarsUnavailableError as error:
        pytest.skip(str(error))
    frugal = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

    def run(name: str, *arguments: str) -> str:
        done = subprocess.run(
            [command, *frugal, "-cp", jars, name, *arguments],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert "Error" not in done.stdout, done.stdout + done.stderr
        assert "Exception" not in done.stderr, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture
def running() -> Iterator[RunningBroker]:
    with broker() as started:
        yield started


def documents(java: Java, bootstrap: str, topic: str, formatter: str) -> list[dict[str, Any]]:
    """All records of a topic that one of Kafka's formatters knows."""
    text = java(
        f"{TOOLS}.ConsoleConsumer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning"),
        *("--formatter", formatter, "--timeout-ms", "8000"),
    )
    decoder, found, position = json.JSONDecoder(), [], 0
    while (position := text.find("{", position)) >= 0:
        document, position = decoder.raw_decode(text, position)
        found.append(document)
    return found


def test_kafkas_tools_work_with_share_groups(running: RunningBroker, java: Java) -> None:
    bootstrap = running.bootstrap
    topic = Topics(bootstrap).create(2)
    server = ("--bootstrap-server", bootstrap)
    with ShareMember(bootstrap, GROUP, topic) as member:
        member.join()
        assert "Stable" in java(COMMAND, *server, "--list", "--state")
        described = java(COMMAND, *server, "--describe", "--group", GROUP, "--members")
        assert f"{topic}:0,1" in described
        member.leave()
    assert "Empty" in java(COMMAND, *server, "--describe", "--group", GROUP, "--state")
    which = ("--group", GROUP, "--topic", topic)
    java(COMMAND, *server, "--reset-offsets", *which, "--to-earliest", "--execute")
    described = java(COMMAND, *server, "--describe", "--group", GROUP, "--offsets")
    rows = [line.split() for line in described.splitlines() if line.startswith(GROUP)]
    assert sorted(row[:4] for row in rows) == [[GROUP, topic, str(one), "0"] for one in (0, 1)]
    java(COMMAND, *server, "--delete-offsets", *which)
    java(COMMAND, *server, "--delete", "--group", GROUP)
    assert GROUP not in java(COMMAND, *server, "--list")


def test_kafkas_formatters_read_our_records(running: RunningBroker, java: Java) -> None:
    bootstrap = running.bootstrap
    topic = Topics(bootstrap).create(2)
    with ShareMember(bootstrap, GROUP, topic) as member:
        member.join()
    formatter = f"{TOOLS}.group.share.ShareGroupStateMessageFormatter"
    states = documents(java, bootstrap, "__share_group_state", formatter)
    assert {one["key"]["data"]["partition"] for one in states} == {0, 1}
    for one in states:
        assert one["key"]["data"]["groupId"] == GROUP
        value = one["value"]["data"]
        assert (value["stateEpoch"], value["startOffset"], value["stateBatches"]) == (1, -1, [])
    formatter = f"{TOOLS}.ShareGroupMessageFormatter"
    records = documents(java, bootstrap, "__consumer_offsets", formatter)
    assert {one["key"]["type"] for one in records} == {10, 11, 12, 13, 14, 15}
    kept = [one for one in records if one["key"]["type"] == 15][-1]["value"]["data"]
    assert [(row["topicName"], row["partitions"]) for row in kept["initializedTopics"]] == [
        (topic, [0, 1])
    ]
