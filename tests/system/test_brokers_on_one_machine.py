"""`moldau start --brokers N`: processes that share one machine and one store, without Java.

Whatever happens to the processes, every acknowledged record is there exactly once (R7), a broker
that is dead comes back, and nothing is left running that nobody looks after.
"""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

import moldau
from moldau.broker.broker_places import PID_FILE, plan_places
from moldau.broker.supervisor import SupervisedBroker, Supervisor
from moldau.clock import MachineClock
from moldau.config.broker_options import BrokerOptions
from moldau.coordination.served.server import SOCKET_NAME
from moldau.errors import InvariantViolation
from moldau.storage.files import RealFiles
from moldau.storage.rules.file_names import LOCK_FILE
from moldau.testing.free_ports import take_port
from moldau.workers import ThreadWorkers
from support.broker_process import (
    BrokerProcess,
    broker_process,
    moldau_command,
    write_hostile_modules,
)
from support.cluster_processes import SESSION_TIMEOUT_MS
from support.cluster_traffic import traffic_on
from support.confluent_client import consume, consumer, produce
from support.rows import Row
from support.supervised_brokers import SupervisedBrokers, is_alive, supervised_brokers
from support.waiting import PATIENCE_SECONDS, eventually

Show = Callable[[str], None]


@pytest.fixture
def brokers(folder: Path) -> Iterator[SupervisedBrokers]:
    """Three that serve."""
    with supervised_brokers(folder) as running:
        running.start()
        yield running


def test_three_brokers_are_one_cluster_and_end_without_a_trace(brokers: SupervisedBrokers) -> None:
    assert brokers.supervisor.output.startswith(f"listening on {brokers.bootstrap}\n")
    for number in brokers.broker_ids:
        assert f"broker {number} at 127.0.0.1:" in brokers.supervisor.output
    topic = brokers.create_topic(6)
    assert {view.replicas[0] for view in brokers.views(topic).values()} == {1, 2, 3}
    produce(brokers.bootstrap, topic, [Row(None, b"a")])
    consume(brokers.bootstrap, topic, 1)
    socket = brokers.supervisor.data_folder / "coordination.sock"
    assert stat.S_IMODE(socket.stat().st_mode) == 0o600
    pids = [brokers.pid_of(number) for number in brokers.broker_ids]
    assert brokers.supervisor.stop() == 0
    assert not any(map(is_alive, pids))
    assert not socket.exists()
    assert list(brokers.supervisor.data_folder.rglob("*.pid")) == []


# kill -9


def test_brokers_are_killed_in_turn(brokers: SupervisedBrokers, show_figure: Show) -> None:
    with traffic_on(brokers, show_figure) as (topic, traffic):
        for number in brokers.broker_ids:
            was_controller = brokers.controller() == number
            brokers.kill(number)
            brokers.wait_until_led_by_another(topic, number)
            if was_controller:
                eventually(lambda: brokers.controller() != number, "another controller")  # noqa: B023
            traffic.wait_until_it_flows()
            brokers.wait_until_registered(number)
            brokers.wait_until_whole()
    assert brokers.supervisor.output.count("was ended by SIGKILL; it is started again") == 3


def test_our_own_producer_loses_and_doubles_nothing_meanwhile(brokers: SupervisedBrokers) -> None:
    topic = brokers.create_topic(3)
    sent: list[bytes] = []
    with moldau.Producer(brokers.bootstrap, delivery_timeout_ms=60_000) as producer:
        for number in brokers.broker_ids:
            pid = brokers.signal_broker(number, signal.SIGKILL)  # and nobody waits for its end
            promises = []
            for _ in range(300):
                value = b"%06d" % len(sent)
                sent.append(value)
                promises.append(producer.send(topic, key=value, value=value))
            for promise in promises:
                promise.result(PATIENCE_SECONDS)
            eventually(lambda: not is_alive(pid), "it is dead")  # noqa: B023
            brokers.wait_until_registered(number)
            brokers.wait_until_whole()
    got: list[bytes | None] = []
    for partition in range(3):
        with consumer(brokers.bootstrap) as client:
            _, end = client.get_watermark_offsets(TopicPartition(topic, partition))
        got += [one.value for one in consume(brokers.bootstrap, topic, end, partition=partition)]
    assert sorted(got) == sent


