"""Two brokers with one broker.id: the second does not start, and the first does not notice."""

from __future__ import annotations

import shutil
from pathlib import Path

from kazoo.client import KazooClient

from support.broker_process import broker_process
from support.cluster_processes import SETTINGS, cluster_processes
from support.confluent_client import consume, produce
from support.rows import Row
from support.waiting import PATIENCE_SECONDS
from support.zookeeper import Zookeeper, zookeeper

__all__ = ("zookeeper",)  # a fixture

ALONE = {
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
}


def rows(first: int) -> list[Row]:
    return [Row(None, b"%06d" % number) for number in range(first, first + 20)]


def test_a_second_broker_of_an_id_is_refused_and_the_first_goes_on(
    folder: Path, zookeeper: Zookeeper
) -> None:
    connect = zookeeper.fresh_connect()
    arguments = ("--zookeeper", connect, "--broker-id", "1")
    settings = {**SETTINGS, **ALONE}
    client = KazooClient(connect)
    with (
        cluster_processes(folder, connect, count=1, settings=ALONE) as cluster,
        broker_process(folder / "other", settings=settings, arguments=arguments) as other,
        broker_process(folder / "copy", settings=settings, arguments=arguments) as copy,
    ):
        client.start(PATIENCE_SECONDS)
        try:
            topic = cluster.create_topic()
            produce(cluster.bootstrap, topic, rows(0))
            registered = client.exists("/brokers/ids/1")
            shutil.copytree(cluster.data_folder(1), copy.data_folder)
            for second in (other, copy):
                second.launch()
            for second in (other, copy):
                assert second.wait() == 1
                assert "a broker with the id 1 is registered already" in second.output
            assert client.exists("/brokers/ids/1") == registered
        finally:
            client.stop()
            client.close()
        produce(cluster.bootstrap, topic, rows(20))
        got = consume(cluster.bootstrap, topic, 40)
        assert [one.value for one in got] == [row.value for row in (*rows(0), *rows(20))]
        assert "registration" not in cluster.brokers[1].output

        # On the folder itself the lock says it at once.
        with broker_process(
            folder / "same",
            settings=settings,
            arguments=arguments,
            data_folder=cluster.data_folder(1),
        ) as same:
            same.launch()
            assert same.wait() == 1
            assert "another broker uses the data folder" in same.output
