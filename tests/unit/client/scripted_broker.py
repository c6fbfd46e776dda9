"""A broker for tests that answers what the test tells it to, over the network of one process.

A script maps API keys to functions from request to answer. An answer is the values of the newest
version (fields that the asked version lacks are left out), `SILENCE`, or `HANG_UP`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from enum import Enum
from typing import Any, TypeVar
from uuid import UUID

from moldau.client.cluster import ClientSettings, ClusterClient
from moldau.client.connections import ConnectionSettings
from moldau.client.rules.broker_errors import Backoff
from moldau.net.connection_quotas import ConnectionQuotas
from moldau.net.port import Connection
from moldau.simulation.manual_clock import ManualClock
from moldau.simulation.memory_network import MemoryNetwork
from moldau.wire.headers import read_request_header
from moldau.wire.messages import encode_response, parse_request
from moldau.wire.shape import fit
from moldau.wire.versions import response_class
from support.connection_limits import Limits

T = TypeVar("T")

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS = 0, 1, 2, 3, 18
PORT = 9092


class Instead(Enum):
    SILENCE = 1
    HANG_UP = 2
    NO_ANSWER = 3  # the request wants none


SILENCE, HANG_UP, NO_ANSWER = Instead.SILENCE, Instead.HANG_UP, Instead.NO_ANSWER

Request = Any
Script = Callable[[Request], Mapping[str, object] | Instead]


class _Anything(frozenset[str]):
    """Every field may be dropped: the test gives the newest version's words."""

    def __contains__(self, item: object) -> bool:
        return True


ANYTHING = _Anything()

DEFAULT_VERSIONS: Mapping[int, tuple[int, int]] = {
    PRODUCE: (3, 12),
    FETCH: (4, 17),
    LIST_OFFSETS: (1, 10),
    METADATA: (0, 13),
    API_VERSIONS: (0, 4),
    19: (2, 7),
    20: (1, 6),
    21: (0, 2),
    22: (0, 5),
    32: (1, 4),
    35: (1, 4),
    37: (0, 3),
    44: (0, 1),
}


class ScriptedBroker:
    """Listens at its name, port 9092; remembers every request as (API key, version, message)."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.versions = dict(DEFAULT_VERSIONS)
        self.scripts: dict[int, Script] = {}
        self.requests: list[tuple[int, int, Request]] = []
        self.connections: list[Connection] = []

    def asked(self, api_key: int) -> list[Request]:
        return [request for key, _, request in self.requests if key == api_key]

    def accept(self, connection: Connection) -> _Receiver:
        self.connections.append(connection)
        return _Receiver(self, connection)

    def answer(self, connection: Connection, frame: memoryview) -> None:
        header, position = read_request_header(frame)
        key, version = header.api_key, header.api_version
        if key == API_VERSIONS:
            self._answer_versions(connection, version, header.correlation_id)
            return
        request = parse_request(key, version, frame, position)
        self.requests.append((key, version, request))
        values = self.scripts[key](request)
        if values is HANG_UP:
            connection.close("the script says so")
        elif values is NO_ANSWER:
            connection.skip_answer()
        elif not isinstance(values, Instead):
            entity = fit(response_class(key, version), values, ANYTHING)
            connection.send((encode_response(entity, header.correlation_id),))

    def _answer_versions(self, connection: Connection, version: int, correlation_id: int) -> None:
        first, last = self.versions[API_VERSIONS]
        refused = not first <= version <= last
        rows = [
            {"api_key": key, "min_version": low, "max_version": high}
            for key, (low, high) in self.versions.items()
        ]
        values = {"error_code": 35 if refused else 0, "api_keys": rows, "throttle_time": 0}
        answered = 0 if refused else version
        self.requests.append((API_VERSIONS, version, None))
        entity = fit(response_class(API_VERSIONS, answered), values, ANYTHING)
        connection.send((encode_response(entity, correlation_id),))


class _Receiver:
    def __init__(self, broker: ScriptedBroker, connection: Connection) -> None:
        self._broker = broker
        self._connection = connection

    def on_frame(self, frame: memoryview) -> None:
        self._broker.answer(self._connection, frame)

    def on_client_gone(self) -> None:
        self._connection.close("nobody waits for an answer")

    def on_closed(self) -> None:
        """Nothing to clear up."""


class Stage:
    """A clock, a network, some brokers named b1, b2, …, and a client's view of them."""

    def __init__(self, broker_count: int = 1) -> None:
        self.clock = ManualClock()
        self.network = MemoryNetwork(self.clock)
        self.brokers = [ScriptedBroker(f"b{number}") for number in range(1, broker_count + 1)]

    async def listen(self) -> None:
        limits = Limits(connections_max_idle_ms=600_000_000)
        for broker in self.brokers:
            await self.network.host(broker.name).listen(
                broker.name,
                PORT,
                broker.accept,
                listener_name="PLAINTEXT",
                quotas=ConnectionQuotas(limits, self.clock),
            )

    def make_client(self, bootstrap: str = "b1:9092", **settings: Any) -> ClusterClient:
        return ClusterClient(
            bootstrap,
            ClientSettings(
                connection=ConnectionSettings(request_seconds=10.0),
                backoff=Backoff(jitter=0.0),
                **settings,
            ),
            network=self.network.host("client"),
            clock=self.clock,
        )

    def play(self, story: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a story on this stage, jumping over every pause."""

        async def whole() -> T:
            await self.listen()
            return await self.clock.run_until_done(story())

        return asyncio.run(whole())


async def settle() -> None:
    """Let what is on its way arrive."""
    for _ in range(20):
        await asyncio.sleep(0)


def metadata(
    topics: Mapping[str, Iterable[int]],
    *,
    brokers: int = 1,
    controller: int = 1,
    topic_ids: Mapping[str, UUID] | None = None,
) -> Script:
    """A script of Metadata: each topic with the leaders of its partitions."""

    def answer(request: Request) -> Mapping[str, object]:
        asked = topics if request.topics is None else [topic.name for topic in request.topics]
        return {
            "throttle_time": 0,
            "error_code": 0,
            "cluster_id": "test-cluster",
            "controller_id": controller,
            "brokers": [
                {"node_id": number, "host": f"b{number}", "port": PORT, "rack": None}
                for number in range(1, brokers + 1)
            ],
            "topics": [_topic(name, topics.get(name), topic_ids or {}) for name in asked],
        }

    return answer


def _topic(
    name: str, leaders: Iterable[int] | None, topic_ids: Mapping[str, UUID]
) -> Mapping[str, object]:
    return {
        "error_code": 3 if leaders is None else 0,
        "name": name,
        "topic_id": topic_ids.get(name),
        "is_internal": name.startswith("__"),
        "partitions": [
            {
                "error_code": 0 if leader >= 0 else 5,
                "partition_index": index,
                "leader_id": leader,
                "leader_epoch": 4,
                "replica_nodes": (1,),
                "isr_nodes": (1,),
                "offline_replicas": (),
            }
            for index, leader in enumerate(leaders or ())
        ],
    }