def test_the_supervisor_is_killed_and_started_again(
    brokers: SupervisedBrokers, show_figure: Show
) -> None:
    with traffic_on(brokers, show_figure) as (_, traffic):
        pids = brokers.kill_supervisor()
        brokers.start()  # at once: it waits for the brokers that are ending
        assert not any(map(is_alive, pids))
        traffic.wait_until_it_flows()


def test_brokers_do_not_outlive_a_supervisor_that_was_killed(brokers: SupervisedBrokers) -> None:
    pids = brokers.kill_supervisor()
    eventually(lambda: not any(map(is_alive, pids)), "they end by themselves")
    assert "the supervisor of this broker has ended" in brokers.supervisor.output


def test_the_socket_of_the_store_is_removed_and_a_broker_killed(
    brokers: SupervisedBrokers, show_figure: Show
) -> None:
    """By whoever cleans up old files: a broker that is started finds the store all the same."""
    with traffic_on(brokers, show_figure) as (_, traffic):
        socket = brokers.supervisor.data_folder / SOCKET_NAME
        socket.unlink()
        brokers.kill(2)
        eventually(socket.exists, "it is made again")
        brokers.wait_until_registered(2)
        traffic.wait_until_it_flows()
        assert stat.S_IMODE(socket.stat().st_mode) == 0o600
        assert "was removed: the coordination store listens there again" in (
            brokers.supervisor.output
        )


# Processes that stand still


def test_a_leader_is_paused_beyond_its_session(
    brokers: SupervisedBrokers, show_figure: Show
) -> None:
    with traffic_on(brokers, show_figure) as (topic, traffic):
        leader = brokers.view(topic).leader
        brokers.signal_broker(leader, signal.SIGSTOP)
        brokers.wait_until_led_by_another(topic, leader)
        assert leader not in brokers.registered()
        traffic.wait_until_it_flows()
        brokers.signal_broker(leader, signal.SIGCONT)
        brokers.wait_until_registered(leader)


def test_the_supervisor_is_paused_beyond_all_sessions(
    brokers: SupervisedBrokers, show_figure: Show
) -> None:
    """Nobody leads without a lease; afterwards everybody does, in the same session."""
    with traffic_on(brokers, show_figure) as (_, traffic):
        sessions = brokers.sessions()
        os.kill(brokers.supervisor.pid, signal.SIGSTOP)
        time.sleep(1.5 * SESSION_TIMEOUT_MS / 1000)
        os.kill(brokers.supervisor.pid, signal.SIGCONT)
        traffic.wait_until_it_flows()
        assert brokers.sessions() == sessions


# On purpose


def test_a_broker_that_is_stopped_alone_hands_over_and_comes_back(
    brokers: SupervisedBrokers, show_figure: Show
) -> None:
    with traffic_on(brokers, show_figure) as (topic, traffic):
        for number in brokers.broker_ids:
            pid = brokers.signal_broker(number, signal.SIGTERM)
            eventually(lambda: not is_alive(pid), "it has ended")  # noqa: B023
            brokers.wait_until_registered(number)
            brokers.wait_until_whole()
            traffic.wait_until_it_flows()
        assert traffic.unexpected_errors() == []
        assert len(brokers.views(topic)) == 3


