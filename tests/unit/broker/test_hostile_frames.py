"""Requests of every API and version with bytes that are wrong: answered, refused or cut off, and
never a fault of the broker. Somebody who may do nothing changes nothing by it."""

from __future__ import annotations

import logging
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from kio.index import load_request_schema

from broker.handlers.handler_bench import CONNECTION, WITH_AUTHORIZER, HandlerBench, with_broker
from broker.handlers.test_authorization_walk import MALLORY, SECRET, values_for
from moldau.broker.dispatch import DispatchTable, RequestPump
from moldau.broker.handlers import load_handler
from moldau.metrics.figures import ConnectionFigures, RequestFigures
from moldau.model import ANONYMOUS, Principal
from moldau.simulation.manual_clock import wait_until_idle
from moldau.tasks import TaskSupervisor
from moldau.wire.apis import METADATA, SERVED
from moldau.wire.headers import request_prefix
from moldau.wire.messages import encode_request
from moldau.wire.shape import fit

SEEDS = 3


class Client(SimpleNamespace):
    """A connection whose answers nobody reads."""

    is_heard = True
    id = "hostile"
    __hash__ = object.__hash__

    def __init__(self, principal: Principal) -> None:
        super().__init__(**{**vars(CONNECTION), "principal": principal})
        self.reasons: list[str] = []

    def send(self, chunks: Any) -> None:
        pass

    send_owed = send

    def skip_answer(self) -> None:
        pass

    owe_answer = skip_answer

    def close(self, reason: str) -> None:
        self.reasons.append(reason)


def spoil(frame: bytes, random: Random) -> bytes:
    """Change, drop or repeat some bytes behind the header's first fields."""
    spoiled = bytearray(frame)
    for _ in range(random.randint(1, 4)):
        at = random.randrange(8, max(9, len(spoiled)))
        match random.randrange(4):
            case 0:
                spoiled[at : at + 1] = bytes([random.randrange(256)])
            case 1:
                del spoiled[at : at + random.randint(1, 6)]
            case 2:
                spoiled[at:at] = random.randbytes(random.randint(1, 6))
            case _:
                spoiled[at : at + 4] = random.choice(
                    (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x80\x80\x80", b"\x00" * 4)
                )
    return bytes(spoiled)


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("principal", [MALLORY, ANONYMOUS], ids=str)  # who may nothing, and all
def test_wrong_bytes_are_no_fault_of_the_broker(
    principal: Principal, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    faults: list[str] = []

    async def story(bench: HandlerBench) -> None:
        await bench.create(SECRET)
        topics = dict(bench.services.image.topics)
        topic_id = topics[SECRET].topic_id
        random = Random(seed)
        table = DispatchTable(RequestFigures())
        supervisor = TaskSupervisor(lambda name, error: faults.append(f"{name}: {error!r}"))
        for handler in map(load_handler, SERVED):
            for version in range(handler.API.first, handler.API.last + 1):
                schema = load_request_schema(handler.API.key, version)
                request = fit(schema, values_for(schema, SECRET, topic_id))
                frame = encode_request(request, 9, "test")[4:]
                client: Any = Client(principal)
                pump = RequestPump(client, table, bench.services, supervisor, ConnectionFigures())
                pump.on_frame(memoryview(bytearray(spoil(frame, random))))
                await wait_until_idle()
                pump.on_client_gone()
                pump.on_closed()
                if any("internal error" in reason for reason in client.reasons):
                    faults.append(f"{handler.API.name} v{version}")
        await wait_until_idle()
        await supervisor.close()
        if principal is MALLORY:
            assert dict(bench.services.image.topics) == topics

    with caplog.at_level(logging.ERROR):
        with_broker(story, **WITH_AUTHORIZER)
    assert not faults, "\n".join(faults) + caplog.text[-6000:]


@pytest.mark.parametrize(
    ("api_key", "version"),
    [pytest.param(METADATA.key, 99, id="unsupported version"), pytest.param(999, 0, id="unknown")],
)
def test_a_connection_that_is_closed_for_an_api_or_version_leaves_one_line_at_v(
    api_key: int, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(bench: HandlerBench) -> None:
        client: Any = Client(ANONYMOUS)
        table = DispatchTable(RequestFigures())
        supervisor = TaskSupervisor(lambda name, error: pytest.fail(f"{name}: {error!r}"))
        pump = RequestPump(client, table, bench.services, supervisor, ConnectionFigures())
        prefix = request_prefix(api_key, version, 1, "old-client", 0)
        pump.on_frame(memoryview(bytearray(prefix[4:])))
        assert client.reasons == [f"API {api_key} v{version} is not served"]
        await supervisor.close()

    with caplog.at_level(logging.INFO, "moldau.broker.requests"):
        with_broker(story)
    assert [
        record.message for record in caplog.records if record.name == "moldau.broker.requests"
    ] == [
        f"closing connection {CONNECTION.id} of {CONNECTION.peer_host} (client id 'old-client'): "
        f"API {api_key} v{version} is not served"
    ]
