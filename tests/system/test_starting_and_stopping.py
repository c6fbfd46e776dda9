"""Starting, stopping, and being refused: what a person at a terminal meets."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

from moldau.testing.free_ports import take_port
from support import confluent_client
from support.broker_process import BrokerProcess, broker_process, moldau_command
from support.ctrl_c import ctrl_c_ignored
from support.load import Load, assert_log_is_what_was_sent
from support.requests import full_request, minimal_request
from support.rows import numbered_rows, rows_of
from support.topics import Topics
from support.waiting import PATIENCE_SECONDS, eventually
from support.wire_client import WireClient, request_frame

CLEAN_MARKER = ".kafka_cleanshutdown"


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_a_stop_is_clean_and_the_restart_has_everything(broker: BrokerProcess, number: int) -> None:
    rows = numbered_rows(1_000)
    broker.start()
    topics = Topics(broker.bootstrap)
    topic = topics.create(2)
    confluent_client.produce(broker.bootstrap, topic, rows, partition=1)
    described = topics.describe(topic)

    assert broker.stop(number) == 0
    assert (broker.data_folder / CLEAN_MARKER).exists()
    broker.start()

    assert Topics(broker.bootstrap).describe(topic) == described
    assert rows_of(confluent_client.consume(broker.bootstrap, topic, 1_000, partition=1)) == rows
    assert confluent_client.produce(broker.bootstrap, topic, rows[:1], partition=1) == [1_000]


@pytest.mark.usefixtures("ctrl_c")
def test_a_stop_under_load_loses_nothing(broker: BrokerProcess) -> None:
    broker.start()
    topic = Topics(broker.bootstrap).create(2, {"internal.segment.bytes": "50000"})
    with Load(broker.bootstrap, topic, 2) as load:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            load.wait_for_more(700)
            assert broker.stop(number) == 0
            broker.start()
        load.wait_for_more(100)
        load.finish()
    assert_log_is_what_was_sent(broker.bootstrap, topic, load)


def test_clients_that_wait_do_not_hold_up_a_stop(broker: BrokerProcess) -> None:
    """A long poll of ten minutes, a connection that says nothing, one that does not read."""
    broker.start()
    topic = Topics(broker.bootstrap).create()
    poll = {"topic": topic, "max_wait": timedelta(minutes=10), "min_bytes": 1, "max_bytes": 1000}
    with (
        WireClient(broker.port) as waiting,
        WireClient(broker.port),
        WireClient(broker.port) as deaf,
    ):
        waiting.send_request(full_request(1, 12, poll))
        deaf.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            deaf.socket.send(request_frame(minimal_request(3, 9)) * 5_000)
        assert broker.stop() == 0
        assert waiting.is_closed_by_broker()


@pytest.mark.usefixtures("ctrl_c")
def test_two_signals_are_as_good_as_one(broker: BrokerProcess) -> None:
    broker.start()
    for _ in range(3):
        with contextlib.suppress(ProcessLookupError):
            broker.send_signal(signal.SIGINT)
    assert broker.wait() == 0


def test_a_broker_behind_a_script_outlives_its_ctrl_c_and_stops_when_told(
    broker: BrokerProcess,
) -> None:
    with ctrl_c_ignored():
        broker.start()
    broker.send_signal(signal.SIGINT)
    topic = Topics(broker.bootstrap).create()
    confluent_client.produce(broker.bootstrap, topic, numbered_rows(1))
    assert broker.stop() == 0


def test_after_a_clean_stop_nothing_is_scanned(broker: BrokerProcess) -> None:
    """Damage in the middle of a segment is found by whoever scans it, and by nobody else."""
    broker.start()
    topic = Topics(broker.bootstrap).create()
    produce_batches(broker, topic, 20)
    assert broker.stop() == 0
    damage(broker, topic, b"value-10-")

    broker.start()

    assert end_offset(broker, topic) == 20
    assert "damaged" not in broker.output


def test_after_a_kill_what_was_not_flushed_is_scanned_and_cut(broker: BrokerProcess) -> None:
    """20 batches before a clean stop, which are flushed, and 20 after it, which are not."""
    broker.start()
    topic = Topics(broker.bootstrap).create()
    produce_batches(broker, topic, 20)
    broker.stop()
    broker.start()
    produce_batches(broker, topic, 20)
    broker.kill()
    damage(broker, topic, b"value-10-")

    broker.start()

    assert end_offset(broker, topic) == 30
    assert "damaged bytes" in broker.output


def produce_batches(broker: BrokerProcess, topic: str, count: int) -> None:
    """One record in each."""
    confluent_client.produce(broker.bootstrap, topic, numbered_rows(count), batch_num_messages=1)


def damage(broker: BrokerProcess, topic: str, value: bytes) -> None:
    """Change one bit of the last record with this value."""
    (segment,) = (broker.data_folder / f"{topic}-0").glob("*.log")
    data = bytearray(segment.read_bytes())
    data[data.rindex(value)] ^= 1
    segment.write_bytes(data)


def end_offset(broker: BrokerProcess, topic: str) -> int:
    with confluent_client.consumer(broker.bootstrap) as client:
        partition = confluent_client.TopicPartition(topic, 0)
        _, end = client.get_watermark_offsets(partition, PATIENCE_SECONDS)
    return end


# Refusals


def refused(*arguments: str) -> str:
    """What `moldau start` says when it does not start."""
    ended = subprocess.run(
        moldau_command("start", *arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert ended.returncode not in (0, -signal.SIGKILL), ended.stdout + ended.stderr
    assert "listening on" not in ended.stdout
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended.stderr


@pytest.fixture
def start_arguments(folder: Path) -> list[str]:
    """A broker that would start, if nothing else were wrong."""
    return ["--data-dir", str(folder / "data"), "--listen", f"127.0.0.1:{take_port()}"]


def test_a_second_broker_in_the_same_folder_is_refused(broker: BrokerProcess) -> None:
    broker.start()

    said = refused("--data-dir", str(broker.data_folder), "--listen", f"127.0.0.1:{take_port()}")

    assert "another broker uses the data folder" in said
    assert str(broker.data_folder) in said
    with WireClient(broker.port) as client:
        assert client.served_versions()


def test_the_lock_of_a_killed_broker_holds_nobody_up(broker: BrokerProcess) -> None:
    broker.start()
    broker.kill()
    broker.start()


def test_a_port_in_use_is_refused(folder: Path) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        said = refused("--data-dir", str(folder / "data"), "--listen", f"127.0.0.1:{port}")
    assert f"cannot listen on 127.0.0.1:{port}" in said
    assert "in use" in said
    # Nothing is left behind that would keep the next one from starting.
    with broker_process(folder / "broker", data_folder=folder / "data") as broker:
        broker.start()


def test_a_wrong_value_in_the_file_names_its_line(folder: Path, start_arguments: list[str]) -> None:
    config = folder / "server.properties"
    config.write_text("# ours\n\nnum.partitions=3\nlog.retention.hours=a week\n")
    said = refused("--config", str(config), *start_arguments)
    assert "server.properties line 4" in said
    assert "log.retention.hours" in said
    assert "a week" in said


def test_a_value_out_of_range_names_where_it_stood(start_arguments: list[str]) -> None:
    said = refused("--set", "num.partitions=0", *start_arguments)
    assert "--set" in said
    assert "num.partitions" in said


def test_values_that_do_not_fit_together_are_refused(start_arguments: list[str]) -> None:
    said = refused(
        "--set",
        "log.retention.hours=1",
        "--set",
        "listeners=PLAINTEXT://:1,PLAINTEXT://:2",
        *start_arguments[:2],
    )
    assert "listeners" in said


def test_an_unknown_name_warns_with_a_suggestion_and_starts(folder: Path) -> None:
    config = folder / "server.properties"
    config.write_text("num.partitions=3\nnum.netwrok.threads=3\nmy.own.thing=1\n")
    with broker_process(folder / "broker", arguments=["--config", str(config)]) as broker:
        broker.start()
        eventually(lambda: "line 2" in broker.output, lambda: broker.output)
        assert "num.network.threads" in broker.output  # what was probably meant


def test_settings_of_the_file_are_in_force(folder: Path) -> None:
    config = folder / "server.properties"
    config.write_text("num.partitions = 7\nauto.create.topics.enable=true\n")
    with broker_process(folder / "broker", arguments=["--config", str(config)]) as broker:
        broker.start()
        confluent_client.produce(broker.bootstrap, "made-on-demand", numbered_rows(1))
        _, partitions = Topics(broker.bootstrap).describe("made-on-demand")
    assert len(partitions) == 7


def test_a_data_folder_that_cannot_be_one_is_refused(folder: Path) -> None:
    (folder / "file").write_text("in the way")
    said = refused("--data-dir", str(folder / "file" / "data"), "--listen", "127.0.0.1:0")
    assert "no log directory can be used" in said
    assert "name a folder of its own with --data-dir or log.dirs" in said


def test_the_folder_of_another_broker_is_refused(broker: BrokerProcess) -> None:
    broker.start()
    broker.stop()
    said = refused(
        "--data-dir", str(broker.data_folder), "--broker-id", "77", "--listen", "127.0.0.1:0"
    )
    assert "belongs to broker 1" in said
