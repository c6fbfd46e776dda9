"""A batch is in the log, its producer is told otherwise, and the batch behind it is acknowledged.

librdkafka concludes that the first one is in the log and reports it without an offset. Ours sends
it again, and is told where it is (SEQ-2).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.errors import ErrorCode
from moldau.testing.free_ports import take_port
from support.broker_process import broker_process
from support.load import Load, NumberedLoad
from support.promises import BrokenPromises, OwnLoad, find_broken_promises
from support.refusing_proxy import RefusingProxy
from support.topics import Topics
from support.waiting import PATIENCE_SECONDS

CODES = (
    ErrorCode.request_timed_out,
    ErrorCode.not_enough_replicas_after_append,
    ErrorCode.not_leader_or_follower,
)


@pytest.fixture
def proxy(folder: Path) -> Iterator[RefusingProxy]:
    """A proxy with a broker behind it that sends clients to the proxy."""
    port = take_port()
    with RefusingProxy(port).running() as proxy:
        settings = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
        with broker_process(folder / "broker", settings=settings, port=port) as process:
            process.start()
            yield proxy


def lose_answers(proxy: RefusingProxy, load: NumberedLoad, topic: str) -> None:
    """Everything is in the log once, and where its producer was told that it is."""
    with load:
        load.wait_for_more(100)
        for code in CODES:
            proxy.refuse_one(code)
            assert proxy.refused.wait(PATIENCE_SECONDS)
            load.wait_for_more(100)
        load.finish()
    broken = find_broken_promises(proxy.bootstrap, topic, [load])
    assert broken == BrokenPromises.none()


def test_librdkafka_does_not_say_where_a_record_is(proxy: RefusingProxy) -> None:
    topic = Topics(proxy.bootstrap).create(1)
    patient = {"retry_backoff_ms": 5_000, "retry_backoff_max_ms": 5_000}  # it need not send again
    load = Load(proxy.bootstrap, topic, 1, most_in_flight=300, batch_num_messages=2, **patient)
    lose_answers(proxy, load, topic)
    somewhere = load.acknowledged_somewhere[0]
    assert len(somewhere) >= len(CODES)
    assert len(somewhere) + len(load.acknowledged[0]) == len(load.sent[0])


def test_ours_says_where_every_record_is(proxy: RefusingProxy) -> None:
    topic = Topics(proxy.bootstrap).create(1)
    load = OwnLoad(proxy.bootstrap, topic, 1, linger_ms=1, batch_size=500)
    lose_answers(proxy, load, topic)
    assert sorted(load.acknowledged[0]) == list(range(len(load.sent[0])))