def test_the_first_may_be_alone_before_and_the_others_are_not_left_out_after(folder: Path) -> None:
    with broker_process(folder / "alone", data_folder=folder / "data") as alone:
        alone.start()
        produce(alone.bootstrap, "old", [Row(None, b"alone")])
        assert alone.stop() == 0
    with supervised_brokers(folder) as brokers:
        brokers.start()
        assert [one.value for one in consume(brokers.bootstrap, "old", 1)] == [b"alone"]
        with consumer(brokers.bootstrap) as client:
            # Asks for a coordinator, and so for its topic, and waits for the answer.
            client.committed([TopicPartition("old", 0)], timeout=PATIENCE_SECONDS)
        topic = brokers.create_topic(3)
        produce(brokers.bootstrap, topic, [Row(None, b"three")])
        assert brokers.supervisor.stop() == 0
        for arguments in ((), ("--brokers", "2")):
            refused = BrokerProcess(
                folder / "refused", data_folder=folder / "data", arguments=arguments
            )
            refused.launch()
            assert refused.wait() == 1
            assert "start with --brokers 3" in refused.output
            assert topic in refused.output
        brokers.start()
        move_to_the_first(brokers, topic, folder / "plan.json")
        assert brokers.supervisor.stop() == 0
    with broker_process(folder / "again", data_folder=folder / "data") as alone:
        alone.start()
        for name, value in (("old", b"alone"), (topic, b"three")):
            assert [one.value for one in consume(alone.bootstrap, name, 1)] == [value]


