"""The command line against a real broker, as a person or a script uses it."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import moldau
from moldau.cli.main import run
from moldau.records.codec import partition_for_key
from moldau.testing.free_ports import take_port
from moldau.testing.running_broker import RunningBroker, broker
from support.command_line import COMMAND, PATIENCE, Cli, process, write_lines
from support.waiting import eventually


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningBroker]:
    with broker({"num.partitions": "1"}) as running:
        yield running


@pytest.fixture
def cli(shared: RunningBroker, capsysbinary: pytest.CaptureFixture[bytes]) -> Cli:
    return Cli(shared.bootstrap, capsysbinary)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name of its own for each test."""
    return str(request.node.name).translate(str.maketrans("[]/ ", "----"))[:100]


# Topics


def test_a_topic_lives_from_create_to_delete(cli: Cli, topic: str) -> None:
    assert cli("topics", "create", topic, "--partitions", "2") == (
        f"created topic {topic} with 2 partitions, replication factor 1\n"
    )
    assert topic in cli("topics", "list")
    assert cli("topics", "alter", topic, "--partitions", "5") == (
        f"topic {topic} has 5 partitions now\n"
    )
    (described,) = cli.json("topics", "describe", topic)
    assert [row["partition"] for row in described["partitions"]] == [0, 1, 2, 3, 4]
    assert cli("topics", "delete", topic) == f"deleted {topic}\n"
    assert topic not in cli("topics", "list")


def test_a_topic_that_exists_is_an_error_unless_that_is_fine(cli: Cli, topic: str) -> None:
    cli("topics", "create", topic)
    cli("topics", "create", topic, code=1)
    assert "--if-not-exists" in cli.err
    assert "exists already" in cli("topics", "create", topic, "--if-not-exists")


def test_a_topic_that_does_not_exist_is_an_error_unless_that_is_fine(cli: Cli) -> None:
    cli("topics", "delete", "nowhere", code=1)
    assert "nowhere" in cli.err
    cli("topics", "delete", "nowhere", "--if-exists")
    cli("topics", "describe", "nowhere", code=1)
    assert "moldau topics list" in cli.err
    cli("topics", "alter", "nowhere", "--partitions", "3", code=1)


def test_a_misspelt_name_is_put_right(cli: Cli, topic: str, tmp_path: Path) -> None:
    cli("topics", "create", topic)
    for command in (("topics", "delete"), ("consume", "--from-beginning"), ("explain", "topic")):
        cli(*command, f"{topic}x", code=1)
        assert f"did you mean {topic}?" in cli.err
    cli("topics", "delete", f"{topic}x", "of-no-likeness", code=1)
    assert cli.err.count("did you mean") == 1
    assert "'of-no-likeness'; `moldau topics list` shows" in cli.err
    cli("produce", topic, "--file", write_lines(tmp_path, "a"))
    group = f"readers-of-{topic}"
    cli("consume", topic, "--group", group, "--from-beginning", "--max-messages", "1")
    cli("groups", "describe", f"{group}x", code=1)
    assert f"did you mean {group}?" in cli.err


def test_a_topic_that_came_with_its_first_record_is_told_of(
    cli: Cli, topic: str, tmp_path: Path
) -> None:
    cli("topics", "create", topic)
    lines = write_lines(tmp_path, "a")
    cli("produce", topic, "--file", lines)
    assert "there was no topic" not in cli.err
    cli("produce", f"{topic}x", "--file", lines)
    created = f"there was no topic {topic}x: it was created, with 1 partition"
    assert f"{created}; did you mean {topic}?" in cli.err


def test_a_bad_name_is_explained(cli: Cli) -> None:
    cli("topics", "create", "bad name", code=1)
    assert "bad name" in cli.err


def test_a_description_fits_into_eighty_columns(cli: Cli, topic: str, tmp_path: Path) -> None:
    cli("topics", "create", topic, "--partitions", "3", "--config", "retention.ms=86400000")
    cli("produce", topic, "--partition", "1", "--file", write_lines(tmp_path, "a", "b"))
    shown = cli("topics", "describe", topic)
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    assert "retention.ms=86400000" in shown
    assert lines[-2].split() == ["1", "1", "1", "1", "0", "2"]


