"""The paths of `bench.quick` that run in a process of this package: asked by name, line by line."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence

from bench.frames import make_batch, produce
from bench.raw_client import RawClient

_RECORDS = 1_000
_TOPIC = "worked"
_ROUNDS = 8
_BATCHES = 50
_SLOW = dict.fromkeys(
    (
        "zookeeper.session.timeout.ms",
        "replica.lag.time.max.ms",
        "replica.socket.timeout.ms",
        "replica.fetch.wait.max.ms",
        "request.timeout.ms",
    ),
    "60000",
)
"""Nobody may give up while instructions are counted, which takes its time."""

PATHS = {
    "codec: records of a batch checked": _BATCHES * 100,
    "codec: records to Arrow, as Spark reads them": _BATCHES * 100,
    "client: send": _RECORDS,
    "client: poll": _RECORDS,
    "client: poll_arrow": _RECORDS,
}
"""And how many records one call of each does."""
CLUSTER_PATHS = {"three brokers: a record with acks=all": _ROUNDS}
"""In a process of their own: brokers do not rest while nothing is asked of them."""

Work = Callable[[], object]


def main() -> None:
    with contextlib.ExitStack() as stack:
        if len(sys.argv) > 1:
            works = dict(
                zip(PATHS, (*_codec_paths(), *_client_paths(sys.argv[1], stack)), strict=True)
            )
        else:
            works = dict(zip(CLUSTER_PATHS, [_cluster_path(stack)], strict=True))
        print("done", flush=True)
        for line in sys.stdin:
            works[line.strip()]()
            print("done", flush=True)


def _codec_paths() -> Iterator[Work]:
    from moldau.arrow.columns import choose_schema
    from moldau.arrow.raw_batches import to_record_batches
    from moldau.client.consumer.rules.fetch_buffer import RawBatch
    from moldau.model import TopicPartition
    from moldau.records.batch_header import read_header
    from moldau.records.codec import find_fault
    from moldau.records.record_batch import payload_of

    batch = make_batch(20_000, 180)
    while batch.record_count != 100:
        batch = make_batch(len(batch.data) + (100 - batch.record_count) * 188, 180)
    header = read_header(batch.data)
    payload = payload_of(batch.data, header)
    raw = RawBatch(TopicPartition(_TOPIC, 0), memoryview(batch.data), header, 0, batch.record_count)
    schema = choose_schema(None, "us")
    yield lambda: [find_fault(payload, batch.record_count, False) for _ in range(_BATCHES)]
    yield lambda: list(to_record_batches([raw] * _BATCHES, schema))


def _client_paths(bootstrap: str, stack: contextlib.ExitStack) -> Iterator[Work]:
    """Nothing in them waits for a time to pass, so that they do the same each time."""
    import moldau

    host, _, port = bootstrap.rpartition(":")
    address = _Address(host, int(port))
    with RawClient(address) as raw:
        raw.create_topic(_TOPIC)
        raw.create_topic("sent")
        batch = make_batch(20_000, 180)
        for _ in range(_RECORDS // batch.record_count + 1):
            raw.exchange(produce(_TOPIC, batch))
    producer = stack.enter_context(moldau.Producer(bootstrap, batch_size=1 << 20, linger_ms=60_000))
    consumers = [
        stack.enter_context(moldau.Consumer(bootstrap, auto_offset_reset="earliest"))
        for _ in range(2)
    ]
    for consumer in consumers:
        consumer.assign([moldau.TopicPartition(_TOPIC, 0)])

    def send() -> None:
        for _ in range(_RECORDS):
            producer.send("sent", b"x" * 180)
        producer.flush(60.0)

    def poll() -> None:
        consumers[0].seek_to_beginning()
        count = 0
        while count < _RECORDS:
            count += len(consumers[0].poll(60.0, 500))

    def poll_arrow() -> None:
        consumers[1].seek_to_beginning()
        count = 0
        while count < _RECORDS:
            count += consumers[1].poll_arrow(60.0).num_rows

    yield from (send, poll, poll_arrow)


def _cluster_path(stack: contextlib.ExitStack) -> Work:
    """All brokers in this process, and a client that sends one record at a time."""
    from moldau.testing import cluster

    running = stack.enter_context(cluster(3, _SLOW))
    addresses = running.bootstrap.split(",")
    _create_copied(addresses)
    running.wait_until_whole()
    leader = running.leader_of("copied")
    if leader is None:
        raise RuntimeError("the topic has no leader")
    place = running.broker_ids.index(leader)
    client = stack.enter_context(RawClient(_Address(*_split(addresses[place]))))
    prepared = produce("copied", make_batch(1, 100), acks=-1)

    def send() -> None:
        for _ in range(_ROUNDS):
            client.exchange(prepared)

    return send


def _create_copied(addresses: Sequence[str]) -> None:
    """At the controller, whichever it is."""
    for address in addresses:
        with contextlib.suppress(RuntimeError), RawClient(_Address(*_split(address))) as client:
            client.create_topic("copied", replication_factor=3)
            return
    raise RuntimeError("nobody is the controller")


class _Address:
    """Where a server is that this process did not start."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


if __name__ == "__main__":
    main()
