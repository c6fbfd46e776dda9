"""Everything at once, for as long as one likes: `make soak SECONDS=600`. Not a part of `make test`.

One partition is moved without pause between brokers that are far from each other, while brokers are
killed, paused and stopped and replicas fall behind; both kinds of producers want acks=all. And a
thousand partitions, which are not moved, while brokers are killed, paused and stopped. The seed
decides what is asked for and when; processes and networks have their own mind, so the same seed
does not take the same steps.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import moldau
from moldau.errors import MoldauError
from support.cluster_processes import ClusterProcesses, cluster_processes
from support.long_links import long_links
from support.partition_moves import Mover, both_producers
from support.waiting import eventually
from support.zookeeper import running_ensemble

SECONDS = float(os.environ.get("MOLDAU_SOAK_SECONDS", "300"))
MANY_PARTITIONS = int(os.environ.get("MOLDAU_SOAK_PARTITIONS", "1000"))
_PARTITIONS_PER_STEP = 100
SEED = int(os.environ.get("MOLDAU_SOAK_SEED", str(random.randrange(1 << 32))))

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(SECONDS + 600),
]


class Saboteur:
    """Kills, stops and pauses brokers in a thread of its own; all of them run when it has ended."""

    def __init__(self, cluster: ClusterProcesses, topic: str, chance: random.Random) -> None:
        self._cluster = cluster
        self._topic = topic
        self._chance = chance
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="saboteur")
        self.deeds: list[str] = []

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._chance.uniform(0.5, 4.0)):
            view = self._cluster.view(self._topic)
            brokers = sorted(self._cluster.brokers)
            suspects = [max(view.leader, 1), self._cluster.controller(), *brokers]
            deed = self._chance.choice((self._kill, self._kill, self._stop, self._pause))
            victim = self._chance.choice(suspects)
            self.deeds.append(f"{deed.__name__} {victim} of {view}")
            deed(victim)

    def _kill(self, number: int) -> None:
        self._cluster.kill(number)
        self._stopping.wait(self._chance.choice((0, 0, 1, 5)))
        self._cluster.start(number)

    def _stop(self, number: int) -> None:
        self._cluster.stop(number)
        self._cluster.start(number)

    def _pause(self, number: int) -> None:
        self._cluster.pause(number)
        self._stopping.wait(self._chance.choice((0.1, 0.5, 2, 5)))
        self._cluster.resume(number)


@pytest.mark.parametrize("lag_ms", [500, 5_000], ids=["sets shrink", "sets are patient"])
def test_partitions_move_while_brokers_fail(
    folder: Path, show_figure: Callable[[str], None], lag_ms: int
) -> None:
    print(f"seed {SEED}")  # noqa: T201 pytest shows it with a failure
    chance = random.Random(SEED)
    settings = {"replica.lag.time.max.ms": str(lag_ms)}
    with (
        running_ensemble(3) as servers,
        long_links(0) as links,
        cluster_processes(
            folder, servers.fresh_connect(), network=links, settings=settings
        ) as cluster,
    ):
        topic = cluster.create_topic()
        links.one_way_seconds = 0.06
        saboteur = Saboteur(cluster, topic, chance)
        with Mover(cluster, topic, chance) as mover, both_producers(cluster, topic) as producers:
            with saboteur.at_work():
                end = time.monotonic() + SECONDS
                while time.monotonic() < end:
                    with contextlib.suppress(MoldauError, AssertionError):  # too many are away
                        chance.choice((mover.take_away_and_bring_back, mover.wander))()
            print(*saboteur.deeds, sep="\n")  # noqa: T201 as above
            mover.go_home()
    show_figure(
        f"{producers.count} records acknowledged, {mover.count} steps of moves, "
        f"{len(saboteur.deeds)} faults"
    )


def test_a_thousand_partitions_while_brokers_fail(
    folder: Path, show_figure: Callable[[str], None]
) -> None:
    print(f"seed {SEED}")  # noqa: T201 pytest shows it with a failure
    with (
        running_ensemble(3) as servers,
        cluster_processes(folder, servers.fresh_connect()) as cluster,
    ):
        topic = _create_in_steps(cluster, MANY_PARTITIONS)
        saboteur = Saboteur(cluster, topic, random.Random(SEED))
        with both_producers(cluster, topic, MANY_PARTITIONS) as producers:
            with saboteur.at_work():
                time.sleep(SECONDS)  # that is what a soak is asked for
            print(*saboteur.deeds, sep="\n")  # noqa: T201 as above
            cluster.wait_until_whole()
    show_figure(
        f"{producers.count} records acknowledged in {MANY_PARTITIONS} partitions, "
        f"{len(saboteur.deeds)} faults"
    )


def _create_in_steps(cluster: ClusterProcesses, partitions: int) -> str:
    """A busy machine takes longer for all the folders than an answer may take."""
    topic = cluster.create_topic(min(partitions, _PARTITIONS_PER_STEP))
    with moldau.Admin(cluster.bootstrap) as admin:
        for total in range(2 * _PARTITIONS_PER_STEP, partitions + 1, _PARTITIONS_PER_STEP):
            admin.create_partitions({topic: total})  # the answer may come too late to count
            eventually(
                lambda: len(admin.list_topics()[topic].partitions) >= total,  # noqa: B023
                f"{total} partitions",
            )
    cluster.wait_until_whole()
    return topic