def test_listing_for_machines_says_the_same(cli: Cli, topic: str) -> None:
    cli("topics", "create", topic, "--partitions", "3")
    listed = {row["topic"]: row for row in cli.json("topics", "list")}
    assert listed[topic]["partitions"] == 3
    assert listed[topic]["replication_factor"] == 1
    assert len(listed[topic]["topic_id"]) == 22  # as Kafka writes its ids


# Settings


def test_settings_are_set_shown_and_unset(cli: Cli, topic: str) -> None:
    cli("topics", "create", topic)
    target = ("--topic", topic)
    cli("configs", "alter", *target, "--set", "retention.ms=5", "--set", "cleanup.policy=compact")
    shown = cli("configs", "describe", *target)
    assert "retention.ms" in shown
    assert "dynamic topic" in shown
    cli("configs", "alter", *target, "--unset", "retention.ms")
    (left,) = cli.json("configs", "describe", *target)
    assert (left["name"], left["value"], left["source"]) == (
        "cleanup.policy",
        "compact",
        "DYNAMIC_TOPIC",
    )
    everything = cli.json("configs", "describe", *target, "--all")
    assert len(everything) > 20


def test_settings_of_a_group_are_set_shown_and_unset(cli: Cli) -> None:
    target, name = ("--group", "readers/of all"), "consumer.heartbeat.interval.ms"
    cli("configs", "alter", *target, "--set", f"{name}=7000")
    (entry,) = cli.json("configs", "describe", *target)
    assert (entry["name"], entry["value"], entry["source"]) == (name, "7000", "DYNAMIC_GROUP")
    cli("configs", "alter", *target, "--set", f"{name}=1", code=1)
    assert "group.consumer.min.heartbeat.interval.ms" in cli.err
    cli("configs", "alter", *target, "--unset", name)
    assert cli.json("configs", "describe", *target) == []
    cli("configs", "describe", *target, "--topic", "clicks", code=2)
    assert "--group" in cli.err


def test_wrong_settings_are_explained(cli: Cli, topic: str) -> None:
    cli("topics", "create", topic)
    cli("configs", "alter", "--topic", topic, "--set", "retention.ms=soon", code=1)
    assert "soon" in cli.err
    cli("configs", "alter", "--topic", topic, "--set", "no.such.option=1", code=1)
    assert "no.such.option" in cli.err
    cli("configs", "describe", "--topic", "nowhere", code=1)
    assert "nowhere" in cli.err


def test_a_brokers_settings_are_shown(cli: Cli) -> None:
    assert "num.partitions" in cli("configs", "describe", "--broker", "1")
    cli("configs", "describe", "--broker", "77", code=1)
    assert "77" in cli.err


# Records


def test_what_is_produced_is_consumed(cli: Cli, topic: str, tmp_path: Path) -> None:
    cli("topics", "create", topic, "--partitions", "4")
    lines = [f"key-{n}:value {n}" for n in range(100)]
    account = cli.json(
        *("produce", topic, "--key-separator", ":", "--header", "source=test"),
        *("--file", write_lines(tmp_path, *lines)),
    )
    assert account["records"] == 100
    found = cli.json_lines("consume", topic, "--from-beginning", "--until-end")
    assert sorted(f"{row['key']}:{row['value']}" for row in found) == sorted(lines)
    for row in found:
        assert row["partition"] == partition_for_key(str(row["key"]).encode(), 4)
        assert row["headers"] == [{"key": "source", "value": "test"}]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_codec_and_confirmation_works(
    cli: Cli, topic: str, compression: str, acks: str, tmp_path: Path
) -> None:
    cli("topics", "create", topic)
    file = write_lines(tmp_path, *[f"line {n}" for n in range(50)])
    cli("produce", topic, "--compression", compression, "--acks", acks, "--file", file)
    assert "50 records sent" in cli.err
    shown = cli("consume", topic, "--from-beginning", "--max-messages", "50")
    assert shown.splitlines() == [f"line {n}" for n in range(50)]


def test_reading_begins_where_it_is_told_to(cli: Cli, topic: str, tmp_path: Path) -> None:
    cli("topics", "create", topic)
    cli("produce", topic, "--file", write_lines(tmp_path, *map(str, range(10))))
    consume = ("consume", topic, "--until-end")
    assert cli(*consume, "--offset", "7").split() == ["7", "8", "9"]
    assert cli(*consume, "--offset", "-2").split() == ["8", "9"]
    assert cli(*consume, "--offset", "-999").split() == [str(n) for n in range(10)]
    assert cli(*consume, "--offset", "earliest", "--max-messages", "1").split() == ["0"]
    assert cli(*consume) == ""
    assert cli(*consume, "--timestamp", "0").split() == [str(n) for n in range(10)]
    assert cli(*consume, "--timestamp", "9999999999999") == ""
    assert cli("consume", topic, "--timeout-ms", "50") == ""


