"""`moldau groups` and `moldau consume --group` against a real broker, beside another client."""

from __future__ import annotations

import fcntl
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from functools import partial
from typing import IO

import pytest

from moldau.testing.running_broker import RunningBroker, broker
from support import confluent_client
from support.command_line import PATIENCE, Cli, process
from support.group_members import ConfluentMember, Member
from support.rows import Row
from support.topics import Topics, fresh_name
from support.waiting import eventually

HOUR_SECONDS = 3600


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningBroker]:
    with broker({"group.initial.rebalance.delay.ms": "0"}) as running:
        yield running


@pytest.fixture(scope="module")
def bootstrap(shared: RunningBroker) -> str:
    return shared.bootstrap


@pytest.fixture
def cli(bootstrap: str, capsysbinary: pytest.CaptureFixture[bytes]) -> Cli:
    return Cli(bootstrap, capsysbinary)


@pytest.fixture
def group() -> str:
    return fresh_name("group")


@pytest.fixture
def topic(bootstrap: str) -> str:
    """Two partitions: ten records in the first, one a minute until an hour ago; five now."""
    name = Topics(bootstrap).create(2)
    now_ms = time.time_ns() // 1_000_000
    old = [
        Row(None, b"old %d" % number, (), now_ms - (HOUR_SECONDS + 60 * (9 - number)) * 1000)
        for number in range(10)
    ]
    new = [Row(None, b"new %d" % number, (), now_ms) for number in range(5)]
    confluent_client.produce(bootstrap, name, old, partition=0)
    confluent_client.produce(bootstrap, name, new, partition=1)
    return name


def member(bootstrap: str, topic: str, group: str, **options: object) -> Member:
    return Member(partial(ConfluentMember, bootstrap, topic, group, **options))


def reset(cli: Cli, group: str, *arguments: str) -> dict[int, tuple[int | None, int]]:
    """By partition: before and after."""
    rows = cli.json("groups", "reset-offsets", group, *arguments)["offsets"]
    return {row["partition"]: (row["before"], row["after"]) for row in rows}


def committed(cli: Cli, group: str) -> dict[int, int]:
    (described,) = cli.json("groups", "describe", group)
    return {row["partition"]: row["committed_offset"] for row in described["offsets"]}


# Listing and describing


def test_a_group_is_listed_described_and_deleted(
    cli: Cli, bootstrap: str, topic: str, group: str
) -> None:
    options = {"client_id": "reader", "group_instance_id": "first"}
    with member(bootstrap, topic, group, **options) as reader:
        reader.wait_for_assignment(lambda assigned: assigned == {0, 1})
        listed = {row["group"]: row for row in cli.json("groups", "list", "--state", "stable")}
        assert listed[group] == {
            "group": group,
            "state": "Stable",
            "type": "classic",
            "protocol_type": "consumer",
        }
        shown = cli("groups", "describe", group, "--members")
        assert "members      1, assigned by range" in shown
        assert shown.splitlines()[-1].split()[1:] == [
            "first",
            "reader",
            "127.0.0.1",
            f"{topic}:0,1",
        ]
        cli("groups", "delete", group, code=1)
        assert cli.err == (
            f"moldau: group '{group}' has members; stop its members, then try again\n"
        )


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        (("groups", "list", "--type", "shar"), "none of classic, consumer, share, streams", 2),
        (("transactions", "list", "--state", "Ongoin"), "none of Empty, Ongoing, PrepareCommit", 2),
        (("transactions", "list", "--pattern", "("), "the pattern '(': RE2 does not take it", 1),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_what_nothing_can_match_is_refused(
    cli: Cli, words: tuple[str, ...], said: str, code: int
) -> None:
    cli(*words, code=code)
    assert said in cli.err


def test_states_of_transactions_may_be_typed_in_small_letters(cli: Cli) -> None:
    cli("transactions", "list", "--state", "ongoing")


def test_deleting_forgets_a_group(cli: Cli, topic: str, group: str) -> None:
    reset(cli, group, "--topic", topic, "--to-latest")
    assert group in cli("groups", "list", "--state", "empty", "--type", "classic")
    assert group not in cli("groups", "list", "--state", "stable")
    assert group not in cli("groups", "list", "--type", "consumer")
    assert cli("groups", "delete", group) == f"deleted {group}\n"
    assert group not in cli("groups", "list")
    cli("groups", "delete", group, code=1)
    assert "moldau groups list" in cli.err
    cli("groups", "delete", group, "--if-exists")


