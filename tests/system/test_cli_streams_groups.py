"""`moldau groups` and the administrator with streams groups (KIP-1071), on a broker that is started
again."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau import Admin
from moldau.errors import GroupNotFoundError
from moldau.model import TopicPartition
from moldau.testing.running_broker import broker
from support.command_line import Cli
from support.streams_members import StreamsMember
from support.topics import Topics

GROUP = "counters"
AT_ONCE = {
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
}


def test_a_streams_group_is_shown_reset_and_deleted_also_after_a_restart(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    with broker(AT_ONCE, data_folder=tmp_path) as running:
        topic = Topics(running.bootstrap).create(2)
        with StreamsMember(running.bootstrap, GROUP, topic) as member:
            assert member.join() == {"0": (0, 1), "1": (0, 1)}
            read = {
                TopicPartition(name, number)
                for name in (topic, member.repartition_topic)
                for number in range(2)
            }
            assert member.changelog_topic in Topics(running.bootstrap).names()
            with Admin(running.bootstrap) as admin:
                found = admin.describe_groups([GROUP])[GROUP]
                assert (found.type, found.state, found.protocol) == ("streams", "Stable", "sticky")
                assert set(found.members[0].assignment) == read
            cli = Cli(running.bootstrap, capsysbinary)
            listed = cli.json("groups", "list", "--type", "streams")
            assert [(one["group"], one["type"]) for one in listed] == [(GROUP, "streams")]
            assert member.repartition_topic in cli("groups", "describe", GROUP)

    with broker(AT_ONCE, data_folder=tmp_path) as running:
        with StreamsMember(running.bootstrap, GROUP, topic) as member:
            member.join()  # again, as the member that it was
            member.leave()
        cli = Cli(running.bootstrap, capsysbinary)
        reset = cli.json("groups", "reset-offsets", GROUP, "--topic", topic, "--to-latest")
        assert [row["after"] for row in reset["offsets"]] == [0, 0]
        (document,) = cli.json("groups", "describe", GROUP)
        assert document["state"] == "Empty"
        assert {row["topic"] for row in document["offsets"]} == {topic}
        cli("groups", "delete", GROUP)
        with Admin(running.bootstrap) as admin:
            assert isinstance(admin.describe_groups([GROUP])[GROUP], GroupNotFoundError)
