"""`moldau groups` and the administrator with share groups, on a broker that is started again."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau import Admin
from moldau.errors import GroupNotEmptyError, GroupNotFoundError
from moldau.model import TopicPartition
from moldau.testing.running_broker import broker
from support.command_line import Cli
from support.share_members import ShareMember
from support.topics import Topics

GROUP = "takers"


def test_a_share_group_is_shown_reset_and_deleted_also_after_a_restart(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    with broker(data_folder=tmp_path) as running:
        topic = Topics(running.bootstrap).create(2)
        first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
        with ShareMember(running.bootstrap, GROUP, topic) as member:
            assert member.join() == {first, second}
            with Admin(running.bootstrap) as admin:
                found = admin.describe_groups([GROUP])[GROUP]
                assert (found.type, found.state, found.protocol) == ("share", "Stable", "simple")
                assert set(found.members[0].assignment) == {first, second}
                with pytest.raises(GroupNotEmptyError):
                    admin.alter_share_group_offsets(GROUP, {first: 0})
            cli = Cli(running.bootstrap, capsysbinary)
            listed = cli.json("groups", "list", "--type", "share")
            assert [(one["group"], one["type"]) for one in listed] == [(GROUP, "share")]
            cli("consume", topic, "--group", GROUP, "--max-messages", "1", code=1)
            assert "such as a share group" in cli.err
            text = cli("groups", "describe", GROUP)
            assert "takers" in text
            assert "oldest" in text
            member.leave()
        with Admin(running.bootstrap) as admin:
            assert admin.alter_share_group_offsets(GROUP, {second: 0}) == {second: None}

    with broker(data_folder=tmp_path) as running:
        cli = Cli(running.bootstrap, capsysbinary)
        (document,) = cli.json("groups", "describe", GROUP)
        starts = {row["partition"]: row["start_offset"] for row in document["offsets"]}
        assert starts == {0: None, 1: 0}
        reset = cli.json("groups", "reset-offsets", GROUP, "--topic", topic, "--to-latest")
        assert [row["after"] for row in reset["offsets"]] == [0, 0]
        with Admin(running.bootstrap) as admin:
            assert admin.delete_share_group_offsets(GROUP, [topic]) == {topic: None}
            assert admin.list_share_group_offsets(GROUP) == {}
        cli("groups", "delete", GROUP)
        with Admin(running.bootstrap) as admin:
            assert isinstance(admin.describe_groups([GROUP])[GROUP], GroupNotFoundError)
            with pytest.raises(GroupNotFoundError):
                admin.list_share_group_offsets(GROUP)
