"""How long a turn of the broker's event loop takes at most while it does what it does.

Everybody waits for the longest turn. Requests that touch thousands of things (partitions, topics,
groups) are to be worked on in slices; what takes long in a thread holds up nobody.
"""

from __future__ import annotations

import json
import selectors
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.frames import CLIENT_ID, Prepared, fetch, make_batch, metadata, produce
from bench.processes import ServerProcess, broker_command, serving, temporary_folder
from bench.raw_client import RawClient
from bench.report import Goal, Outcome, Table
from bench.scale import KIB, MIB, Scale
from moldau.wire.apis import (
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
)
from moldau.wire.messages import encode_request
from moldau.wire.shape import fit
from moldau.wire.versions import request_class

GOAL_MS = 5.0
CONNECTIONS = 50
_PAUSE_SECONDS = 0.01
_PATIENCE_SECONDS = 30.0
_TOPIC_RESOURCE = 2
_SMALL_BYTES = 100
_METADATA = "Metadata of all"
_CONFIGS = "DescribeConfigs of many topics"
_LIST = "ListGroups"
_DESCRIBE = "DescribeGroups"
_OFFSETS = "OffsetFetch of everything"
_REPEATED = (_METADATA, _CONFIGS, _LIST, _DESCRIBE, _OFFSETS)


class Turn(NamedTuple):
    """The longest turn of the loop."""

    cpu_ms: float
    wall_ms: float


class ProbedBroker:
    """A broker whose loop is watched (`bench.probed_broker`)."""

    def __init__(self, server: ServerProcess, file: Path) -> None:
        self.server = server
        self._file = file

    def longest_turn(self) -> Turn:
        """Since the last time that somebody asked."""
        self._file.unlink(missing_ok=True)
        self.server.signal(signal.SIGUSR1)
        deadline = time.perf_counter() + _PATIENCE_SECONDS
        while not self._file.exists():
            if time.perf_counter() > deadline:
                raise RuntimeError("the broker does not say how long its turns are")
            time.sleep(_PAUSE_SECONDS)
        found = json.loads(self._file.read_text(encoding="ascii"))
        return Turn(found["cpu_ms"], found["wall_ms"])


def run(scale: Scale) -> Outcome:
    table = Table(
        title="The longest turn of the event loop",
        columns=("meanwhile", "CPU ms", "ms on the wall"),
        note="CPU: of the loop's thread. What else runs on the machine shows on the wall alone.",
    )
    worst = 0.0
    with temporary_folder() as folder:
        file = folder / "turn.json"
        command = broker_command(folder / "data")
        probed = [command[0], "-m", "bench.probed_broker", str(file), *command[3:]]
        with serving(probed) as server, RawClient(server) as client:
            broker = ProbedBroker(server, file)
            table.add("start", *broker.longest_turn())
            for name, work in _work(server, client, scale):
                if name in _REPEATED:
                    work()  # the first of its kind loads the classes of its messages
                broker.longest_turn()
                work()
                turn = broker.longest_turn()
                worst = max(worst, turn.cpu_ms)
                table.add(name, *turn)
    figure = "longest turn of the event loop, CPU ms"
    return Outcome(tables=[table], goals=[Goal(figure=figure, to_reach=GOAL_MS, measured=worst)])


def _work(
    server: ServerProcess, client: RawClient, scale: Scale
) -> Sequence[tuple[str, Callable[[], object]]]:
    partitions, topics, count = scale.partitions // 2, scale.partitions // 10, scale.requests
    small, large = make_batch(1, _SMALL_BYTES), make_batch(MIB, KIB)
    groups = [f"group-{number}" for number in range(scale.partitions)]
    names = [f"topic-{number}" for number in range(topics)]
    many = "many"
    one = client.create_topic("one")
    return (
        (
            f"produce of 100 B, {CONNECTIONS} connections",
            lambda: exchange_on_many(server, produce(one, small), 10 * count),
        ),
        (
            f"fetch of 100 B, {CONNECTIONS} connections",
            lambda: exchange_on_many(server, fetch(one, 5, max_bytes=1), 10 * count),
        ),
        ("produce of 1 MiB", lambda: client.repeat(produce(one, large), 50, 5)),
        ("CreateTopics, a topic of many partitions", lambda: client.create_topic(many, partitions)),
        ("CreateTopics, many topics", lambda: [client.create_topic(name) for name in names]),
        (_METADATA, lambda: client.exchange(metadata())),
        (
            _CONFIGS,
            lambda: _ask(client, DESCRIBE_CONFIGS.key, 4, _describe_configs(names)),
        ),
        ("OffsetCommit of many groups", lambda: _commit_all(client, many, groups, partitions)),
        (_LIST, lambda: _ask(client, LIST_GROUPS.key, 4, {"states_filter": ()})),
        (
            _DESCRIBE,
            lambda: _ask(
                client,
                DESCRIBE_GROUPS.key,
                5,
                {"groups": groups, "include_authorized_operations": False},
            ),
        ),
        (
            _OFFSETS,
            lambda: _ask(
                client,
                OFFSET_FETCH.key,
                7,
                {"group_id": groups[0], "topics": None, "require_stable": False},
            ),
        ),
        ("nothing", lambda: time.sleep(min(5.0, scale.rounds))),
    )


def exchange_on_many(
    server: ServerProcess, prepared: Prepared, count: int, connections: int = CONNECTIONS
) -> None:
    """One request at a time on each of many connections."""
    with RawClient(server) as client:
        size = len(client.exchange(prepared))
    selector = selectors.DefaultSelector()
    missing: dict[socket.socket, int] = {}
    for _ in range(connections):
        sock = socket.create_connection((server.host, server.port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(sock, selectors.EVENT_READ)
        sock.sendall(prepared.frame)
        missing[sock] = size
    left = max(0, count - connections)
    try:
        while missing:
            for key, _ in selector.select():
                sock = key.fileobj  # type: ignore[assignment]
                received = len(sock.recv(1 << 16))
                if not received:
                    raise ConnectionError("the server closed the connection")
                missing[sock] -= received
                if missing[sock] > 0:
                    continue
                if left:
                    left -= 1
                    missing[sock] = size
                    sock.sendall(prepared.frame)
                else:
                    selector.unregister(sock)
                    del missing[sock]
                    sock.close()
    finally:
        for sock in missing:
            sock.close()
        selector.close()


def _ask(client: RawClient, key: int, version: int, values: Mapping[str, object]) -> None:
    client.send(encode_request(fit(request_class(key, version), values), 1, CLIENT_ID))
    client.receive()


def _describe_configs(topics: Sequence[str]) -> dict[str, object]:
    resources = [
        {"resource_type": _TOPIC_RESOURCE, "resource_name": name, "configuration_keys": None}
        for name in topics
    ]
    return {"resources": resources, "include_synonyms": True, "include_documentation": True}


def _commit_all(client: RawClient, topic: str, groups: Sequence[str], partitions: int) -> None:
    """The first group commits every partition, the others one."""
    for number, group in enumerate(groups):
        indexes = range(partitions if number == 0 else 1)
        rows = [
            {
                "partition_index": index,
                "committed_offset": 0,
                "committed_leader_epoch": -1,
                "committed_metadata": "",
            }
            for index in indexes
        ]
        values = {
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": topic, "partitions": rows}],
        }
        _ask(client, OFFSET_COMMIT.key, 8, values)
