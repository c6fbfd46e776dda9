"""`moldau topics branch`: the same records under another name, without a copy of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import moldau
import moldau.testing
from moldau.cli.main import run
from moldau.model import TopicPartition
from moldau.testing.running_cluster import RunningCluster

SETTINGS = {"segment.bytes": "1048576", "file.delete.delay.ms": "0"}
VALUE = bytes(100_000)
COUNT = 90


def create(bootstrap: str, name: str, **settings: str) -> None:
    with moldau.Admin(bootstrap) as admin:
        configs = SETTINGS | {key.replace("_", "."): value for key, value in settings.items()}
        topic = moldau.NewTopic(name=name, partitions=2, configs=configs)
        assert not isinstance(admin.create_topics([topic])[name], Exception)


def fill(bootstrap: str, topic: str = "real") -> None:
    with moldau.Producer(bootstrap, batch_size=200_000) as producer:
        for number in range(COUNT):
            producer.send(topic, VALUE, key=b"%d" % number, partition=number % 2)


def read(bootstrap: str, topic: str, **options: str) -> list[tuple[int, int, bytes | None]]:
    with moldau.Consumer(bootstrap, auto_offset_reset="earliest", **options) as consumer:
        partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        found: list[tuple[int, int, bytes | None]] = []
        while any(consumer.position(one) < ends[one] for one in partitions):
            found += [(one.partition, one.offset, one.key) for one in consumer.poll(1)]
    return sorted(found)


def branch(bootstrap: str, capsys: pytest.CaptureFixture[str], *words: str) -> dict[int, int]:
    """Where the partitions of the branch end."""
    capsys.readouterr()
    assert run(["topics", "branch", *words, "--bootstrap", bootstrap, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["partitions"]
    return {row["partition"]: row["end_offset"] for row in rows}


def test_a_branch_has_the_records_and_shares_the_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with moldau.testing.broker(data_folder=tmp_path) as broker:
        create(broker.bootstrap, "real")
        fill(broker.bootstrap)
        records = read(broker.bootstrap, "real")
        assert branch(broker.bootstrap, capsys, "real", "trial") == {0: 45, 1: 45}
        closed = sorted((tmp_path / "real-0").glob("*.log"))[0]
        assert closed.stat().st_ino == (tmp_path / "trial-0" / closed.name).stat().st_ino
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


def test_an_open_transaction_is_not_in_a_branch_and_an_aborted_one_is_skipped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with moldau.testing.broker() as broker:
        create(broker.bootstrap, "real")
        with (
            moldau.Producer(broker.bootstrap, transactional_id="a") as one,
            moldau.Producer(broker.bootstrap, transactional_id="b") as other,
        ):
            with one.transaction():
                one.send("real", b"1", key=b"committed", partition=0)
            one.begin_transaction()
            one.send("real", b"2", key=b"aborted", partition=0).result()
            one.abort_transaction()
            other.begin_transaction()
            other.send("real", b"3", key=b"open", partition=0).result()
            assert branch(broker.bootstrap, capsys, "real", "trial")[0] == 4
            other.commit_transaction()
        committed = read(broker.bootstrap, "trial", isolation_level="read_committed")
        assert committed == [(0, 0, b"committed")]
        with (
            moldau.Producer(broker.bootstrap, transactional_id="a") as again,
            again.transaction(),
        ):
            again.send("trial", b"4", key=b"new", partition=0)
        committed = read(broker.bootstrap, "trial", isolation_level="read_committed")
        assert committed == [(0, 0, b"committed"), (0, 4, b"new")]


def test_a_producer_that_writes_to_both_is_not_taken_for_a_repetition(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with moldau.testing.broker() as broker, moldau.Producer(broker.bootstrap) as producer:
        create(broker.bootstrap, "real")
        producer.send("real", b"1", key=b"1", partition=0).result()
        branch(broker.bootstrap, capsys, "real", "trial", "--config", "retention.ms=-1")
        assert producer.send("trial", b"2", key=b"2", partition=0).result().offset == 1
        assert len(read(broker.bootstrap, "trial")) == 2
        with moldau.Admin(broker.bootstrap) as admin:
            resource = moldau.ConfigResource.topic("trial")
            entries = admin.describe_configs([resource])[resource]
            assert not isinstance(entries, Exception)
            values = {entry.name: entry.value for entry in entries}
        assert (values["retention.ms"], values["segment.bytes"]) == ("-1", "1048576")


def test_what_cannot_be_branched_is_refused_and_nothing_changes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with moldau.testing.broker() as broker:
        create(broker.bootstrap, "real")
        for words, said in (
            (("none", "trial"), "there is no topic"),
            (("real", "real"), "already exists\n"),  # and no option that it does not have
            (("real", "a/b"), "contains a character"),
            (("real", "__consumer_offsets"), "cannot be branched"),
            (("real", "trial", "--config", "segment.bites=1"), "segment.bites"),
        ):
            assert run(["topics", "branch", *words, "--bootstrap", broker.bootstrap]) == 1
            assert said in capsys.readouterr().err
        with moldau.Admin(broker.bootstrap) as admin:
            assert set(admin.list_topics()) <= {"real", "__consumer_offsets"}
            both = moldau.NewTopic(name="trial", partitions=3, configs={"moldau.branch.of": "real"})
            refused = admin.create_topics([both])["trial"]
            assert "gives others" in str(refused)
            later = moldau.NewTopic(name="later", partitions=1)
            assert not isinstance(admin.create_topics([later])["later"], Exception)
        asked = ["topics", "alter", "later", "--config", "moldau.branch.of=real"]
        assert run([*asked, "--bootstrap", broker.bootstrap]) == 1


@pytest.fixture
def three() -> Iterator[RunningCluster]:
    with moldau.testing.cluster(3) as cluster:
        yield cluster


def test_in_a_cluster_every_replica_has_the_branch_whoever_leads(
    three: RunningCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    create(three.bootstrap, "real")
    fill(three.bootstrap)
    records = read(three.bootstrap, "real")
    down = next(each for each in three.broker_ids if each != three.leader_of("real", 0))
    three.stop(down)
    three.wait_until(lambda: three.leader_of("real", 1) != down, "another leader")
    branch(three.bootstrap, capsys, "real", "trial")
    fill(three.bootstrap, "trial")
    assert len(read(three.bootstrap, "trial")) == 2 * len(records)
    three.restart(down)
    three.wait_until_whole()
    whole = read(three.bootstrap, "trial")
    assert [one for one in whole if one[1] < COUNT // 2] == records
    for broker_id in three.broker_ids:
        three.kill(broker_id)
        three.wait_until(
            lambda gone=broker_id: all(
                three.leader_of("trial", number) not in (gone, None) for number in range(2)
            ),
            "other leaders",
        )
        assert read(three.bootstrap, "trial") == whole
        three.restart(broker_id)
        three.wait_until_whole()


def test_a_leader_that_is_killed_makes_the_branch_when_it_is_back(
    three: RunningCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    create(three.bootstrap, "real")
    fill(three.bootstrap)
    records = read(three.bootstrap, "real")
    branch(three.bootstrap, capsys, "real", "trial")
    for broker_id in three.broker_ids:
        three.kill(broker_id)
    for broker_id in three.broker_ids:
        three.restart(broker_id)
    three.wait_until_whole()
    assert read(three.bootstrap, "trial") == records


def wait_until_others_lead(cluster: RunningCluster, names: list[str], gone: int) -> None:
    def do_others_lead() -> bool:
        return all(
            cluster.leader_of(name, number) not in (gone, None)
            for name in names
            for number in range(2)
        )

    cluster.wait_until(do_others_lead, "other leaders")


def test_branches_of_branches_outlive_brokers_that_are_killed_as_they_are_made(
    three: RunningCluster,
) -> None:
    """What is acknowledged stays, whoever leads, though one producer writes to all of them."""
    create(three.bootstrap, "real")
    names, acknowledged = ["real"], set()
    with moldau.Producer(three.bootstrap) as producer:

        def write() -> None:
            sent = {name: producer.send(name, name.encode(), partition=0) for name in names}
            for name, one in sent.items():
                at = one.result().offset
                assert (name, at) not in acknowledged  # it is not taken for a former one
                acknowledged.add((name, at))

        for _ in range(15):  # more than a segment: files are shared
            producer.send("real", VALUE, partition=0)
        write()
        for name, broker_id in zip(("c", "b", "a"), three.broker_ids, strict=True):
            with moldau.Admin(three.bootstrap) as admin:
                new = moldau.NewTopic(name=name, configs={"moldau.branch.of": names[-1]})
                assert not isinstance(admin.create_topics([new])[name], Exception)
            three.kill(broker_id)
            three.restart(broker_id)
            three.wait_until_whole()
            names.append(name)
            first = three.leader_of(name)
            assert first is not None
            three.kill(first)  # who follows has copied some of it
            wait_until_others_lead(three, names, first)
            write()
            three.restart(first)
            three.wait_until_whole()
    for broker_id in three.broker_ids:
        three.kill(broker_id)
        wait_until_others_lead(three, names, broker_id)
        found = {(name, at) for name in names for _, at, _ in read(three.bootstrap, name)}
        assert acknowledged <= found
        three.restart(broker_id)
        three.wait_until_whole()