def test_an_offset_out_of_range_is_answered_with_the_range(
    cli: Cli, topic: str, tmp_path: Path
) -> None:
    cli("topics", "create", topic)
    cli("produce", topic, "--file", write_lines(tmp_path, "a", "b"))
    cli("consume", topic, "--offset", "99", code=1)
    assert f"{topic}-0 has 0 to 2" in cli.err


def test_only_the_partitions_asked_for_are_read(cli: Cli, topic: str, tmp_path: Path) -> None:
    cli("topics", "create", topic, "--partitions", "3")
    for index in range(3):
        file = write_lines(tmp_path, f"in {index}")
        cli("produce", topic, "--partition", str(index), "--file", file)
    consume = ("consume", topic, "--from-beginning", "--until-end")
    assert cli(*consume, "--partition", "1").splitlines() == ["in 1"]
    shown = cli(*consume, "--partition", "2", "--partition", "0").splitlines()
    assert sorted(shown) == ["in 0", "in 2"]
    cli(*consume, "--partition", "3", code=1)
    assert "it has 3, counted from 0" in cli.err
    cli("produce", topic, "--partition", "3", "--file", file, code=1)
    assert "it has 3, counted from 0" in cli.err


def test_records_are_shown_by_template(cli: Cli, topic: str, tmp_path: Path) -> None:
    cli("topics", "create", topic)
    cli("produce", topic, "--key-separator", "=", "--file", write_lines(tmp_path, "k=v"))
    shown = cli("consume", topic, "--offset", "0", "--max-messages", "1", "--format", "%p/%o %k:%v")
    assert shown == "0/0 k:v\n"


def test_a_topic_is_copied_with_all_that_its_records_have(
    cli: Cli, topic: str, tmp_path: Path
) -> None:
    copy = f"{topic}-copy"
    for name in (topic, copy):
        cli("topics", "create", name, "--partitions", "3")
    given = ("--key-separator", "=", "--header", "a=1", "--header", "a=2", "--partition", "2")
    cli("produce", topic, *given, "--file", write_lines(tmp_path, "k=v", "l=w"))
    consume = ("--from-beginning", "--until-end")
    file = write_lines(tmp_path, *cli("consume", topic, *consume, "--json").splitlines())
    cli("produce", copy, "--format", "json", "--file", file)
    original = cli.json_lines("consume", topic, *consume)
    assert cli.json_lines("consume", copy, *consume) == [{**row, "topic": copy} for row in original]
    assert original[0]["headers"] == [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}]
    assert original[0]["partition"] == 2


@pytest.fixture
def mixed_topic(shared: RunningBroker, topic: str) -> str:
    """A topic with two aborted records, a committed one, and two aborted ones at its end."""
    with moldau.Producer(shared.bootstrap, transactional_id=topic, linger_ms=0) as producer:
        for values in (("a1", "a2"), ("c1",), ("a3", "a4")):
            producer.begin_transaction()
            for value in values:
                producer.send(topic, value.encode()).result(PATIENCE)
            if values == ("c1",):
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    return topic


@pytest.mark.parametrize(
    "form",
    [("--format", "value"), ("--format", "raw"), ("--format", "%v%n"), ("--delimiter", "\\n")],
    ids=["value", "raw", "template", "delimiter"],
)
@pytest.mark.parametrize("group", [(), ("--group", "readers")], ids=["alone", "group"])
def test_only_committed_records_are_printed_in_every_format(
    cli: Cli, mixed_topic: str, form: tuple[str, ...], group: tuple[str, ...]
) -> None:
    words = ("consume", mixed_topic, "--from-beginning", "--until-end", *form)
    own_group = tuple(one.replace("readers", mixed_topic) for one in group)
    assert cli(*words, *own_group).split() == ["c1"]
    printed = cli(*words, "--isolation", "read_uncommitted").replace("\n", "")
    assert printed == "a1a2c1a3a4"


