"""`moldau topics branch`: the same records under another name, without a copy of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import moldau
import moldau.testing
from moldau.cli.main import run
from moldau.model import TopicPartition

SETTINGS = {"segment.bytes": "1048576", "file.delete.delay.ms": "0"}
VALUE = bytes(100_000)
COUNT = 90


def fill(bootstrap: str) -> None:
    with moldau.Admin(bootstrap) as admin:
        topic = moldau.NewTopic(name="real", partitions=2, configs=SETTINGS)
        assert not isinstance(admin.create_topics([topic])["real"], Exception)
    with moldau.Producer(bootstrap, batch_size=200_000) as producer:
        for number in range(COUNT):
            producer.send("real", VALUE, key=b"%d" % number, partition=number % 2)


def read(bootstrap: str, topic: str) -> list[tuple[int, int, bytes | None]]:
    with moldau.Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        starts = consumer.beginning_offsets(partitions)
        wanted = sum(ends[one] - starts[one] for one in partitions)
        found: list[tuple[int, int, bytes | None]] = []
        while len(found) < wanted:
            found += [(one.partition, one.offset, one.key) for one in consumer.poll(30)]
    return sorted(found)


def branch(folder: Path, capsys: pytest.CaptureFixture[str], *names: str) -> dict[str, int]:
    assert run(["topics", "branch", *names, "--data-dir", str(folder), "--json"]) == 0
    report: dict[str, int] = json.loads(capsys.readouterr().out)
    return report


def test_a_branch_has_the_records_and_shares_the_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with moldau.testing.broker(data_folder=tmp_path) as broker:
        fill(broker.bootstrap)
        records = read(broker.bootstrap, "real")
    report = branch(tmp_path, capsys, "real", "trial")
    assert report["linked_bytes"] > 2 * report["copied_bytes"]
    closed = sorted((tmp_path / "real-0").glob("*.log"))[0]
    assert closed.stat().st_ino == (tmp_path / "trial-0" / closed.name).stat().st_ino
    with moldau.testing.broker(data_folder=tmp_path) as broker:
        assert read(broker.bootstrap, "trial") == records
        with moldau.Producer(broker.bootstrap) as producer:
            producer.send("trial", b"only here", partition=0).result()
            producer.send("real", b"only there", partition=1).result()
        assert len(read(broker.bootstrap, "trial")) == len(read(broker.bootstrap, "real"))
        with moldau.Admin(broker.bootstrap) as admin:
            assert admin.delete_topics(["real"]) == {"real": None}
            assert "real" not in admin.list_topics()
        again = read(broker.bootstrap, "trial")
        assert again[: len(records) // 2] == records[: len(records) // 2]
        assert len(again) == len(records) + 1
    with moldau.testing.broker(data_folder=tmp_path) as broker:  # also after another start
        assert read(broker.bootstrap, "trial") == again


def test_what_cannot_be_branched_is_refused_and_nothing_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with moldau.testing.broker(data_folder=tmp_path) as broker:
        fill(broker.bootstrap)
        assert run(["topics", "branch", "real", "trial", "--data-dir", str(tmp_path)]) == 1
        assert "another broker uses the data folder" in capsys.readouterr().err
    for names, words in (
        (("none", "trial"), "there is no topic"),
        (("real", "real"), "already"),
        (("real", "a/b"), "contains a character"),
        (("real", "__consumer_offsets"), "cannot be branched"),
    ):
        assert run(["topics", "branch", *names, "--data-dir", str(tmp_path)]) == 1
        assert words in capsys.readouterr().err
    (tmp_path / ".kafka_cleanshutdown").unlink()
    assert run(["topics", "branch", "real", "trial", "--data-dir", str(tmp_path)]) == 1
    assert "start and stop it first" in capsys.readouterr().err
    assert not list(tmp_path.glob("trial*"))


def test_a_folder_without_a_store_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["topics", "branch", "a", "b", "--data-dir", str(tmp_path)]) == 1
    assert "not the data folder of a broker alone" in capsys.readouterr().err