def test_a_group_that_is_not_there_is_an_error(cli: Cli) -> None:
    assert cli("groups", "describe", "nobody", code=1) == ""
    assert cli.err == (
        "moldau: there is no group 'nobody'; `moldau groups list` shows what is there\n"
    )


def test_lag_is_told_in_records_and_in_seconds(cli: Cli, topic: str, group: str) -> None:
    reset(cli, group, "--topic", f"{topic}:0", "--to-offset", "7")
    reset(cli, group, "--topic", f"{topic}:1", "--to-latest")
    (described,) = cli.json("groups", "describe", group)
    behind, caught_up = described["offsets"]
    assert (behind["committed_offset"], behind["log_end_offset"], behind["lag"]) == (7, 10, 3)
    since_record_seven = HOUR_SECONDS + 2 * 60
    assert since_record_seven <= behind["lag_seconds"] < since_record_seven + 60
    assert (caught_up["committed_offset"], caught_up["lag"]) == (5, 0)
    assert caught_up["lag_seconds"] == 0
    assert described["total_lag"] == 3
    assert described["max_lag_seconds"] == behind["lag_seconds"]

    rows = cli("groups", "describe", group).splitlines()
    assert rows[-3].split() == [topic, "0", "7", "10", "3", "1h", "2m", "-", "-"]
    assert rows[-2].split() == [topic, "1", "5", "5", "0", "0s", "-", "-"]
    assert rows[-1].strip() == "total lag 3 records, at most 1h 2m behind"


def test_a_partition_without_a_commit_is_shown_with_its_reader(
    cli: Cli, bootstrap: str, topic: str, group: str
) -> None:
    reset(cli, group, "--topic", f"{topic}:0", "--to-latest")
    with member(bootstrap, topic, group) as reader:
        reader.wait_for_assignment(lambda assigned: assigned == {0, 1})
        (described,) = cli.json("groups", "describe", group)
    read, unread = described["offsets"]
    assert read["member_id"] == unread["member_id"] == described["members"][0]["member_id"]
    assert (read["committed_offset"], read["lag"]) == (10, 0)
    assert (unread["committed_offset"], unread["log_end_offset"]) == (None, 5)
    assert (unread["lag"], unread["lag_seconds"]) == (None, None)


def test_all_groups_are_described_when_none_is_named(cli: Cli, topic: str, group: str) -> None:
    reset(cli, group, "--topic", topic, "--to-latest")
    described = cli.json("groups", "describe", "--members")
    assert group in {row["group"] for row in described}
    assert all("offsets" not in row for row in described)


# Resetting


@pytest.mark.parametrize(
    ("arguments", "after"),
    [
        ("--to-earliest", {0: 0, 1: 0}),
        ("--to-latest", {0: 10, 1: 5}),
        ("--to-offset 3", {0: 3, 1: 3}),
        ("--to-offset 7", {0: 7, 1: 5}),
        ("--by-duration PT1H3M30S", {0: 6, 1: 0}),
        ("--by-duration 30m", {0: 10, 1: 0}),
        ("--to-datetime 2001-01-01", {0: 0, 1: 0}),
        ("--to-datetime 2101-01-01T00:00:00+01:00", {0: 10, 1: 5}),
        ("--shift-by 2", {0: 6, 1: 5}),
        ("--shift-by -1", {0: 3, 1: 3}),
        ("--shift-by -100", {0: 0, 1: 0}),
    ],
    ids=str,
)
def test_a_group_goes_where_it_is_told_and_not_in_a_dry_run(
    cli: Cli, topic: str, group: str, arguments: str, after: dict[int, int]
) -> None:
    reset(cli, group, "--topic", topic, "--to-offset", "4")
    expected = {partition: (4, place) for partition, place in after.items()}
    assert reset(cli, group, "--all-topics", *arguments.split(), "--dry-run") == expected
    assert committed(cli, group) == {0: 4, 1: 4}
    assert reset(cli, group, "--all-topics", *arguments.split()) == expected
    assert committed(cli, group) == after


def test_a_dry_run_says_that_it_is_one(cli: Cli, topic: str, group: str) -> None:
    shown = cli("groups", "reset-offsets", group, "--topic", topic, "--to-latest", "--dry-run")
    assert [line.split() for line in shown.splitlines()] == [
        ["topic", "partition", "before", "after"],
        [topic, "0", "-", "10"],
        [topic, "1", "-", "5"],
    ]
    assert cli.err == "nothing was changed; without --dry-run it is\n"
    assert group not in cli("groups", "list")


