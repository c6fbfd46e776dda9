"""What `moldau produce` and `moldau consume` say while they wait for a broker, and that it is all
that happens: nothing is lost, nothing comes twice, and stdout holds data alone."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.client.admin.values import NewTopic
from moldau.client.blocking import Admin, Producer
from support.broker_process import BrokerProcess, broker_process
from support.command_line import PATIENCE, start_process, write_lines
from support.waiting import eventually


class Command:
    """A command as a process, what it prints in files."""

    def __init__(self, folder: Path, *arguments: str, reads: bool = False) -> None:
        self._out, self._err = folder / "command.out", folder / "command.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = start_process(
                *arguments,
                stdin=subprocess.PIPE if reads else subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    @property
    def out(self) -> list[str]:
        return self._out.read_text().splitlines()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def write(self, *lines: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("".join(f"{line}\n" for line in lines).encode())
        self.process.stdin.flush()

    def wait_until_says(self, words: str) -> None:
        eventually(lambda: words in self.err, lambda: f"{words!r} is not in {self.err!r}")

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def end(self) -> int:
        if self.process.stdin is not None:
            self.process.stdin.close()
        return self.process.wait(PATIENCE)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[BrokerProcess]:
    with broker_process(tmp_path / "broker") as broker:
        yield broker.start()


@pytest.fixture
def commands(tmp_path: Path, running: BrokerProcess) -> Iterator[list[Command]]:
    started: list[Command] = []
    yield started
    for command in started:
        command.process.kill()
        command.end()


def read_all(broker: BrokerProcess, topic: str, folder: Path) -> list[str]:
    reading = Command(
        folder,
        *("consume", topic, "--from-beginning", "--until-end", "--bootstrap", broker.bootstrap),
    )
    assert reading.end() == 0, reading.err
    return reading.out


def test_produce_says_that_a_killed_broker_is_away_and_when_it_is_back(
    running: BrokerProcess, commands: list[Command], tmp_path: Path
) -> None:
    producing = Command(tmp_path, "produce", "clicks", "--bootstrap", running.bootstrap, reads=True)
    commands.append(producing)
    producing.write("one", "two")
    (tmp_path / "first").mkdir()
    eventually(
        lambda: read_all(running, "clicks", tmp_path / "first") == ["one", "two"], "two records"
    )
    running.kill()
    producing.write("three")
    producing.wait_until_says(f"moldau: no broker answers at {running.bootstrap} (Connection refu")
    producing.write("four")
    running.start()
    producing.wait_until_says(f"moldau: {running.bootstrap} answers again, after ")
    assert producing.end() == 0, producing.err
    assert "4 records sent to clicks" in producing.err
    assert producing.out == []
    assert read_all(running, "clicks", tmp_path / "first") == ["one", "two", "three", "four"]


def test_produce_says_that_a_stopped_broker_does_not_answer(
    running: BrokerProcess, commands: list[Command], tmp_path: Path
) -> None:
    with Admin(running.bootstrap) as admin:  # whoever reads may be there before who writes
        admin.create_topics([NewTopic(name="clicks")])
    producing = Command(tmp_path, "produce", "clicks", "--bootstrap", running.bootstrap, reads=True)
    commands.append(producing)
    producing.write("one")
    (tmp_path / "first").mkdir()
    eventually(lambda: read_all(running, "clicks", tmp_path / "first") == ["one"], "a record")
    running.send_signal(signal.SIGSTOP)
    try:
        producing.write("two")
        producing.wait_until_says(f"moldau: {running.bootstrap} has not answered for ")
    finally:
        running.send_signal(signal.SIGCONT)
    producing.wait_until_says(f"moldau: {running.bootstrap} answers again, after ")
    assert producing.end() == 0, producing.err
    assert read_all(running, "clicks", tmp_path / "first") == ["one", "two"]


@pytest.mark.parametrize("group", [(), ("--group", "readers")], ids=["alone", "in a group"])
def test_consume_says_that_a_broker_is_away_and_goes_on_when_it_is_back(
    running: BrokerProcess, commands: list[Command], tmp_path: Path, group: tuple[str, ...]
) -> None:
    with Producer(running.bootstrap) as producer:
        producer.send_many("clicks", [b"one", b"two"])
        consuming = Command(
            tmp_path,
            *("consume", "clicks", "--from-beginning", *group, "--bootstrap", running.bootstrap),
        )
        commands.append(consuming)
        eventually(lambda: consuming.out == ["one", "two"], lambda: consuming.err)
        running.kill()
        consuming.wait_until_says(
            f"moldau: no broker answers at {running.bootstrap} (Connection refused); trying again"
        )
        running.start()
        producer.send("clicks", b"three")
        eventually(lambda: consuming.out == ["one", "two", "three"], lambda: consuming.err)
    consuming.wait_until_says(f"moldau: {running.bootstrap} answers again, after ")
    assert consuming.err.count("trying again") == 1, consuming.err
    consuming.process.send_signal(signal.SIGTERM)
    assert consuming.end() == 143


def test_consume_says_that_a_stopped_broker_does_not_answer(
    running: BrokerProcess, commands: list[Command], tmp_path: Path
) -> None:
    with Producer(running.bootstrap) as producer:
        producer.send("clicks", b"one")
    consuming = Command(
        tmp_path, "consume", "clicks", "--from-beginning", "--bootstrap", running.bootstrap
    )
    commands.append(consuming)
    eventually(lambda: consuming.out == ["one"], lambda: consuming.err)
    running.send_signal(signal.SIGSTOP)
    try:
        consuming.wait_until_says(f"moldau: {running.bootstrap} has not answered for ")
    finally:
        running.send_signal(signal.SIGCONT)
    consuming.wait_until_says(f"moldau: {running.bootstrap} answers again, after ")
    assert consuming.out == ["one"]


def test_produce_that_is_told_to_end_while_the_broker_is_away_says_what_was_not_sent(
    running: BrokerProcess, commands: list[Command], tmp_path: Path
) -> None:
    with Producer(running.bootstrap) as producer:
        producer.send("clicks", b"zero").result()
    producing = Command(tmp_path, "produce", "clicks", "--bootstrap", running.bootstrap, reads=True)
    commands.append(producing)
    producing.write("one")
    (tmp_path / "first").mkdir()
    eventually(lambda: len(read_all(running, "clicks", tmp_path / "first")) == 2, "two records")
    running.kill()
    producing.write("two")
    producing.wait_until_says("trying again")
    producing.process.send_signal(signal.SIGTERM)
    producing.wait_until_says("moldau: not all is confirmed; waiting ")
    producing.process.send_signal(signal.SIGTERM)
    assert producing.process.wait(PATIENCE) == 143
    assert "1 record sent to clicks" in producing.err
    assert "not confirmed: 1 record" in producing.err
    assert "Traceback" not in producing.err


def test_a_broker_that_is_killed_in_the_middle_of_a_file_costs_no_line_and_repeats_none(
    running: BrokerProcess, commands: list[Command], tmp_path: Path
) -> None:
    with Producer(running.bootstrap) as producer:
        producer.partition_count("clicks")
    lines = [f"{number} {'x' * 400}" for number in range(50_000)]
    producing = Command(
        tmp_path,
        *("produce", "clicks", "--bootstrap", running.bootstrap),
        *("--file", write_lines(tmp_path, *lines)),
    )
    commands.append(producing)
    eventually(lambda: has_records(running) or not producing.is_running, "it sends nothing")
    running.kill()
    running.start()
    assert producing.end() == 0, producing.err
    (tmp_path / "first").mkdir()
    assert read_all(running, "clicks", tmp_path / "first") == lines


def has_records(broker: BrokerProcess) -> bool:
    return any(one.stat().st_size for one in broker.data_folder.glob("clicks-0/*.log"))
