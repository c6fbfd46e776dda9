"""A transaction that hangs, from how it comes about to its end by our own tool.

Without verification (brokers before KIP-890, or with it switched off) a produce that comes late
begins a transaction behind the end of its own. No coordinator knows of it, so nobody ends it, and
readers of committed records wait for ever: until somebody finds and aborts it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.cli.main import run
from moldau.errors import ErrorCode
from support.broker_process import broker_process
from support.late_requests import LateProducer, code_of, held_back, late_producer
from support.waiting import eventually

WITHOUT_VERIFICATION = {"transaction.partition.verification.enable": "false"}
OLD_PRODUCE, OLD_END = 9, 3


@pytest.fixture
def producer(folder: Path) -> Iterator[LateProducer]:
    with broker_process(folder / "broker", settings=WITHOUT_VERIFICATION) as broker:
        broker.start()
        with late_producer(broker) as made:
            yield made


def transactions(
    capsys: pytest.CaptureFixture[str], producer: LateProducer, *words: str
) -> tuple[int, str, str]:
    """What `moldau transactions` ends with and says."""
    code = run(["transactions", *words, "--bootstrap", producer.broker.bootstrap, "--json"])
    said = capsys.readouterr()
    return code, said.out, said.err


def leave_hanging(producer: LateProducer) -> None:
    producer.add_partition()
    assert producer.produce(b"first", OLD_PRODUCE) is ErrorCode.none
    request = producer.produce_request(b"late", OLD_PRODUCE, sequence=1)
    with held_back(producer, request) as (proxy, late):
        producer.end(OLD_END, commit=True)
        eventually(lambda: producer.read()[1:] == (2, 2), "the end of the transaction")
        proxy.go.set()
        assert code_of(late.receive_response(type(request), 1)) is ErrorCode.none


def test_a_hanging_transaction_is_found_and_aborted_and_readers_go_on(
    producer: LateProducer, capsys: pytest.CaptureFixture[str]
) -> None:
    find = ("find-hanging", "--topic", producer.topic, "--older-than")
    leave_hanging(producer)
    assert producer.read() == ([b"first"], 2, 3)  # and so it stays
    assert json.loads(transactions(capsys, producer, *find, "15m")[1]) == []  # may be under way
    code, said, _ = transactions(capsys, producer, *find, "0s")
    (hanging,) = json.loads(said)
    place = {"topic": producer.topic, "partition": 0, "start_offset": 2}
    told = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}
    assert (code, hanging) == (
        0,
        {**place, **told, "coordinator_epoch": 0, "transactional_id": "late"},
    )
    abort = ("abort", "--topic", producer.topic, "--partition", "0", "--start-offset")
    code, _, fault = transactions(capsys, producer, *abort, "0")
    assert code == 1
    assert "no transaction is open" in fault
    code, said, _ = transactions(capsys, producer, *abort, "2")
    assert (code, json.loads(said)) == (0, {**place, **told})
    assert json.loads(transactions(capsys, producer, *find, "0s")[1]) == []
    assert producer.read() == ([b"first"], 4, 4)
    producer.add_partition()  # the producer goes on as if nothing had been
    assert producer.produce(b"next", OLD_PRODUCE, sequence=2) is ErrorCode.none
    producer.end(OLD_END, commit=True)
    eventually(lambda: producer.read() == ([b"first", b"next"], 6, 6), "the next transaction")


def test_a_transaction_that_its_coordinator_will_end_does_not_hang(
    producer: LateProducer, capsys: pytest.CaptureFixture[str]
) -> None:
    producer.add_partition()
    assert producer.produce(b"open", OLD_PRODUCE) is ErrorCode.none
    found = transactions(capsys, producer, "find-hanging", "--older-than", "0s")
    assert (found[0], json.loads(found[1])) == (0, [])