def test_an_offset_out_of_reach_is_replaced_by_the_nearest_and_said(
    cli: Cli, topic: str, group: str
) -> None:
    cli("groups", "reset-offsets", group, "--topic", topic, "--to-offset", "7")
    assert cli.err == f"{topic}-1 does not reach offset 7; 5 is nearest\n"


def test_only_the_partitions_named_are_reset(cli: Cli, topic: str, group: str) -> None:
    assert reset(cli, group, "--topic", f"{topic}:1", "--to-latest") == {1: (None, 5)}
    assert committed(cli, group) == {1: 5}
    cli("groups", "reset-offsets", group, "--topic", f"{topic}:2", "--to-latest", code=1)
    assert "has no partition 2; it has 2, counted from 0" in cli.err
    cli("groups", "reset-offsets", group, "--topic", "nowhere", "--to-latest", code=1)
    assert "there is no topic 'nowhere'" in cli.err
    cli("groups", "reset-offsets", group, "--topic", topic, "--shift-by", "1", code=1)
    assert f"the group has no offset in {topic}-0" in cli.err


def test_all_topics_of_no_group_is_an_error(cli: Cli, group: str) -> None:
    cli("groups", "reset-offsets", group, "--all-topics", "--to-latest", code=1)
    assert f"there is no group '{group}'" in cli.err


def test_a_group_with_members_is_not_reset(
    cli: Cli, bootstrap: str, topic: str, group: str
) -> None:
    arguments = ("groups", "reset-offsets", group, "--topic", topic, "--to-latest")
    with member(bootstrap, topic, group) as reader:
        reader.wait_for_assignment(lambda assigned: assigned == {0, 1})
        cli(*arguments, code=1)
        assert cli.err == (
            f"moldau: group '{group}' has 1 member; stop its members, then try again\n"
        )
        cli(*arguments, "--dry-run")
        assert f"group '{group}' has 1 member now" in cli.err
    cli(*arguments)


def test_a_client_goes_on_where_the_group_was_put(
    cli: Cli, bootstrap: str, topic: str, group: str
) -> None:
    reset(cli, group, "--topic", topic, "--to-offset", "4")
    with member(bootstrap, topic, group) as reader:
        reader.wait_for_values({b"old 9", b"new 4"})
    assert {one.value for one in reader.seen} == {
        *(b"old %d" % number for number in range(4, 10)),
        b"new 4",
    }
    assert committed(cli, group) == {0: 10, 1: 5}


# Consuming as a member


def consume(bootstrap: str, topic: str, group: str, *arguments: str) -> tuple[str, ...]:
    return ("consume", topic, "--group", group, "--bootstrap", bootstrap, *arguments)


OLD, NEW = {f"old {number}" for number in range(10)}, {f"new {number}" for number in range(5)}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_reads_each_record_once_over_several_commands(
    cli: Cli, topic: str, group: str, protocol: str
) -> None:
    read = ("consume", topic, "--group", group, "--from-beginning", "--group-protocol", protocol)
    first = cli(*read, "--max-messages", "4").splitlines()
    assert len(first) == 4
    assert sum(committed(cli, group).values()) == 4
    rest = cli(*read, "--until-end").splitlines()
    assert len(first + rest) == 15
    assert set(first + rest) == OLD | NEW
    assert committed(cli, group) == {0: 10, 1: 5}
    assert cli(*read, "--until-end") == ""
    assert cli(*read, "--timeout-ms", "50") == ""
    (listed,) = [row for row in cli.json("groups", "list") if row["group"] == group]
    assert listed["state"] == "Empty"


def test_a_new_group_begins_at_the_end_unless_told_otherwise(
    cli: Cli, topic: str, group: str
) -> None:
    assert cli("consume", topic, "--group", group, "--until-end") == ""
    assert committed(cli, group) == {0: 10, 1: 5}
    (row, *_) = cli.json_lines(
        *("consume", topic, "--group", fresh_name("group")), "--from-beginning", "--until-end"
    )
    assert row.keys() >= {"partition", "offset", "key", "value", "headers", "timestamp_ms"}


def test_what_means_nothing_together_is_refused(cli: Cli, topic: str, group: str) -> None:
    cli("consume", topic, "--group-protocol", "consumer", code=2)
    assert "needs --group" in cli.err
    cli("consume", topic, "--group", group, "--group-protocol", "share", code=2)
    cli("consume", topic, "--release", code=2)
    assert "add --queue" in cli.err
    cli("consume", topic, "--queue", group, "--from-beginning", code=2)
    assert "share.auto.offset.reset" in cli.err


