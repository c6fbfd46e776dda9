"""Four workers of one queue: some jobs fail, and are done by whoever gets them next.

    moldau start                                 in another terminal
    python examples/queue_workers.py [HOST:PORT]

Needs a broker with share groups: Moldau, or Apache Kafka from 4.2 on.
"""

from __future__ import annotations

import random
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import moldau
from moldau.config.alterations import ConfigChange

TOPIC, GROUP = "example-thumbnails", "example-thumbnail-makers"
JOB_COUNT, WORKER_COUNT = 40, 4
EARLIEST = ConfigChange(name="share.auto.offset.reset", value="earliest")


class FlakyDiskError(Exception):
    """Happens to every fifth job or so."""


def make_thumbnail(name: str, chance: random.Random) -> None:
    if chance.random() < 0.2:
        raise FlakyDiskError(name)


def prepare(bootstrap: str) -> None:
    """The topic, a group that begins at its beginning, and the jobs."""
    with moldau.Admin(bootstrap) as admin:
        admin.create_topics([moldau.NewTopic(name=TOPIC, partitions=1)])
        admin.alter_configs({moldau.ConfigResource.group(GROUP): [EARLIEST]})
    with moldau.Producer(bootstrap) as producer:
        producer.send_many(TOPIC, [b"photo-%d.jpg" % number for number in range(JOB_COUNT)])


def work(queue: moldau.Queue, done: Counter[str], is_over: threading.Event, seed: int) -> None:
    """Take jobs until all are done. A block that raises gives its job back."""
    chance = random.Random(seed)  # noqa: S311 no secret
    while not is_over.is_set():
        try:
            with queue.next(timeout=1) as job:
                name = str(job.record.value)  # the deserializer has made a text of it
                if job.delivery_count < 4:  # somebody has to do it in the end
                    make_thumbnail(name, chance)
                done[name] += 1
        except FlakyDiskError as error:
            sys.stdout.write(f"{error} failed, and goes back into the queue\n")
        except moldau.errors.QueueEmptyError:
            continue
        if len(done) == JOB_COUNT:
            is_over.set()


def main() -> None:
    bootstrap = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
    prepare(bootstrap)
    done: Counter[str] = Counter()
    is_over = threading.Event()
    with (
        moldau.Queue(bootstrap, group=GROUP, topic=TOPIC, value_deserializer=bytes.decode) as queue,
        ThreadPoolExecutor(WORKER_COUNT) as pool,
    ):
        for task in [pool.submit(work, queue, done, is_over, n) for n in range(WORKER_COUNT)]:
            task.result()
    sys.stdout.write(f"{len(done)} thumbnails were made by {WORKER_COUNT} workers\n")


if __name__ == "__main__":
    main()
