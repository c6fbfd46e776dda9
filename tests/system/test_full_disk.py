"""A file system that is really full: clear errors, a clear end, nothing acknowledged is lost."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from support import confluent_client
from support.broker_process import BrokerProcess, broker_process
from support.command_line import start_process
from support.rows import Row
from support.topics import Topics
from support.waiting import eventually

SMALL = "size=6m"
ROOMY = "size=60m"

Remount = Callable[[str], None]


@pytest.fixture
def small_disk(folder: Path) -> Iterator[tuple[Path, Remount]]:
    """A small file system in memory, and how to give it more room."""
    disk = folder / "disk"
    disk.mkdir()

    def mount(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["mount", *arguments, str(disk)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    try:
        mounted = mount("-t", "tmpfs", "-o", SMALL, "tmpfs")
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if mounted.returncode:
        pytest.skip(f"this machine does not allow mounting: {mounted.stderr.strip()}")

    def remount(size: str) -> None:
        assert mount("-o", f"remount,{size}").returncode == 0

    try:
        yield disk, remount
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill_until_refused(broker: BrokerProcess, topic: str) -> tuple[dict[int, bytes], KafkaError]:
    """Produce one record after the other; what was acknowledged, and the error at the end."""
    client = confluent_client.producer(
        broker.bootstrap, message_send_max_retries=0, acks="all", linger_ms=0
    )
    acknowledged: dict[int, bytes] = {}
    for number in range(1_000):
        value = b"%06d" % number * 6_000
        try:
            (offset,) = confluent_client.send(client, topic, [Row(None, value)])
        except KafkaException as refused:
            return acknowledged, refused.args[0]
        acknowledged[offset] = value
    raise AssertionError("36 MB fitted into 6 MB")


def assert_all_there(broker: BrokerProcess, topic: str, acknowledged: dict[int, bytes]) -> None:
    got = confluent_client.consume(broker.bootstrap, topic, len(acknowledged))
    assert {one.offset: one.value for one in got} == acknowledged


def test_a_full_disk_ends_the_broker_with_a_status_and_loses_nothing(
    folder: Path, small_disk: tuple[Path, Remount]
) -> None:
    disk, remount = small_disk
    with broker_process(folder / "broker", data_folder=disk / "data") as broker:
        broker.start()
        topic = Topics(broker.bootstrap).create(config={"segment.index.bytes": "100000"})

        acknowledged, error = fill_until_refused(broker, topic)

        assert acknowledged
        assert error.code() in (KafkaError.KAFKA_STORAGE_ERROR, KafkaError._TRANSPORT), error
        assert broker.wait() == 1
        assert "No space left on device" in broker.output
        assert "no log directory is left" in broker.output
        assert "Make room on the disk and start the broker again" in broker.output

        broker.start()  # without room it gives what there is, until somebody writes
        assert_all_there(broker, topic, acknowledged)
        broker.kill()

        remount(ROOMY)
        broker.start()
        assert_all_there(broker, topic, acknowledged)
        for name in Topics(broker.bootstrap).names() - {"__consumer_offsets"}:
            assert confluent_client.produce(broker.bootstrap, name, [Row(None, b"room again")])


def test_a_kill_with_a_full_disk_loses_nothing(
    folder: Path, small_disk: tuple[Path, Remount]
) -> None:
    disk, remount = small_disk
    with broker_process(folder / "broker", data_folder=disk / "data") as broker:
        broker.start()
        topic = Topics(broker.bootstrap).create(
            config={"internal.segment.bytes": "400000", "segment.index.bytes": "100000"}
        )
        acknowledged, _ = fill_until_refused(broker, topic)
        broker.kill()
        remount(ROOMY)
        broker.start()
        assert_all_there(broker, topic, acknowledged)
        assert confluent_client.produce(broker.bootstrap, topic, [Row(None, b"room again")])


def test_the_other_log_directory_goes_on(folder: Path, small_disk: tuple[Path, Remount]) -> None:
    disk, remount = small_disk
    good = folder / "good"
    # The first directory holds the coordination store, so the small disk comes second.
    settings = {"log.dirs": f"{good},{disk / 'data'}"}
    with broker_process(folder / "broker", settings=settings) as broker:
        broker.start()
        topics = Topics(broker.bootstrap)
        names = [topics.create(config={"segment.index.bytes": "100000"}) for _ in range(2)]
        (on_good,) = (name for name in names if (good / f"{name}-0").exists())
        (on_small,) = (name for name in names if name != on_good)
        before = {
            confluent_client.produce(broker.bootstrap, on_good, [Row(None, b"before")])[
                0
            ]: b"before"
        }

        acknowledged, error = fill_until_refused(broker, on_small)

        assert error.code() == KafkaError.KAFKA_STORAGE_ERROR, error
        (offset,) = confluent_client.produce(broker.bootstrap, on_good, [Row(None, b"after")])
        assert_all_there(broker, on_good, {**before, offset: b"after"})
        new = topics.create()
        assert (good / f"{new}-0").exists()

        broker.kill()
        remount(ROOMY)
        broker.start()
        assert_all_there(broker, on_small, acknowledged)
        assert_all_there(broker, on_good, {**before, offset: b"after"})


def test_produce_says_what_a_full_disk_means(
    folder: Path, small_disk: tuple[Path, Remount], tmp_path: Path
) -> None:
    """With another directory the broker stays, and its refusal comes through for certain."""
    disk, _ = small_disk
    good = folder / "good"
    lines = tmp_path / "lines"
    lines.write_text("".join(f"{number:06} {'x' * 1000}\n" for number in range(20_000)))
    settings = {"log.dirs": f"{good},{disk / 'data'}"}
    with (
        broker_process(folder / "broker", settings=settings) as broker,
        (tmp_path / "said").open("w+b") as said,
    ):
        broker.start()
        topics = Topics(broker.bootstrap)
        names = [topics.create(config={"segment.index.bytes": "100000"}) for _ in range(2)]
        (topic,) = (name for name in names if not (good / f"{name}-0").exists())
        producing = start_process(
            *("produce", topic, "--file", str(lines), "--bootstrap", broker.bootstrap),
            stdout=subprocess.DEVNULL,
            stderr=said,
        )
        try:
            eventually(
                lambda: "KAFKA_STORAGE_ERROR" in (tmp_path / "said").read_text(),
                lambda: (tmp_path / "said").read_text(),
            )
        finally:
            producing.kill()
            producing.wait()
    assert (
        f"moldau: {topic}-0: the broker cannot use the disk of this partition"
        in (tmp_path / "said").read_text()
    )
