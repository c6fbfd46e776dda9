"""Three brokers go from an older commit to the working tree, one by one, and back if asked to.

    PYTHONPATH=tests python -m upgrade COMMIT [--back]

Clients work throughout: an idempotent producer with acks=all, a reader, a group that commits, and
transactions of which every second one is aborted. In the end everything that was acknowledged is
there once, replicas are equal byte by byte, and nothing of an aborted transaction can be read. On
each leg one broker is killed, too, before it gets the other version: so what one has written is
recovered by the other, and not only opened.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException, Producer, TopicPartition

from support import confluent_client
from support.cluster_processes import ClusterProcesses, cluster_processes
from support.cluster_traffic import traffic_on
from support.waiting import PATIENCE_SECONDS, eventually
from support.zookeeper import running_ensemble

ROOT = Path(__file__).parent.parent.parent
PARTITIONS = (0, 1)
LAST = 0
SETTINGS = {
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
}


class Release:
    """What brokers run; where all of a cluster begin with it, as a `Network`."""

    def __init__(self, tree: Path) -> None:
        self.program = ["env", f"PYTHONPATH={tree / 'src'}", sys.executable, "-m", "moldau"]

    def reach(self, zookeeper: str) -> str:
        return zookeeper

    def place(self, number: int) -> Mapping[str, object]:
        return {"program": self.program}


class Transactions:
    """One after the other, in a thread: the even ones are committed, the odd ones aborted."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="transactions")
        self.committed: list[int] = []
        self.in_doubt: set[int] = set()  # nobody has confirmed how they ended

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def wait_for_more(self) -> None:
        before = len(self.committed)
        eventually(lambda: len(self.committed) > before + 5, "transactions")

    def _begin(self) -> Producer:
        made = confluent_client.producer(self._bootstrap, transactional_id="upgrade")
        made.init_transactions(PATIENCE_SECONDS)
        return made

    def _run(self) -> None:
        number = LAST
        while not self._stopping.is_set():
            with contextlib.suppress(KafkaException):  # then another producer goes on
                producer = self._begin()
                while not self._stopping.is_set():
                    number += 1
                    self.in_doubt.add(number)
                    self._write(producer, number)
                    if number % 2:
                        producer.abort_transaction(PATIENCE_SECONDS)
                    else:
                        producer.commit_transaction(PATIENCE_SECONDS)
                        self.committed.append(number)
                    self.in_doubt.discard(number)

    def _write(self, producer: Producer, number: int) -> None:
        producer.begin_transaction()
        for partition in PARTITIONS:
            producer.produce(self._topic, b"%d" % number, partition=partition)
        producer.flush(PATIENCE_SECONDS)

    def check(self) -> str:
        """After the end: what was confirmed is there once, in both partitions, and nothing else."""
        producer = self._begin()
        self._write(producer, LAST)
        producer.commit_transaction(PATIENCE_SECONDS)
        one, other = map(self._read, PARTITIONS)
        assert one == other, "transactions are there by halves"
        assert len(set(one)) == len(one), "transactions are there twice"
        missing = set(self.committed) - set(one)
        assert not missing, f"committed, and lost: {sorted(missing)[:10]}"
        more = set(one) - set(self.committed) - self.in_doubt
        assert not more, f"aborted, and there: {sorted(more)[:10]}"
        return f"{len(self.committed)} transactions committed, {len(self.in_doubt)} in doubt"

    def _read(self, partition: int) -> list[int]:
        """What readers of committed records get, up to the last transaction."""
        with confluent_client.consumer(
            self._bootstrap, isolation_level="read_committed"
        ) as consumer:
            consumer.assign([TopicPartition(self._topic, partition, 0)])
            found: list[int] = []
            while True:
                (got,) = confluent_client.poll(consumer, 1)
                if int(got.value or b"") == LAST:
                    return found
                found.append(int(got.value or b""))


def go(cluster: ClusterProcesses, release: Release, transactions: Transactions) -> None:
    """One broker after the other; the last one does not stop in good order."""
    *others, last = cluster.broker_ids
    for number in (*others, last):
        if number == last:
            cluster.kill(number)
        else:
            cluster.stop(number)
        cluster.brokers[number].program = release.program
        cluster.start(number)
        cluster.wait_until_whole()
        transactions.wait_for_more()


def unpack(commit: str, folder: Path) -> Path:
    """A commit as a tree that can be run, compiled where that is possible."""
    archive = subprocess.run(
        ["git", "archive", commit], cwd=ROOT, check=True, capture_output=True
    ).stdout
    subprocess.run(["tar", "x", "-C", str(folder)], input=archive, check=True)
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=folder,
        check=False,
        capture_output=True,
    )
    return folder


def say(figure: str) -> None:
    sys.stdout.write(f"{figure}\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="upgrade", description=__doc__)
    parser.add_argument("commit", help="what the brokers begin with")
    parser.add_argument("--back", action="store_true", help="and go back to")
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as place,
        tempfile.TemporaryDirectory() as source,
        running_ensemble(1) as servers,
    ):
        old, new = Release(unpack(asked.commit, Path(source))), Release(ROOT)
        with cluster_processes(
            Path(place), servers.fresh_connect(), settings=SETTINGS, network=old
        ) as cluster:
            topic = cluster.create_topic(len(PARTITIONS))
            transactions = Transactions(cluster.bootstrap, topic)
            with traffic_on(cluster, say), transactions:
                transactions.wait_for_more()
                for release in (new, old) if asked.back else (new,):
                    go(cluster, release, transactions)
            say(transactions.check())


if __name__ == "__main__":
    main()