def test_a_group_cannot_read_a_topic_that_is_not_there(cli: Cli, group: str) -> None:
    cli("consume", "nowhere", "--group", group, code=1)
    assert "there is no topic 'nowhere'" in cli.err
    assert "nowhere" not in cli("topics", "list")


def read_lines(stream: IO[bytes] | None, count: int) -> set[str]:
    assert stream is not None
    return {stream.readline().decode().strip() for _ in range(count)}


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_commits_what_was_printed_and_leaves(
    cli: Cli, bootstrap: str, topic: str, group: str, number: signal.Signals, code: int
) -> None:
    arguments = consume(bootstrap, topic, group, "--from-beginning")
    with process(*arguments, stdout=subprocess.PIPE) as consuming:
        assert read_lines(consuming.stdout, 15) == OLD | NEW
        consuming.send_signal(number)
        out, err = consuming.communicate(timeout=PATIENCE)
    assert (consuming.returncode, out, err) == (code, b"", b"")
    (described,) = cli.json("groups", "describe", group)
    assert (described["state"], described["members"]) == ("Empty", [])
    assert committed(cli, group) == {0: 10, 1: 5}


@pytest.mark.usefixtures("ctrl_c")
def test_the_command_shares_a_topic_with_another_client(
    cli: Cli, bootstrap: str, topic: str, group: str
) -> None:
    reset(cli, group, "--topic", topic, "--to-latest")
    with member(bootstrap, topic, group) as other:
        other.wait_for_assignment(lambda assigned: assigned == {0, 1})
        with process(*consume(bootstrap, topic, group), stdout=subprocess.PIPE) as consuming:
            other.wait_for_assignment(lambda assigned: len(assigned) == 1)
            (theirs,) = other.assigned
            ours = 1 - theirs
            for partition in (0, 1):
                row = Row(None, b"for %d" % partition)
                confluent_client.produce(bootstrap, topic, [row], partition=partition)
            assert read_lines(consuming.stdout, 1) == {f"for {ours}"}
            other.wait_for_values({b"for %d" % theirs})
            consuming.send_signal(signal.SIGINT)
            assert consuming.wait(PATIENCE) == 130
        other.wait_for_assignment(lambda assigned: assigned == {0, 1})
        row = Row(None, b"all for one")
        confluent_client.produce(bootstrap, topic, [row], partition=ours)
        other.wait_for_values({b"all for one"})
    assert b"for %d" % ours not in {one.value for one in other.seen}  # it was committed


def test_a_reader_that_has_enough_leaves_the_group_in_order(
    cli: Cli, bootstrap: str, topic: str, group: str
) -> None:
    arguments = consume(bootstrap, topic, group, "--from-beginning")
    with process(*arguments, stdout=subprocess.PIPE) as consuming:
        assert read_lines(consuming.stdout, 15) == OLD | NEW
        assert consuming.stdout is not None
        consuming.stdout.close()
        confluent_client.produce(bootstrap, topic, [Row(None, b"unread")], partition=1)
        assert consuming.stderr is not None
        assert consuming.stderr.read() == b""
        assert consuming.wait(PATIENCE) == 141
    assert committed(cli, group) == {0: 10, 1: 5}
    assert cli("consume", topic, "--group", group, "--until-end") == "unread\n"


@pytest.mark.usefixtures("ctrl_c")
def test_a_reader_that_stops_reading_keeps_nobody_from_leaving_the_group(
    cli: Cli, bootstrap: str, topic: str, group: str
) -> None:
    arguments = consume(bootstrap, topic, group, "--from-beginning")
    with process(*arguments, stdout=subprocess.PIPE) as consuming:
        assert read_lines(consuming.stdout, 15) == OLD | NEW
        many = [Row(None, b"%0100d" % number) for number in range(5000)]
        confluent_client.produce(bootstrap, topic, many, partition=1)
        assert consuming.stdout is not None
        assert consuming.stdout.readline() == b"%0100d\n" % 0  # and the pipe is full soon
        eventually(lambda: _is_full(consuming.stdout), "a full pipe")
        consuming.send_signal(signal.SIGINT)
        assert consuming.wait(PATIENCE) == 130
    (described,) = cli.json("groups", "describe", group)
    assert described["state"] == "Empty"
    assert committed(cli, group)[1] < 5005  # what could not be printed is seen again


def _is_full(pipe: IO[bytes] | None) -> bool:
    assert pipe is not None
    held = fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4)
    size = fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)
    return int.from_bytes(held, sys.byteorder) > size - select.PIPE_BUF