def test_a_copy_by_json_has_no_aborted_records(cli: Cli, mixed_topic: str) -> None:
    rows = cli.json_lines("consume", mixed_topic, "--from-beginning", "--until-end")
    assert [row["value"] for row in rows] == ["c1"]


def test_the_isolation_level_of_the_command_config_is_used(
    cli: Cli, mixed_topic: str, tmp_path: Path
) -> None:
    file = write_lines(tmp_path, "isolation.level=read_uncommitted")
    words = ("consume", mixed_topic, "--from-beginning", "--until-end", "--command-config", file)
    assert cli(*words).split() == ["a1", "a2", "c1", "a3", "a4"]
    assert cli(*words, "--isolation", "read_committed").split() == ["c1"]
    cli(*words, "--isolation", "committed", code=2)
    assert "neither read_committed nor read_uncommitted" in " ".join(cli.err.split())
    file = write_lines(tmp_path, "isolation.level=none")
    cli(*words, code=2)
    assert "isolation.level in --command-config" in " ".join(cli.err.split())


def test_consume_begins_where_the_command_config_says(cli: Cli, topic: str, tmp_path: Path) -> None:
    cli("produce", topic, "--file", write_lines(tmp_path, "a", "b"))
    file = write_lines(tmp_path, "auto.offset.reset=earliest", "group.id=others")
    words = ("consume", topic, "--until-end", "--command-config", file)
    assert cli(*words) == "a\nb\n"
    assert "group.id is ignored: --group others" in cli.err
    assert cli(*words, "--offset", "1") == "b\n"
    write_lines(tmp_path, "auto.offset.reset=none")
    cli(*words, code=2)
    assert "auto.offset.reset=none would change the result" in " ".join(cli.err.split())


