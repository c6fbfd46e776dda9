"""librdkafka's in-memory mock broker, as a process of its own: `python -m bench.mock_cluster`.

It comes with confluent-kafka and is written in C. It keeps the last five megabytes of each
partition, checks nothing, and writes nothing to a disk.
"""

from __future__ import annotations

import logging
import signal

from confluent_kafka import Producer


def main() -> None:
    quiet = logging.getLogger("mock_cluster")
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False
    holder = Producer({"test.mock.num.brokers": 1}, logger=quiet)
    broker = next(iter(holder.list_topics(timeout=10).brokers.values()))
    print(f"listening on {broker.host}:{broker.port}", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
