"""Handlers called by hand: plain values in, the answer that a client reads out.

Behind them are the services of one broker in memory, on virtual time: nothing is made up but the
connection.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from copy import copy
from types import ModuleType, SimpleNamespace
from typing import Any

from kio.index import load_request_schema, load_response_schema

from broker.cluster_stage import Cluster, Machine, play
from moldau.broker.api import RequestContext
from moldau.broker.handlers import create_topics
from moldau.model import ANONYMOUS, Principal
from moldau.records.record_batch import build_batch
from moldau.replication.partition import Partition
from moldau.wire.headers import RequestHeader
from moldau.wire.messages import encode_response, parse_response
from moldau.wire.shape import fit

CONNECTION = SimpleNamespace(
    id="a:1-b:2-3",
    listener_name="PLAINTEXT",
    security_protocol="PLAINTEXT",
    peer_host="10.0.0.1",
    principal=ANONYMOUS,
)


class HandlerBench:
    """One broker, and its handlers."""

    def __init__(self, cluster: Cluster, machine: Machine) -> None:
        self.cluster = cluster
        self.services = machine.services
        self.connection = CONNECTION

    def as_user(self, name: str, host: str = "10.0.0.1") -> HandlerBench:
        """The same broker for another client."""
        other = copy(self)
        changed = {"principal": Principal("User", name), "peer_host": host}
        other.connection = SimpleNamespace(**{**vars(CONNECTION), **changed})
        return other

    async def call(self, handler: ModuleType, version: int | None = None, **values: object) -> Any:
        """Call a handler in the newest version that it serves, unless another one is named."""
        api = handler.API
        version = api.last if version is None else version
        request = fit(load_request_schema(api.key, version), values)
        header = RequestHeader(api.key, version, 9, "test")
        context = RequestContext(header, self.connection, self.services)
        return await self.call_as(handler, version, request, context)

    async def call_as(
        self, handler: ModuleType, version: int, request: Any, context: RequestContext
    ) -> Any:
        """The same for a client that is given by its context."""
        api = handler.API
        answer = handler.handle(request, context)
        if inspect.isawaitable(answer):
            answer = await self.cluster.during(answer)
        response = fit(
            load_response_schema(api.key, version), {"throttle_time": 0, **answer}, api.droppable
        )
        return parse_response(api.key, version, memoryview(encode_response(response, 9))[4:])[1]

    async def create(self, name: str, partitions: int = 1, **configs: str) -> Any:
        row = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": 1,
            "assignments": [],
            "configs": [
                {"name": key.replace("_", "."), "value": value} for key, value in configs.items()
            ],
        }
        answer = await self.call(create_topics, topics=[row], timeout=1_000, validate_only=False)
        return answer.topics[0]

    def append(self, topic: str, *values: bytes, timestamp_ms: int = 1_000) -> None:
        self.append_to(
            self.services.partitions.require_leader(topic, 0), *values, timestamp_ms=timestamp_ms
        )

    def append_to(self, partition: Partition, *values: bytes, timestamp_ms: int = 1_000) -> None:
        rows = [(timestamp_ms + number, None, value, ()) for number, value in enumerate(values)]
        partition.append_as_leader(memoryview(build_batch(rows)), 1)


def with_broker(story: Callable[[HandlerBench], Coroutine[Any, Any, None]], **config: str) -> None:
    """Run a story with a broker of its own, on which the topic `clicks` has two partitions."""

    async def run(cluster: Cluster) -> None:
        (machine,) = await cluster.start(1)
        bench = HandlerBench(cluster, machine)
        await bench.create("clicks", 2)
        await story(bench)

    play(run, **config)


WITH_AUTHORIZER = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:ANONYMOUS;User:root",
}
"""Options for `with_broker`: the broker itself, and the bench, may do everything."""