@pytest.mark.parametrize(
    ("words", "setting"),
    [
        (("consume", "t"), "interceptor.classes=com.example.Decrypt"),
        (("consume", "t", "--group", "g"), "enable.auto.commit=false"),
        (("consume", "t", "--queue", "q"), "isolation.level=read_committed"),
        (("produce", "t"), "interceptor.classes=com.example.Encrypt"),
        (("produce", "t"), "partitioner.class=com.example.Places"),
        (("produce", "t"), "transactional.id=mine"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else value,
)
def test_settings_that_would_change_the_result_are_refused(
    cli: Cli, tmp_path: Path, words: tuple[str, ...], setting: str
) -> None:
    cli(*words, "--command-config", write_lines(tmp_path, setting), code=2)
    message = " ".join(cli.err.replace("│", " ").split())
    assert setting.split("=")[0] in message
    assert "would change the result and is not supported" in message


def test_unknown_names_of_the_command_config_are_warned_of(cli: Cli, tmp_path: Path) -> None:
    file = write_lines(
        tmp_path, "isolation.levle=read_committed", "acks=all", "key.deserializer=com.example.K"
    )
    cli("topics", "list", "--command-config", file)
    assert cli.err == (
        f"moldau: {file}: unknown setting isolation.levle is ignored; did you mean "
        "isolation.level?\n"
    )


def test_a_line_of_json_may_not_ask_for_a_partition_that_is_not_there(
    cli: Cli, topic: str, tmp_path: Path
) -> None:
    cli("topics", "create", topic)
    file = write_lines(tmp_path, '{"value": "fits"}', '{"value": "v", "partition": 5}')
    cli("produce", topic, "--format", "json", "--file", file, code=1)
    assert "has no partition 5; it has 1, counted from 0" in cli.err


def test_a_tombstone_is_sent_by_its_marker(cli: Cli, topic: str, tmp_path: Path) -> None:
    cli("topics", "create", topic)
    file = write_lines(tmp_path, "k=NULL")
    cli("produce", topic, "--key-separator", "=", "--null-marker", "NULL", "--file", file)
    (row,) = cli.json_lines("consume", topic, "--from-beginning", "--until-end")
    assert (row["key"], row["value"]) == ("k", None)


def test_a_topic_is_made_by_the_first_record(cli: Cli, topic: str, tmp_path: Path) -> None:
    cli("produce", topic, "--file", write_lines(tmp_path, "first"))
    assert "1 record sent" in cli.err
    assert cli("consume", topic, "--from-beginning", "--until-end") == "first\n"


def test_a_topic_that_is_not_there_cannot_be_read(cli: Cli) -> None:
    cli("consume", "nowhere", code=1)
    assert "there is no topic 'nowhere'" in cli.err
    assert "nowhere" not in cli("topics", "list")


def test_an_election_where_there_is_no_partition_is_a_failure_and_nothing_else(
    cli: Cli, topic: str
) -> None:
    cli("topics", "create", topic)
    cli("elect", "preferred", f"{topic}-9", code=1)
    assert f"there is no partition {topic}-9" in cli.err
    assert "no election was needed" not in cli.err
    cli("elect", "preferred", f"{topic}-0")
    assert "no election was needed" in cli.err


def test_a_record_that_is_too_large_is_refused(
    shared: RunningBroker, cli: Cli, topic: str, tmp_path: Path
) -> None:
    cli("topics", "create", topic, "--config", "max.message.bytes=1000")
    file = write_lines(tmp_path, "fits", "x" * 5000)
    # A process of its own: here, what other tests left behind may be complained of meanwhile.
    with process(
        *("produce", topic, "--batch-size", "10", "--file", file),
        *("--bootstrap", shared.bootstrap),
    ) as producing:
        _, told = producing.communicate(timeout=PATIENCE)
    assert producing.returncode == 1, told
    assert b"1 record sent" in told
    assert b"line 2: a record of about " in told
    assert b"Traceback" not in told


def test_a_rate_changes_how_fast_records_go_but_not_which(
    cli: Cli, topic: str, tmp_path: Path
) -> None:
    cli("topics", "create", topic)
    lines = [str(number) for number in range(20)]
    cli("produce", topic, "--rate", "200", "--file", write_lines(tmp_path, *lines))
    assert cli("consume", topic, "--from-beginning", "--until-end").split() == lines


def test_the_files_of_the_broker_can_be_dumped(
    cli: Cli,
    topic: str,
    tmp_path: Path,
    shared: RunningBroker,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    cli("topics", "create", topic)
    cli("produce", topic, "--file", write_lines(tmp_path, "one", "two"))
    (segment,) = (shared.data_folder / f"{topic}-0").glob("*.log")
    assert run(["log", "dump", str(segment), "--records", "--json"]) == 0
    (batch,) = map(json.loads, capsysbinary.readouterr().out.splitlines())
    assert [record["value"] for record in batch["records"]] == ["one", "two"]


# Processes


def test_a_pipe_is_read_to_its_end(shared: RunningBroker, cli: Cli, topic: str) -> None:
    cli("topics", "create", topic)
    with process(
        *("produce", topic, "--bootstrap", shared.bootstrap),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as producing:
        out, err = producing.communicate(b"one\ntwo\nthree", timeout=PATIENCE)
    assert producing.returncode == 0
    assert out == b""
    assert err.decode() == f"3 records sent to {topic} (partition 0)\n"
    shown = cli("consume", topic, "--from-beginning", "--until-end")
    assert shown.splitlines() == ["one", "two", "three"]


def test_a_line_is_sent_while_the_pipe_stays_open(
    shared: RunningBroker, cli: Cli, topic: str
) -> None:
    cli("topics", "create", topic)
    with process(
        *("produce", topic, "--bootstrap", shared.bootstrap),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as producing:
        assert producing.stdin is not None
        producing.stdin.write(b"now\n")
        producing.stdin.flush()
        shown = cli("consume", topic, "--from-beginning", "--max-messages", "1")
        assert shown == "now\n"
        assert producing.poll() is None


def read_until_prompt(terminal: int) -> None:
    shown = b""
    while b"> " not in shown:
        shown += os.read(terminal, 1000)


def read_all(terminal: int) -> bytes:
    """What was shown until nobody had the terminal any more."""
    shown = b""
    with contextlib.suppress(OSError):  # that is its end
        while piece := os.read(terminal, 1000):
            shown += piece
    return shown


def test_lines_typed_at_a_terminal_are_sent(shared: RunningBroker, cli: Cli, topic: str) -> None:
    cli("topics", "create", topic)
    ours, theirs = pty.openpty()
    with process(
        *("produce", topic, "--bootstrap", shared.bootstrap), stdin=theirs, stdout=theirs
    ) as producing:
        os.close(theirs)
        read_until_prompt(ours)
        os.write(ours, b"typed\n")
        assert cli("consume", topic, "--from-beginning", "--max-messages", "1") == "typed\n"
        read_until_prompt(ours)
        os.write(ours, b"\x04")
        _, err = producing.communicate(timeout=PATIENCE)
    os.close(ours)
    assert producing.returncode == 0
    assert b"1 record sent" in err


@pytest.mark.parametrize(("answer", "code"), [(b"n", 1), (b"y", 0)])
def test_a_topic_is_deleted_at_a_terminal_by_who_says_yes(
    shared: RunningBroker, cli: Cli, topic: str, answer: bytes, code: int
) -> None:
    cli("topics", "create", topic)
    ours, theirs = pty.openpty()
    with process(
        *("topics", "delete", topic, "--bootstrap", shared.bootstrap), stdin=theirs, stderr=theirs
    ) as it:
        os.close(theirs)
        os.write(ours, answer + b"\n")
        it.communicate(timeout=PATIENCE)
    shown = read_all(ours)
    os.close(ours)
    assert it.returncode == code
    assert f"Delete {topic} with all records? [y/N]".encode() in shown
    assert (topic in cli("topics", "list")) == (code == 1)


def test_a_question_that_nobody_would_see_is_not_waited_for(
    shared: RunningBroker, cli: Cli, topic: str
) -> None:
    cli("topics", "create", topic)
    ours, theirs = pty.openpty()
    with process(*("topics", "delete", topic, "--bootstrap", shared.bootstrap), stdin=theirs) as it:
        os.close(theirs)
        _, err = it.communicate(timeout=PATIENCE)
    os.close(ours)
    assert it.returncode == 2
    assert b"stderr is no terminal: give --yes" in err
    assert topic in cli("topics", "list")


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_at_the_prompt_ends_its_line(shared: RunningBroker, cli: Cli, topic: str) -> None:
    cli("topics", "create", topic)
    ours, theirs = pty.openpty()
    with process(
        *("produce", topic, "--bootstrap", shared.bootstrap), stdin=theirs, stdout=theirs
    ) as producing:
        os.close(theirs)
        read_until_prompt(ours)

        def press() -> bool:
            """As a person does: again when nothing happens. Between the prompt and the moment in
            which readline begins to wait, the signal is seen with the next key only."""
            producing.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                producing.wait(5)
            return producing.returncode is not None

        eventually(press, "Ctrl-C ends the command")
        _, err = producing.communicate(timeout=PATIENCE)
        assert os.read(ours, 1000).endswith(b"\n")
    os.close(ours)
    assert producing.returncode == 130
    assert err == f"0 records sent to {topic}\n".encode()


def test_a_reader_that_has_enough_ends_consuming_quietly(
    shared: RunningBroker, cli: Cli, topic: str, tmp_path: Path
) -> None:
    cli("produce", topic, "--file", write_lines(tmp_path, *["x" * 1000] * 2000))
    with process(
        *("-q", "consume", topic, "--from-beginning", "--bootstrap", shared.bootstrap),
        stdout=subprocess.PIPE,
    ) as consuming:
        assert consuming.stdout is not None
        assert consuming.stdout.readline() == b"x" * 1000 + b"\n"
        consuming.stdout.close()
        assert consuming.stderr is not None
        err = consuming.stderr.read()
        assert consuming.wait(PATIENCE) == 141
    assert err == b""


@pytest.mark.parametrize("is_member", [False, True], ids=["alone", "member"])
def test_a_reader_that_has_enough_is_noticed_though_nothing_comes_any_more(
    shared: RunningBroker, cli: Cli, topic: str, tmp_path: Path, is_member: bool
) -> None:
    group = ("--group", topic) if is_member else ()
    cli("produce", topic, "--file", write_lines(tmp_path, "only"))
    with process(
        *("-q", "consume", topic, "--from-beginning", *group, "--bootstrap", shared.bootstrap),
        stdout=subprocess.PIPE,
    ) as consuming:
        assert consuming.stdout is not None
        assert consuming.stdout.readline() == b"only\n"
        consuming.stdout.close()
        assert consuming.stderr is not None
        err = consuming.stderr.read()
        assert consuming.wait(PATIENCE) == 141
    assert err == b""
    if is_member:
        (described,) = cli.json("groups", "describe", topic)
        (row,) = described["offsets"]
        assert row["committed_offset"] == 1  # what was printed


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_consuming_quietly(
    shared: RunningBroker, cli: Cli, topic: str, tmp_path: Path
) -> None:
    cli("produce", topic, "--file", write_lines(tmp_path, "there"))
    with process(
        *("-q", "consume", topic, "--from-beginning", "--bootstrap", shared.bootstrap),
        stdout=subprocess.PIPE,
    ) as consuming:
        assert consuming.stdout is not None
        assert consuming.stdout.readline() == b"there\n"
        consuming.send_signal(signal.SIGINT)
        _, err = consuming.communicate(timeout=PATIENCE)
    assert consuming.returncode == 130
    assert err == b""


@contextlib.contextmanager
def started_broker(
    folder: Path, *arguments: str, listen: str = ""
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A broker as a process of its own, and its address."""
    address = listen or f"127.0.0.1:{take_port()}"
    with process(
        *("start", "--data-dir", str(folder), "--listen", address, *arguments),
        stdout=subprocess.PIPE,
    ) as running:
        assert running.stdout is not None
        line = running.stdout.readline().decode()
        assert line.startswith("listening on 127.0.0.1:")
        yield running, line.removeprefix("listening on ").strip()


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_broker_says_where_it_listens_and_stops_when_told(
    number: signal.Signals, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    with started_broker(tmp_path / "data", "--broker-id", "7") as (running, address):
        cli = Cli(address, capsysbinary)
        cli("topics", "create", "clicks")
        (described,) = cli.json("topics", "describe", "clicks")
        assert described["partitions"][0]["leader"] == 7
        running.send_signal(number)
        out, err = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0
    assert (out, err) == (b"", b"")


def test_producing_survives_a_broker_that_is_killed_and_comes_back(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    before = [f"before {number}" for number in range(500)]
    after = [f"after {number}" for number in range(500)]
    with contextlib.ExitStack() as stack:
        first, address = stack.enter_context(started_broker(tmp_path / "data"))
        cli = Cli(address, capsysbinary)
        cli("topics", "create", "clicks", "--partitions", "3")
        producing = stack.enter_context(
            process("produce", "clicks", "--bootstrap", address, stdin=subprocess.PIPE)
        )
        assert producing.stdin is not None
        producing.stdin.write("".join(f"{line}\n" for line in before).encode())
        producing.stdin.flush()
        cli("consume", "clicks", "--from-beginning", "--max-messages", "500")
        first.kill()
        first.wait()
        producing.stdin.write("".join(f"{line}\n" for line in after).encode())
        producing.stdin.flush()
        stack.enter_context(started_broker(tmp_path / "data", listen=address))
        producing.communicate(timeout=PATIENCE)
        assert producing.returncode == 0
        shown = cli("consume", "clicks", "--from-beginning", "--until-end")
    assert sorted(shown.splitlines()) == sorted(before + after)


def test_a_second_broker_on_the_same_folder_or_port_is_refused(tmp_path: Path) -> None:
    with started_broker(tmp_path / "data") as (_, address):
        for arguments, words in (
            (("--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0"), "--data-dir"),
            (("--data-dir", str(tmp_path / "other"), "--listen", address), "--listen"),
        ):
            done = subprocess.run(
                [*COMMAND, "start", *arguments],
                capture_output=True,
                timeout=PATIENCE,
                check=False,
            )
            assert done.returncode == 1
            assert done.stdout == b""
            assert words in done.stderr.decode()
            assert "Traceback" not in done.stderr.decode()


def test_a_broker_is_configured_by_file_set_and_flag(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    config = tmp_path / "server.properties"
    config.write_text("num.partitions=3\nbroker.id=1\ntypo.in.this=1\nlog.retention.hours=5\n")
    arguments = ("--config", str(config), "--set", "broker.id=2", "--set", "num.partitions=6")
    with started_broker(tmp_path / "data", *arguments, "--broker-id", "4") as (running, address):
        cli = Cli(address, capsysbinary)
        cli("topics", "create", "clicks")
        (described,) = cli.json("topics", "describe", "clicks")
        assert len(described["partitions"]) == 6
        assert described["partitions"][0]["leader"] == 4
        running.send_signal(signal.SIGTERM)
        _, err = running.communicate(timeout=PATIENCE)
    assert "server.properties line 3: typo.in.this" in err.decode()


def test_a_wrong_value_stops_the_start_with_its_line(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text("num.partitions=1\nlog.segment.bytes=much\n")
    done = subprocess.run(
        [*COMMAND, "start", "--config", str(config), "--data-dir", str(tmp_path / "data")],
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.decode() == (
        "moldau: server.properties line 2: log.segment.bytes=much is not a whole number\n"
    )