def move_to_the_first(brokers: SupervisedBrokers, topic: str, plan: Path) -> None:
    """As the refusal says."""

    def reassign(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            moldau_command("reassign", *arguments, "--bootstrap", brokers.bootstrap),
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    topics = (topic, "__consumer_offsets")  # which a consumer has asked for
    planned = reassign("plan", *topics, "--brokers", "1", "--replication-factor", "1")
    assert planned.returncode == 0, planned.stderr
    plan.write_text(planned.stdout)
    executed = reassign("execute", "--plan", str(plan))
    assert executed.returncode == 0, executed.stderr
    eventually(lambda: not reassign("verify", "--plan", str(plan)).returncode, "all is moved")


def test_a_folder_is_served_by_one_supervisor_or_one_broker_at_a_time(
    brokers: SupervisedBrokers, folder: Path
) -> None:
    for arguments in ((), ("--brokers", "3")):
        other = BrokerProcess(
            folder / "other", data_folder=brokers.supervisor.data_folder, arguments=arguments
        )
        other.launch()
        assert other.wait() == 1
        assert "another" in other.output
    assert brokers.registered() == {1, 2, 3}


def test_a_long_path_is_no_obstacle(folder: Path) -> None:
    deep = folder / ("a" * 60) / ("b" * 60)
    with supervised_brokers(deep, 2) as brokers:
        brokers.start()
        produce(brokers.bootstrap, "t", [Row(None, b"deep")])
        assert brokers.supervisor.stop() == 0


def test_files_in_the_working_directory_are_no_part_of_the_brokers(
    folder: Path, tmp_path: Path
) -> None:
    there = ("env", "-C", str(write_hostile_modules(tmp_path)))
    with broker_process(folder, arguments=("--brokers", "1"), inside=there) as supervisor:
        supervisor.start()
        assert supervisor.stop() == 0


def test_what_cannot_be_started_is_explained_and_leaves_nothing(folder: Path) -> None:
    with supervised_brokers(folder, settings={"num.partitions": "many"}) as brokers:
        brokers.launch()
        assert brokers.supervisor.wait() == 1
        assert "num.partitions" in brokers.supervisor.output
    taken = BrokerProcess(folder / "taken")
    with supervised_brokers(folder / "late") as brokers:
        taken.port = brokers.supervisor.port + 1
        taken.start()
        brokers.launch()
        assert brokers.supervisor.wait() == 1
        assert "Address already in use" in brokers.supervisor.output
        assert not any(brokers.find_pid(number) for number in brokers.broker_ids)
        assert taken.stop() == 0


def test_a_pid_file_that_cannot_be_written_leaves_no_broker_without_a_supervisor(
    folder: Path,
) -> None:
    with supervised_brokers(folder, 2) as brokers:
        (brokers.data_folder(1) / PID_FILE).mkdir(parents=True)  # as on a disk that is full
        brokers.start()
        assert brokers.registered() == {1, 2}
        assert brokers.supervisor.stop() == 0


_FULL_DISK = ("sh", "-c", 'exec "$@" 2>/dev/full', "sh")
_CLOSED_PIPE = (
    sys.executable,
    "-c",
    "import os, sys\n"
    "reader, writer = os.pipe()\n"
    "os.close(reader)\n"
    "os.dup2(writer, 2)\n"
    "os.execvp(sys.argv[1], sys.argv[1:])",
)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("inside", [_FULL_DISK, _CLOSED_PIPE], ids=["full disk", "closed pipe"])
def test_a_dead_broker_is_started_again_when_standard_error_cannot_be_written(
    folder: Path, inside: Sequence[str]
) -> None:
    with supervised_brokers(folder, 2, inside=inside) as brokers:
        brokers.start()
        for number in brokers.broker_ids:
            pid = brokers.pid_of(number)
            brokers.kill(number)
            eventually(lambda: brokers.pid_of(number) != pid, "it is started again")  # noqa: B023
            brokers.wait_until_registered()


def kill_first(brokers: Sequence[SupervisedBroker]) -> None:
    os.kill(brokers[0].process_id, signal.SIGKILL)


def cancel_first(brokers: Sequence[SupervisedBroker]) -> None:
    (keeper,) = (task for task in asyncio.all_tasks() if task.get_name() == brokers[0].name)
    keeper.cancel()


@pytest.mark.parametrize(
    ("end_first", "error", "said"),
    [
        (kill_first, LookupError, "was ended by SIGKILL"),
        (cancel_first, InvariantViolation, "the task that starts broker 1 again has ended"),
    ],
    ids=["it fails", "it is cancelled"],
)
def test_a_supervisor_whose_task_ends_stops_its_brokers_and_raises_an_error(
    folder: Path,
    end_first: Callable[[Sequence[SupervisedBroker]], None],
    error: type[Exception],
    said: str,
) -> None:
    port = take_port(1)
    options = BrokerOptions.resolve(
        {"log.dirs": str(folder), "listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    )
    pids: list[int] = []

    def report(text: str) -> None:
        raise LookupError(text)  # not an OSError: a defect of the supervisor itself

    def when_ready(brokers: Sequence[SupervisedBroker]) -> None:
        pids.extend(broker.process_id for broker in brokers)
        end_first(brokers)

    workers = ThreadWorkers(1)
    supervisor = Supervisor(
        plan_places(options, 2, 1),
        lambda place, path: ("sh", "-c", "echo listening on nothing; exec sleep 600"),
        clock=MachineClock(),
        files=RealFiles(),
        workers=workers,
        say=report,
    )

    async def run() -> None:
        await asyncio.wait_for(supervisor.run(when_ready), PATIENCE_SECONDS)

    try:
        with pytest.raises(error, match=said):
            asyncio.run(run())
    finally:
        workers.close()
    assert len(pids) == 2
    assert not any(map(is_alive, pids))


def test_a_supervisor_that_waits_for_a_folder_can_be_stopped(folder: Path) -> None:
    with supervised_brokers(folder, 2) as brokers:
        brokers.data_folder(1).mkdir(parents=True)
        lock = RealFiles().lock(brokers.data_folder(1) / LOCK_FILE)
        assert lock is not None
        brokers.launch()
        eventually(lambda: "waiting for the broker" in brokers.supervisor.output, "it waits")
        assert brokers.supervisor.stop() == 0
        assert "another broker" not in brokers.supervisor.output
        lock.release()


def test_a_thousand_partitions_have_leaders_again_after_a_death(folder: Path) -> None:
    with supervised_brokers(folder, 2) as brokers:
        brokers.start()
        topic = brokers.create_topic(1_000)
        brokers.kill(2)
        brokers.wait_until_registered(2)
        brokers.wait_until_whole()
        produce(brokers.bootstrap, topic, [Row(None, b"%d" % number) for number in range(100)])
        assert len(consume(brokers.bootstrap, topic, 100)) == 100
